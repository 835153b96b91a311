"""What the energy tuner cannot trust lifts the cap: windows that cannot be, states of other versions, closed gates."""

import math
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.tuning.energy.hold import BURST, CALM, HOLD_SECONDS
from gpuwatch.tuning.energy.model import (
    Ladder,
    Probe,
    Refusal,
    Terms,
    TrialPhase,
    TrialState,
    TrialWindow,
    WindowPair,
    clocks,
    limits,
)
from gpuwatch.tuning.energy.resumption import released, resumed
from gpuwatch.tuning.energy.search import PROBES
from gpuwatch.tuning.energy.tuner import IGNORED, LONGEST_REST, step, target_cap
from tests.tuning.energy.tuner_bench import LADDER, MIXED, TERMS, Bench, having

ONE_CAP = LADDER.caps[10]
KEEPS = tuple(WindowPair(speed=(math.log(0.97), math.log(0.97)), energy=-0.1) for _ in range(8))
HELD = TrialState(phase=TrialPhase.HOLD, held=ONE_CAP, probes=(Probe(cap=ONE_CAP, pairs=KEEPS, good=True),))

BOTH = (TERMS, Terms(latency="serving"))

NONSENSE = {
    "joules that fell": having(joules=-4e5),
    "no joules": having(joules=0.0),
    "joules unknown": having(joules=math.nan),
    "no seconds": having(seconds=0.0),
    "seconds unknown": having(seconds=math.nan),
    "activity unknown": having(dram=math.nan),
    "activity below zero": having(pipe=-0.1),
    "activity without end": having(dram=math.inf),
    "clock below zero": having(clock=-1.0),
    "no signal": having(dram=None, pipe=None),
    "no reading at all": having(dram=None, pipe=None, engine=None),
}


@pytest.mark.parametrize("change", NONSENSE.values(), ids=NONSENSE.keys())
def test_a_hold_whose_windows_cannot_be_ends(change: Callable[[TrialWindow], TrialWindow]) -> None:
    bench = Bench(MIXED)
    bench.until(TrialPhase.HOLD)
    bench.change = change
    bench.run(5 * IGNORED)
    assert bench.state.refusal is Refusal.UNREADABLE
    assert bench.asked[-1] is None


@pytest.mark.parametrize("change", NONSENSE.values(), ids=NONSENSE.keys())
def test_a_reduced_window_that_cannot_be_ends_at_once_and_counts_for_nothing(
    change: Callable[[TrialWindow], TrialWindow],
) -> None:
    bench = Bench(MIXED)
    while target_cap(bench.state) is None:
        bench.tick()
    bench.change = change
    bench.tick()
    assert bench.asked[-1] is None
    assert bench.state.probe is not None
    assert bench.state.probe.pairs == ()


def test_one_window_that_cannot_be_is_no_reason_to_write() -> None:
    bench = Bench(MIXED)
    bench.until(TrialPhase.HOLD)
    held, bench.change = bench.state.held, having(joules=-4e5)
    bench.tick()
    bench.change = having()
    bench.run(60)
    assert (bench.state.phase, bench.asked[-1]) == (TrialPhase.HOLD, held)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1e9])
def test_no_window_puts_off_a_verification(seconds: float) -> None:
    bench = Bench(MIXED)
    bench.until(TrialPhase.HOLD)
    bench.change = having(seconds=seconds)
    bench.tick()
    bench.change = having()
    assert bench.state.phase is TrialPhase.HOLD
    bench.until(TrialPhase.VERIFY, seconds=HOLD_SECONDS + 15)


def test_where_a_burst_cannot_be_seen_there_is_no_cap() -> None:
    bench = Bench(MIXED, terms=Terms(latency="serving"))
    bench.change = having(engine=BURST / 2)
    bench.until(TrialPhase.HOLD)
    bench.change = having(engine=None)
    bench.tick()
    assert bench.asked[-1] is None
    bench.run(5 * CALM)
    assert bench.state.refusal is Refusal.UNREADABLE


@pytest.mark.parametrize(
    "ladder", [clocks((), top=1410e6), limits(top=100.0, lowest=110.0)], ids=lambda each: each.knob
)
def test_a_knob_that_has_nothing_to_turn_is_refused(ladder: Ladder) -> None:
    bench = Bench(MIXED, ladder=ladder)
    bench.until(TrialPhase.REFUSED)
    assert bench.state.refusal is Refusal.NO_STEP
    assert set(bench.asked) == {None}


def test_a_ladder_of_few_steps_is_never_climbed_to_its_top() -> None:
    bench = Bench(MIXED, ladder=clocks((705e6, 1410e6), top=1410e6))
    bench.run(1800)
    assert set(bench.asked) == {None, 705e6}


def test_released_is_lifted_and_rests() -> None:
    bench = Bench(MIXED)
    bench.until(TrialPhase.HOLD)
    after = released(bench.state)
    assert target_cap(after) is None
    assert (after.phase, after.refusal) == (TrialPhase.REFUSED, Refusal.RELEASED)


