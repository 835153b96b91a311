"""The search asks only for caps it may ask for, and accepts one only on what its own windows say."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.tuning.energy.model import Ladder, Probe, Terms, TrialWindow, WindowPair, clocks, limits
from gpuwatch.tuning.energy.search import (
    JUDGED_AT,
    best,
    first,
    following,
    is_far_over,
    judge,
    reached,
    saved,
    target_time,
)

TERMS = Terms(slowdown=0.05)
LADDER = clocks((15e6 * step for step in range(20, 95)), top=1410e6)


def pairs(count: int, speed: float, energy: float, noise: float = 0.002, pipe: float | None = None) -> list[WindowPair]:
    """So many pairs around a speed."""
    signs = [noise if number % 2 else -noise for number in range(count)]
    other = None if pipe is None else math.log(pipe)
    return [
        WindowPair(
            speed=(math.log(speed) + sign, None if other is None else other + sign), energy=math.log(energy) + sign
        )
        for sign in signs
    ]


def probe(cap: float, speed: float, energy: float, good: bool) -> Probe:
    return Probe(cap=cap, pairs=tuple(pairs(8, speed, energy)), good=good)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (pairs(8, 0.97, 0.9), True),
        (pairs(8, 0.94, 0.9), False),
        (pairs(8, 0.953, 0.9, noise=0.01), None),
        (pairs(JUDGED_AT[-1], 0.951, 0.9, noise=0.02), False),
        (pairs(8, 0.97, 1.0), False),
        (pairs(7, 0.97, 0.9), None),
        (pairs(2, 0.80, 0.9), False),
        (pairs(3, 0.92, 0.9), False),
        (pairs(8, 0.97, 0.9, pipe=0.96), True),
        (pairs(8, 0.97, 0.9, pipe=0.90), False),
        (pairs(8, 0.99, 0.9, pipe=0.965), False),
        ([replace(each, weak=frozenset({1})) for each in pairs(8, 0.957, 0.9, pipe=0.948)], False),
        ([replace(each, weak=frozenset({1})) for each in pairs(8, 0.957, 0.9, pipe=0.957)], True),
        (pairs(1, 0.5, 0.9), None),
        ([WindowPair(speed=(None, None), energy=None)] * 2, False),
    ],
    ids=[
        "inside",
        "over",
        "not known yet",
        "never known",
        "saves nothing",
        "no look yet",
        "hopeless at once",
        "hopeless soon",
        "signals agree",
        "the slower signal is over",
        "signals disagree",
        "a weak signal vetoes",
        "a weak signal agrees",
        "one pair says nothing",
        "no signal",
    ],
)
def test_a_probe_is_judged(found: list[WindowPair], expected: bool | None) -> None:
    assert judge(found, TERMS, 0.0) is expected


@pytest.mark.parametrize(("count", "expected"), [(JUDGED_AT[1], None), (JUDGED_AT[-1], False)])
def test_a_weak_signal_that_does_not_settle_is_waited_for_until_the_last_sample(
    count: int, expected: bool | None
) -> None:
    found = [
        replace(each, speed=(each.speed[0], -0.4 if number % 2 else 0.3), weak=frozenset({1}))
        for number, each in enumerate(pairs(count, 0.97, 0.9))
    ]
    assert judge(found, TERMS, 0.0) is expected


def test_a_cap_has_to_beat_the_best_so_far() -> None:
    assert judge(pairs(8, 0.97, 0.9), TERMS, math.log(0.9)) is False
    assert judge(pairs(8, 0.97, 0.9), TERMS, math.log(0.92)) is True


def test_new_work_in_the_middle_of_a_probe_ends_it() -> None:
    assert is_far_over([*pairs(20, 0.99, 0.9), *pairs(2, 0.8, 0.9)], TERMS)


@pytest.mark.parametrize(
    ("ladder", "latency", "watts", "share"),
    [
        (LADDER, "batch", 300.0, 0.80),
        (LADDER, "serving", 300.0, 0.90),
        (limits(top=300.0, lowest=100.0), "batch", 300.0, 0.80),
        (limits(top=300.0, lowest=100.0), "batch", 200.0, 0.80 * 220 / 300),
    ],
)
def test_where_it_begins(ladder: Ladder, latency: str, watts: float, share: float) -> None:
    cap = first(ladder, Terms(latency=latency), watts)  # type: ignore[arg-type]
    assert share <= cap / ladder.top < share + 0.02
    assert cap in ladder.steps


@pytest.mark.parametrize("clock_bound", [0.1, 0.3, 0.6, 1.0])
def test_two_probes_show_where_the_bound_is(clock_bound: float) -> None:
    def speed(cap: float) -> float:
        return 1 / (1 - clock_bound + clock_bound * LADDER.top / cap)

    cap = first(LADDER, TERMS, 300.0)
    found = [probe(cap, speed(cap), 0.9, speed(cap) >= 0.95)]
    for _ in range(2):
        after = following(found, LADDER, TERMS)
        if after is None:
            break
        found.append(probe(after, speed(after), 0.9 - 0.1 * len(found), speed(after) >= 0.95))
    chosen = best(found)
    assert chosen is not None
    assert 0.95 <= speed(chosen.cap) < 0.968 or chosen.cap == LADDER.floor


@given(
    st.lists(
        st.tuples(st.sampled_from(LADDER.steps[1:]), st.floats(0.3, 1.1), st.floats(0.5, 1.2), st.booleans()),
        max_size=6,
        unique_by=lambda each: each[0],
    )
)
def test_the_next_cap_is_one_that_may_be_tried(found: list[tuple[float, float, float, bool]]) -> None:
    probes = [probe(*each) for each in found]
    cap = following(probes, LADDER, TERMS)
    if cap is None:
        return
    assert cap in LADDER.steps[1:]
    chosen = best(probes)
    assert chosen is None or cap < chosen.cap
    good = chosen.cap if chosen is not None else LADDER.top
    assert all(cap > each.cap for each in probes if not each.good and each.cap < good)


def test_noise_moves_the_aim_inside_the_bound() -> None:
    quiet = Probe(cap=1.2e9, pairs=tuple(pairs(8, 0.97, 0.9, noise=0.002)))
    loud = Probe(cap=1.2e9, pairs=tuple(pairs(8, 0.97, 0.9, noise=0.03)))
    assert 1 < target_time([loud], TERMS) < target_time([quiet], TERMS) < 1 / 0.95


def test_the_best_is_the_good_one_that_saves_most() -> None:
    found = [probe(1.2e9, 0.97, 0.9, True), probe(1.1e9, 0.96, 0.85, True), probe(1.0e9, 0.94, 0.8, False)]
    assert best(found) is found[1]
    assert math.exp(saved(found[1])) == pytest.approx(0.85)
    assert best(found[2:]) is None


@given(st.floats(0.3, 1.0), st.floats(100.0, 400.0))
def test_no_ladder_goes_below_its_fraction(fraction: float, top: float) -> None:
    assert clocks((15e6 * step for step in range(1, 95)), top=1410e6, min_fraction=fraction).floor >= fraction * 1410e6
    watts = limits(top=top, lowest=90.0, min_fraction=fraction)
    assert watts.floor >= max(90.0, fraction * top) - 1e-6
    assert watts.steps[0] == top
    assert list(watts.steps) == sorted(set(watts.steps), reverse=True)


def full(*hertz: float | None) -> tuple[TrialWindow, ...]:
    """A window of each GPU of a gang without a cap, and the clock it ran at."""
    return tuple(
        TrialWindow(cap=None, seconds=5.0, dram=0.4, pipe=0.3, engine=1.0, joules=2000.0, clock=clock)
        for clock in hertz
    )


def test_where_a_power_limit_holds_gpus_the_ladder_begins_at_the_fastest_of_them() -> None:
    found = reached(LADDER, (full(1190e6, 1000e6), full(1210e6, 1000e6)))
    assert found.steps == (1200e6, *(step for step in LADDER.steps if step < 1200e6))


@pytest.mark.parametrize(
    "windows",
    [(full(1400e6),), (full(1000e6, None), full(1000e6, None)), (full(LADDER.floor),), (full(100e6),)],
    ids=["boost", "not known", "at the floor", "below it"],
)
def test_the_ladder_is_the_gpus_own_where_nothing_is_gained_by_another(
    windows: tuple[tuple[TrialWindow, ...], ...],
) -> None:
    assert reached(LADDER, windows) == LADDER


def test_a_power_limit_is_tried_from_the_draw_whatever_the_clock() -> None:
    watts = limits(top=700.0, lowest=200.0)
    assert reached(watts, (full(1000e6),)) == watts
