"""From the first window to a cap that is held, and away from it again, whatever the GPU and its work do."""

from collections.abc import Callable

import msgspec
import pytest

from gpuwatch.tuning.energy.hold import CALM, HOLD_SECONDS, saving_estimate
from gpuwatch.tuning.energy.model import Refusal, Terms, TrialPhase, TrialWindow
from gpuwatch.tuning.energy.tuner import IGNORED, LONGEST_REST, OBSERVED, REST_SECONDS, target_cap
from tests.bench.tuner.curves import Curve, model
from tests.tuning.energy.tuner_bench import GENTLE, LADDER, MIXED, STEEP, Bench, Change, having


def slowdown(curve: Curve, cap: float | None) -> float:
    return 1 - curve.at(cap)[0]


@pytest.mark.parametrize("curve", [MIXED, STEEP, GENTLE], ids=lambda curve: curve.workload)
def test_it_finds_a_cap_close_to_the_bound(curve: Curve) -> None:
    bench = Bench(curve)
    bench.until(TrialPhase.HOLD)
    assert 0.03 < slowdown(curve, bench.state.held) <= 0.055
    told = saving_estimate(bench.state)
    assert told is not None
    assert told.slowdown == pytest.approx(slowdown(curve, bench.state.held), abs=0.01)
    assert 0.015 < told.at_most - told.slowdown < 0.03  # that counters err is part of it
    assert told.saved == pytest.approx(1 - curve.at(bench.state.held)[1], abs=0.02)


def test_full_and_reduced_windows_take_turns() -> None:
    bench = Bench(MIXED)
    bench.run(5 * (OBSERVED + 6))
    caps = [cap for before, cap in zip([None, *bench.asked], bench.asked, strict=False) if cap != before]
    assert caps[1::2] == [None] * len(caps[1::2])
    assert set(caps[::2]) == {LADDER.at_least(0.8 * LADDER.top)}


def test_what_follows_a_switch_is_dropped() -> None:
    clean, stirred = Bench(MIXED), Bench(MIXED)
    stirred.change = lambda w: w if w.settled else msgspec.structs.replace(w, dram=0.9, pipe=0.01, joules=1.0)
    for bench in (clean, stirred):
        bench.until(TrialPhase.HOLD)
    assert stirred.asked == clean.asked


def test_work_that_needs_the_clock_is_left_alone() -> None:
    flat = model("H100", "no gain", 1410e6, 1.0, 0.9, 1.0)
    bench = Bench(flat)
    bench.until(TrialPhase.REFUSED)
    assert bench.state.refusal is Refusal.NO_GAIN
    assert target_cap(bench.state) is None


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (having(dram=0.04, pipe=0.03), Refusal.WEAK_SIGNAL),
        (having(dram=None, pipe=None), Refusal.WEAK_SIGNAL),
        (lambda w: msgspec.structs.replace(w, dram=0.2 if w.joules % 2 > 1 else 0.5), Refusal.UNSTEADY),
        (lambda w: w if w.cap is None else msgspec.structs.replace(w, pipe=0.85 * w.pipe), Refusal.DISAGREE),
        (lambda w: msgspec.structs.replace(w, cap=None), Refusal.NOT_OBEYED),
    ],
    ids=["weak", "unknown", "unsteady", "disagree", "not obeyed"],
)
def test_it_refuses_and_says_why(change: Change, refusal: Refusal) -> None:
    bench = Bench(GENTLE)
    bench.change = change
    bench.until(TrialPhase.REFUSED)
    assert bench.state.refusal is refusal
    assert bench.asked[-1] is None


def test_a_strong_pipe_does_where_memory_is_idle() -> None:
    bench = Bench(STEEP)
    bench.change = having(dram=0.01)
    bench.until(TrialPhase.HOLD)
    assert 0.02 < slowdown(STEEP, bench.state.held) <= 0.055


def test_a_refused_gpu_rests_twice_as_long_each_time() -> None:
    bench, rests = Bench(GENTLE), []
    bench.change = having(dram=0.01, pipe=None)
    for _ in range(7):
        bench.until(TrialPhase.REFUSED, seconds=20000)
        rests.append(bench.state.rest)
        bench.until(TrialPhase.OBSERVE, seconds=20000)
    assert rests[:3] == [REST_SECONDS, 2 * REST_SECONDS, 4 * REST_SECONDS]
    assert rests[-1] == LONGEST_REST


def test_a_hold_is_verified_every_half_hour_by_one_block() -> None:
    bench = Bench(MIXED)
    bench.until(TrialPhase.HOLD)
    bench.until(TrialPhase.VERIFY, seconds=HOLD_SECONDS + 10)
    before = len(bench.asked)
    bench.until(TrialPhase.HOLD)
    assert len(bench.asked) - before < 2 * 16
    assert bench.state.held is not None


