"""How much memory a workload must be given: never less than it had, and more where it grows or varies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.work import DayPeak
from gpuwatch.rightsizing.usage.memory_demand import LEAST_MARGIN, TREND_DAYS, UNKNOWN_GROWTH, is_full, memory_demand
from tests.rightsizing.findings.rightsizing_cases import DAY, GIB, peaks

WEEK = 7 * DAY


def test_flat_memory_needs_its_margin_alone() -> None:
    need = memory_demand(peaks(*[20] * 8), 0.05, WEEK)

    assert need is not None
    assert (need.needed, need.growth, need.spread, need.sure) == (21 * GIB, 0, 0, True)


def test_little_memory_has_the_least_margin() -> None:
    need = memory_demand(peaks(*[2] * 8), 0.05, WEEK)

    assert need is not None
    assert need.needed == 2 * GIB + LEAST_MARGIN


def test_growth_continues_until_the_advice_expires() -> None:
    need = memory_demand(peaks(*range(10, 18)), 0.05, WEEK)

    assert need is not None
    assert need.growth == 7 * GIB
    assert need.needed == 17 * GIB + int(0.05 * 17 * GIB) + 7 * GIB


def test_one_odd_day_is_no_trend_but_may_come_again_on_top() -> None:
    need = memory_demand(peaks(10, 10, 10, 14, 10, 10, 10, 10), 0.05, WEEK)

    assert need is not None
    assert (need.growth, need.spread) == (0, 4 * GIB)
    assert need.needed == 18 * GIB


def test_a_day_that_is_not_over_does_not_hide_growth() -> None:
    need = memory_demand(peaks(10, 11, 12, 13, 14, 15, 16, 3), 0.05, WEEK)

    assert need is not None
    assert need.per_day == GIB


def test_too_few_days_show_no_trend() -> None:
    need = memory_demand(peaks(*[8] * (TREND_DAYS - 1)), 0.05, WEEK)

    assert need is not None
    assert not need.sure
    assert need.growth == int(UNKNOWN_GROWTH * 8 * GIB)


def test_shrinking_is_not_trusted() -> None:
    need = memory_demand(peaks(20, 18, 16, 14, 12, 10), 0.05, WEEK)

    assert need is not None
    assert need.growth == 0
    assert need.needed > 21 * GIB - 1


def test_nothing_known_needs_nothing_reported() -> None:
    assert memory_demand((), 0.05, WEEK) is None


@pytest.mark.parametrize(("peak", "total", "expected"), [(78, 80, True), (70, 80, False), (1, None, True)])
def test_who_had_all_may_have_wanted_more(peak: int, total: int | None, expected: bool) -> None:
    assert is_full(peak, total) is expected


@given(
    st.lists(st.integers(0, 200 * GIB), min_size=1, max_size=8),
    st.floats(0, 2),
    st.floats(0, 60 * DAY),
    st.sets(st.integers(0, 60), min_size=8, max_size=8),
)
def test_it_is_never_less_than_the_highest_peak_with_its_margin(
    sizes: list[int], margin: float, horizon: float, days: set[int]
) -> None:
    known = [DayPeak(day=day, bytes=size) for day, size in zip(sorted(days), sizes, strict=False)]
    need = memory_demand(known, margin, horizon)

    assert need is not None
    assert need.needed >= max(sizes) + max(int(margin * max(sizes)), LEAST_MARGIN)