def test_a_restart_verifies_what_was_held_before_it_is_trusted() -> None:
    bench = Bench(MIXED)
    bench.until(TrialPhase.HOLD)
    held = bench.state.held
    bench.state = resumed(msgspec.json.decode(msgspec.json.encode(bench.state), type=TrialState), LADDER, TERMS)
    assert target_cap(bench.state) is None
    assert bench.state.phase is TrialPhase.VERIFY
    bench.until(TrialPhase.HOLD)
    assert bench.state.held == held


def test_a_restart_in_a_search_begins_again() -> None:
    bench = Bench(MIXED)
    bench.until(TrialPhase.SEARCH)
    bench.run(60)
    assert resumed(bench.state, LADDER, TERMS) == TrialState()


def test_released_again_and_again_rests_no_longer() -> None:
    once = released(HELD)
    assert released(released(once)) == once


@pytest.mark.parametrize(
    "state",
    [
        TrialState(phase=TrialPhase.HOLD, held=ONE_CAP),
        TrialState(phase=TrialPhase.HOLD, held=ONE_CAP, probes=(Probe(cap=ONE_CAP, good=True),)),
        msgspec.structs.replace(HELD, probes=(Probe(cap=ONE_CAP, pairs=KEEPS, good=False),)),
        msgspec.structs.replace(HELD, held=ONE_CAP - 1.0),
        msgspec.structs.replace(
            HELD, probes=(Probe(cap=ONE_CAP, pairs=(*KEEPS, WindowPair(speed=(), energy=0.0)), good=True),)
        ),
        *(
            TrialState(phase=TrialPhase.HOLD, held=cap, probes=(Probe(cap=cap, pairs=KEEPS, good=True),))
            for cap in (0.0, -ONE_CAP, math.nan, math.inf, 1.0, LADDER.floor - 15e6, LADDER.top, LADDER.top + 15e6)
        ),
    ],
)
def test_a_held_cap_that_does_not_fit_is_forgotten(state: TrialState) -> None:
    assert resumed(state, LADDER, TERMS) == TrialState()


def test_a_held_cap_is_forgotten_when_less_is_promised_or_the_gang_is_another() -> None:
    assert resumed(HELD, LADDER, TERMS).held == ONE_CAP
    assert resumed(HELD, LADDER, Terms(slowdown=0.02)) == TrialState()
    assert resumed(HELD, LADDER, TERMS, members=2) == TrialState()
    assert resumed(HELD, clocks(LADDER.steps, top=LADDER.top, min_fraction=0.95), TERMS) == TrialState()


numbers = st.floats() | st.integers(-(10**6), 10**6).map(float)
caps = st.none() | st.sampled_from(LADDER.steps) | numbers
windows = st.builds(
    TrialWindow,
    cap=st.none(),
    seconds=st.floats(0.5, 30.0) | numbers,
    dram=st.none() | st.floats(0.0, 1.0) | numbers,
    pipe=st.none() | st.floats(0.0, 1.0) | numbers,
    engine=st.none() | st.floats(0.0, 1.0) | numbers,
    joules=st.floats(0.0, 1e5) | numbers,
    clock=st.none() | st.floats(2e8, 2e9) | numbers,
    settled=st.booleans(),
)
pairs = st.builds(WindowPair, speed=st.lists(st.none() | numbers, max_size=4).map(tuple), energy=st.none() | numbers)
some_pairs = st.just(KEEPS) | st.lists(pairs, max_size=4).map(tuple)
probes = st.builds(
    Probe, cap=caps.filter(lambda cap: cap is not None), pairs=some_pairs, good=st.none() | st.booleans()
)
states = st.builds(
    TrialState,
    phase=st.sampled_from(TrialPhase),
    seconds=numbers,
    probe=st.none() | probes,
    probes=st.lists(probes, max_size=3).map(tuple),
    left=st.integers(),
    held=caps,
    odd=st.integers(),
    holds=st.integers(),
    failures=st.integers(),
    rest=numbers,
    ignored=st.integers(),
    lifted=st.integers(),
)


@settings(max_examples=60)
@given(st.just(TrialState()) | states, st.lists(st.tuples(windows, st.booleans()), max_size=120), st.sampled_from(BOTH))
def test_whatever_it_sees_it_asks_for_nothing_it_may_not(
    written: TrialState, seen: list[tuple[TrialWindow, bool]], terms: Terms
) -> None:
    state, cap = resumed(written, LADDER, terms), None
    assert target_cap(state) is None
    assert 0 <= state.left <= PROBES
    for window, obeyed in seen:
        gang = (msgspec.structs.replace(window, cap=cap if obeyed else None),)
        state = step(state, gang, LADDER, terms)
        cap = target_cap(state)
        assert cap is None or cap in LADDER.caps
        assert math.isfinite(state.seconds)


@given(states)
def test_a_state_survives_being_written_down(written: TrialState) -> None:
    state = resumed(written, LADDER, TERMS)
    assert msgspec.json.decode(msgspec.json.encode(state), type=TrialState) == state
    assert 0 <= state.rest <= LONGEST_REST
