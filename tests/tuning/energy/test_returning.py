"""Work that ended and comes back: its search begins where a cap held before, and is sooner done."""

import math

import pytest

from gpuwatch.tuning.energy.model import Terms, TrialPhase, TrialState
from gpuwatch.tuning.energy.resumption import known_cap, resumed
from gpuwatch.tuning.energy.search import safe
from tests.bench.tuner.curves import Curve
from tests.bench.tuner.warm import evaluate
from tests.tuning.energy.tuner_bench import GENTLE, LADDER, MIXED, STEEP, TERMS, Bench


def held(curve: Curve, known: float | None = None) -> tuple[Bench, int]:
    """A search until its cap is held, and the windows that took."""
    bench = Bench(curve)
    bench.state = TrialState(known=known)
    bench.until(TrialPhase.HOLD)
    return bench, len(bench.asked)


def first_cap(bench: Bench) -> float:
    return next(cap for cap in bench.asked if cap is not None)


def test_the_search_begins_a_step_above_what_held_and_ends_in_half_of_the_time():
    before, windows = held(MIXED)
    assert before.state.held is not None
    known = known_cap(before.state, LADDER)
    assert known == before.state.held
    again, fewer = held(MIXED, known)
    assert first_cap(again) == safe(known, LADDER) == again.state.held
    assert known < safe(known, LADDER) <= known + 0.02 * LADDER.top
    assert fewer <= windows / 2
    assert again.gpus[0].truth(again.state.held)[0] >= 1 - TERMS.slowdown


def test_the_distance_does_not_grow_with_each_return():
    known = held(MIXED)[0].state.held
    for _ in range(3):
        bench, _ = held(MIXED, known)
        assert known_cap(bench.state, LADDER) == known


def test_a_hold_that_has_lasted_is_proof_enough():
    """A trial below it was made meanwhile: what was known before is no longer what is known best."""
    known = held(MIXED)[0].state.held
    bench, _ = held(MIXED, known)
    bench.run(2000)
    bench.until(TrialPhase.HOLD)
    assert bench.state.known is None
    assert known_cap(bench.state, LADDER) == bench.state.held


def test_other_work_under_the_same_name_is_slower_than_promised_for_a_moment_only():
    """Of work that goes with the clock the known cap costs far more than the bound: two pairs are enough to see it."""
    known = held(GENTLE)[0].state.held
    assert known is not None
    assert STEEP.at(safe(known, LADDER))[0] < 0.9
    bench, _ = held(STEEP, known)
    assert bench.asked.count(safe(known, LADDER)) <= 4
    assert STEEP.at(bench.state.held)[0] >= 1 - TERMS.slowdown - 0.003
    assert known_cap(bench.state, LADDER) == bench.state.held > known


def test_other_work_with_room_is_searched_on():
    known = held(STEEP)[0].state.held
    assert known is not None
    bench, _ = held(GENTLE, known)
    assert bench.state.held is not None
    assert bench.state.held < known
    assert known_cap(bench.state, LADDER) == bench.state.held


@pytest.mark.parametrize("known", [0.0, -1.0, 1.0, 1e30, math.inf, math.nan])
def test_a_cap_that_cannot_be_is_one_of_the_ladder_all_the_same(known):
    """The file may be damaged: the first cap is measured like any other."""
    bench, _ = held(MIXED, known)
    assert first_cap(bench) in LADDER.caps
    assert MIXED.at(bench.state.held)[0] >= 1 - TERMS.slowdown - 0.003


@pytest.mark.parametrize("phase", [each for each in TrialPhase if each is not TrialPhase.HOLD])
def test_only_a_cap_that_is_held_is_known(phase):
    assert known_cap(TrialState(phase=phase, held=LADDER.caps[3]), LADDER) is None


def test_a_restart_keeps_what_was_known():
    known = held(MIXED)[0].state.held
    bench, _ = held(MIXED, known)
    assert resumed(bench.state, LADDER, Terms()).known == known


def test_over_many_workloads_time_is_halved_and_the_bound_is_kept_as_before():
    rows = {row.what: row for row in evaluate(3, 4711)}
    for work in ("applications, counters", "caches, counters", "applications, progress"):
        cold, warm = rows[f"{work}: again, nothing known"], rows[f"{work}: again, cap known"]
        assert warm.hold <= cold.hold / 1.7
        assert warm.share >= cold.share - 0.12
        for which in ("again", "other work"):
            cold, warm = rows[f"{work}: {which}, nothing known"], rows[f"{work}: {which}, cap known"]
            assert warm.worst <= max(cold.worst, 0.06)
            assert warm.over <= cold.over + 1 / warm.plays
            assert warm.beyond <= cold.beyond