@pytest.mark.parametrize("after", ["at once", "later"])
def test_steeper_work_is_noticed_and_slowed_for_less_than_a_minute(after: str) -> None:
    bench = Bench(GENTLE)
    bench.until(TrialPhase.HOLD)
    bench.run(0 if after == "at once" else 600)
    bench.gpus[0].curve, over = STEEP, 0.0
    for _ in range(720):
        cap = target_cap(bench.state)
        over += 5.0 * (slowdown(STEEP, cap) > 0.06)
        bench.tick()
    assert 15 <= over <= 60
    assert slowdown(STEEP, bench.state.held) <= 0.055


def test_a_stall_of_two_windows_changes_nothing() -> None:
    bench = Bench(MIXED)
    bench.until(TrialPhase.HOLD)
    bench.run(300)
    held, bench.change = bench.state.held, having(dram=0.06)
    bench.run(10)
    bench.change = having()
    bench.run(60)
    assert (bench.state.phase, bench.state.held) == (TrialPhase.HOLD, held)


def test_an_idle_gpu_keeps_its_cap_and_is_not_verified() -> None:
    bench = Bench(MIXED)
    bench.until(TrialPhase.HOLD)
    held, bench.change = bench.state.held, having(dram=0.0, pipe=0.0, engine=0.0)
    bench.run(2 * HOLD_SECONDS)
    assert (bench.state.phase, bench.state.held) == (TrialPhase.HOLD, held)


def telling(bench: Bench, speed: Callable[[], float]) -> Change:
    """Verifications measure this speed at the cap, as if it had been accepted by luck."""

    def change(window: TrialWindow) -> TrialWindow:
        if window.cap is None or bench.state.phase is not TrialPhase.VERIFY:
            return window
        factor = speed() / MIXED.at(window.cap)[0]
        return msgspec.structs.replace(window, dram=(window.dram or 0) * factor, pipe=(window.pipe or 0) * factor)

    return change


def test_two_failed_verifications_raise_the_cap() -> None:
    bench = Bench(MIXED)
    bench.until(TrialPhase.HOLD)
    held = bench.state.held
    bench.change = telling(bench, lambda: 0.943 if bench.state.held == held else 0.96)
    bench.run(HOLD_SECONDS + 600)
    assert held is not None
    assert bench.state.phase is TrialPhase.HOLD
    assert bench.state.held == LADDER.at_least(held + 1)


def test_three_failed_verifications_end_it() -> None:
    bench = Bench(MIXED)
    bench.until(TrialPhase.HOLD)
    bench.change = telling(bench, lambda: 0.943)
    bench.until(TrialPhase.REFUSED)
    assert bench.state.refusal is Refusal.FAILED
    assert target_cap(bench.state) is None


def test_a_gang_is_slowed_no_more_than_its_slowest_member_allows() -> None:
    bench = Bench(GENTLE, STEEP, GENTLE)
    bench.until(TrialPhase.HOLD)
    assert 0.02 < slowdown(STEEP, bench.state.held) <= 0.055


def test_one_weak_member_stops_a_gang() -> None:
    bench = Bench(GENTLE, GENTLE)
    bench.gpus[1].dram = bench.gpus[1].pipe = 0.01
    bench.until(TrialPhase.REFUSED)
    assert bench.state.refusal is Refusal.WEAK_SIGNAL


def test_a_burst_of_serving_work_lifts_the_cap_at_once() -> None:
    bench = Bench(MIXED, terms=Terms(latency="serving"))
    bench.change = having(engine=0.5)
    bench.until(TrialPhase.HOLD)
    held, bench.change = bench.state.held, having(engine=0.95)
    bench.tick()
    assert bench.asked[-1] is None
    bench.change = having(engine=0.5)
    bench.run(5 * (CALM + 1))
    assert bench.asked[-1] == held


def test_a_burst_ends_a_reduced_window_of_a_search() -> None:
    bench = Bench(MIXED, terms=Terms(latency="serving"))
    bench.change = having(engine=0.5)
    while target_cap(bench.state) is None:
        bench.tick()
    bench.change = having(engine=0.95)
    bench.tick()
    assert bench.asked[-1] is None
    assert bench.state.phase is TrialPhase.SEARCH


def test_a_foreign_lock_ends_a_hold() -> None:
    bench = Bench(MIXED)
    bench.until(TrialPhase.HOLD)
    bench.change = having(cap=900e6)
    bench.run(5 * IGNORED)
    assert bench.state.refusal is Refusal.NOT_OBEYED
