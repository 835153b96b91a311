"""A lower bound is below the truth as often as it says, also where the noise of one window lasts into the next ones."""

import math
import random
import statistics
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.tuning.energy.estimate import (
    disagree,
    energy,
    estimate,
    slowest,
    speeds,
    spread,
    student,
    weak_signals_allow,
)
from gpuwatch.tuning.energy.model import TrialWindow, WindowPair, clocks, pair

LADDER = clocks((1.0e9, 1.2e9, 1.4e9), top=1.4e9)


def window(
    dram: float | None, cap: float | None = None, pipe: float | None = None, watts: float = 300.0
) -> TrialWindow:
    return TrialWindow(cap=cap, seconds=5.0, dram=dram, pipe=pipe, engine=1.0, joules=5 * watts)


def made(*speeds: tuple[float | None, float | None]) -> list[WindowPair]:
    """Pairs of one GPU, its signals given as ratios."""
    logs = [tuple(None if each is None else math.log(each) for each in both) for both in speeds]
    return [WindowPair(speed=both, energy=-0.1) for both in logs]


def noise(chance: random.Random, rho: float, sigma: float) -> Iterator[float]:
    value = chance.gauss(0, sigma)
    while True:
        yield value
        value = rho * value + math.sqrt(1 - rho * rho) * chance.gauss(0, sigma)


@pytest.mark.parametrize(
    ("freedom", "quantile"), [(3, 2.353), (5, 2.015), (7, 1.895), (15, 1.753), (31, 1.696), (63, 1.669)]
)
def test_quantiles_are_students(freedom: int, quantile: float) -> None:
    assert student(freedom) == pytest.approx(quantile, rel=0.01)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=20))
def test_the_spread_is_the_standard_deviation_of_a_sample(values: list[float]) -> None:
    assert spread(values) == pytest.approx(statistics.stdev(values), abs=1e-9)


@pytest.mark.parametrize(
    ("rho", "pairs"),
    [
        *[(rho, 8) for rho in (0.0, 0.3, 0.6, 0.8)],
        *[pytest.param(rho, pairs, marks=pytest.mark.slow) for rho in (0.0, 0.3, 0.6) for pairs in (16, 48)],
        *[(0.8, pairs) for pairs in (16, 48)],
    ],
)
def test_the_lower_bound_holds_nineteen_times_in_twenty(rho: float, pairs: int) -> None:
    chance, truth, below = random.Random(f"{rho} {pairs}"), 0.95, 0
    for _ in range(600):
        source = noise(chance, rho, 0.02)
        windows = [
            window(0.5 * (truth if number % 2 else 1.0) * math.exp(next(source)), 1.2e9 if number % 2 else None)
            for number in range(2 * pairs + 1)
        ]
        found = [pair(*((each,) for each in windows[at : at + 3]), LADDER) for at in range(0, 2 * pairs, 2)]
        speed = slowest(found)
        assert speed is not None
        below += speed.lower <= truth
    assert below / 600 >= 0.93  # 0.95 less two standard errors of 600 trials


def test_drift_cancels() -> None:
    windows = [window(0.5 * (0.9 if number % 2 else 1.0) * math.exp(0.01 * number)) for number in range(21)]
    found = [pair(*((each,) for each in windows[at : at + 3]), LADDER) for at in range(0, 20, 2)]
    speed = slowest(found)
    assert speed is not None
    assert speed.ratio == pytest.approx(0.9)


def test_what_lasts_longer_than_a_pair_widens_the_error() -> None:
    values = [0.01 if number // 8 % 2 else -0.01 for number in range(64)]
    assert estimate(values).error > 2 * estimate([0.01 if number % 2 else -0.01 for number in range(64)]).error


def test_pipe_activity_counts_with_its_clock() -> None:
    both = (window(0.4, pipe=0.3), window(0.4, 1.2e9, 0.3 * 1.4 / 1.2), window(0.4, pipe=0.3))
    found = pair(*((each,) for each in both), LADDER)
    assert found.speed == pytest.approx((0.0, 0.0))


def test_energy_is_that_for_a_unit_of_work() -> None:
    three = (window(0.4, watts=400), window(0.36, 1.2e9, watts=270), window(0.4, watts=400))
    found = pair(*((each,) for each in three), LADDER)
    assert found.energy is not None
    assert math.exp(found.energy) == pytest.approx(270 / 400 / 0.9)


def test_the_signal_that_promises_least_wins() -> None:
    pairs = made((0.97, 0.95), (0.971, 0.951), (0.969, 0.949))
    assert slowest(pairs) == speeds(pairs)[1]


@pytest.mark.parametrize(
    "pairs", [made((None, None), (None, None)), [WindowPair(speed=(), energy=None), WindowPair(speed=(), energy=None)]]
)
def test_without_a_signal_there_is_no_estimate(pairs: list[WindowPair]) -> None:
    assert slowest(pairs) is None


def test_energy_needs_the_work_of_every_pair() -> None:
    assert energy([WindowPair(speed=(0.0, None), energy=-0.1), WindowPair(speed=(None, None), energy=None)]) is None


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        (made((0.97, 0.93), (0.971, 0.931), (0.969, 0.929)), True),
        (made((0.97, 0.96), (0.971, 0.961), (0.969, 0.959)), False),
        (made((0.97, None), (0.5, None), (0.97, None)), False),
        (made((0.97, 0.90), (0.90, 0.97), (0.96, 0.91)), False),
    ],
    ids=["apart", "close", "alone", "noisy"],
)
def test_signals_disagree_when_they_differ_by_more_than_their_error(pairs: list[WindowPair], expected: bool) -> None:
    assert disagree(pairs) is expected


def test_a_weak_signal_does_not_vouch_but_vetoes_by_its_own_error() -> None:
    three = (window(0.04, pipe=0.3), window(0.036, 1.2e9, 0.3), window(0.04, pipe=0.3))
    found = pair(*((each,) for each in three), LADDER)
    assert found.weak == {0}
    assert speeds([found, found]) == [estimate([found.speed[1] or 0.0] * 2)]
    assert weak_signals_allow([found, found], 0.05) is False
    noisy = [replace(found, speed=(value, found.speed[1])) for value in (-0.4, 0.3, -0.3, 0.2)]
    assert weak_signals_allow(noisy, 0.05) is None
    assert weak_signals_allow([replace(found, speed=(0.0, found.speed[1]))] * 2, 0.05) is True


def test_no_gpu_of_a_gang_decides_for_another() -> None:
    gentle, steep = math.log(0.99), math.log(0.90)
    known = WindowPair(speed=(gentle, None, steep, None), energy=-0.1)
    assert slowest([known, known]) == speeds([known, known])[1]
    assert slowest([known, WindowPair(speed=(gentle, None, None, None), energy=-0.1)]) is None
