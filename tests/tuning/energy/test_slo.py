"""Late requests from cumulative buckets, and when an SLO holds with its margin."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.consent import Histogram
from gpuwatch.model.slo import Target
from gpuwatch.tuning.energy.slo import FEWEST, MARGIN, Served, holds, quantile, served, together

BOUNDS = (0.1, 0.5, 1.0, 2.0)
TARGET = Target("x_seconds", 0.95, 1.0)


def cumulative(waits: list[float]) -> tuple[float, ...]:
    return (*(float(sum(wait <= bound for wait in waits)) for bound in BOUNDS), float(len(waits)))


def history(*seconds: list[float]) -> Histogram:
    """What came in each second, from second 0 on."""
    totals = itertools.accumulate(seconds, lambda known, new: [*known, *new], initial=[])
    return Histogram(bounds=BOUNDS, samples=tuple((float(at), cumulative(each)) for at, each in enumerate(totals)))


waits = st.lists(st.floats(0, 4, allow_nan=False), min_size=1, max_size=60)


@given(st.lists(waits, min_size=1, max_size=5), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_quantile_is_the_upper_end_of_the_bucket_of_the_true_one(seconds: list[list[float]], share: float) -> None:
    """Never less than the true one, and less than one bucket more."""
    everything = sorted(itertools.chain.from_iterable(seconds))
    true = everything[math.ceil(share * len(everything) - 1e-9) - 1]
    found = quantile(Target("x_seconds", share, 1.0), history(*seconds))
    assert found == next((bound for bound in BOUNDS if bound >= true), math.inf)


@given(st.lists(waits, min_size=2, max_size=6), st.integers(0, 4))
def test_windows_in_a_row_count_each_request_once(seconds: list[list[float]], cut: int) -> None:
    cut, end = min(cut, len(seconds)), len(seconds)
    parts = [served([(TARGET, history(*seconds))], begin, until) for begin, until in ((0.0, cut), (cut, end))]
    (whole,) = together(part for part in parts)
    everything = list(itertools.chain.from_iterable(seconds))
    assert whole == Served(len(everything), sum(wait > 1.0 for wait in everything))


def test_a_bucket_that_is_not_wholly_within_the_bound_counts_as_late() -> None:
    seen = history([0.05, 0.6, 0.6, 3.0])
    assert served([(Target("x_seconds", 0.95, 0.9), seen)], 0.0, 1.0) == (Served(4.0, 3.0),)
    assert served([(Target("x_seconds", 0.95, 0.01), seen)], 0.0, 1.0) == (Served(4.0, 4.0),)
    assert served([(Target("x_seconds", 0.95, 60.0), seen)], 0.0, 1.0) == (Served(4.0, 1.0),)


def read_at(*seconds: float) -> Histogram:
    """100 requests a second, of which all after second 101 are late; the page was read at these seconds."""
    return Histogram(bounds=(1.0,), samples=tuple((at, (100 * min(at - 90, 11), 100 * (at - 90))) for at in seconds))


def test_a_page_that_stops_while_requests_are_late_does_not_count_for_the_window() -> None:
    assert served([(TARGET, read_at(99.5, 101.0))], 100.0, 105.0) == (None,)
    assert served([(TARGET, read_at(99.5, 101.0, 104.0))], 100.0, 105.0) == (Served(450.0, 300.0),)


def test_requests_of_long_before_do_not_count_for_the_window() -> None:
    assert served([(TARGET, read_at(92.0, 105.0))], 100.0, 105.0) == (None,)
    assert served([(TARGET, read_at(99.0, 105.0))], 100.0, 105.0) == (Served(600.0, 400.0),)


LIES = {
    "none": None,
    "empty": Histogram(),
    "one sample": Histogram(bounds=(1.0,), samples=((0.0, (1.0, 1.0)),)),
    "set back": Histogram(bounds=(1.0,), samples=((0.0, (5.0, 9.0)), (1.0, (6.0, 8.0)))),
    "one bucket set back": Histogram(bounds=(1.0,), samples=((0.0, (5.0, 9.0)), (1.0, (4.0, 12.0)))),
    "set back in between": Histogram(bounds=(1.0,), samples=((0.0, (5.0, 9.0)), (0.5, (0.0, 0.0)), (1.0, (9.0, 99.0)))),
    "not cumulative": Histogram(bounds=(1.0,), samples=((0.0, (5.0, 9.0)), (1.0, (15.0, 10.0)))),
    "other buckets": Histogram(bounds=(1.0,), samples=((0.0, (5.0, 9.0)), (1.0, (5.0, 9.0, 9.0)))),
    "infinite": Histogram(bounds=(1.0,), samples=((0.0, (5.0, 9.0)), (1.0, (5.0, math.inf)))),
    "not a number": Histogram(bounds=(1.0,), samples=((0.0, (5.0, 9.0)), (1.0, (math.nan, math.nan)))),
    "nothing new": Histogram(bounds=(1.0,), samples=((-9.0, (1.0, 1.0)), (-8.0, (1.0, 1.0)))),
}


@pytest.mark.parametrize("lie", LIES)
def test_counts_that_cannot_be_are_no_requests(lie: str) -> None:
    assert served([(TARGET, LIES[lie])], 0.0, 1.0) == (None,)


@pytest.mark.parametrize(
    ("share", "requests", "late", "expected"),
    [
        (0.95, 39, 0, None),  # one in forty may be late: fewer say nothing
        (0.95, 40, 1, True),
        (0.95, 39, 1, None),
        (0.95, 2, 2, False),  # more than the margin of any forty
        (0.95, 80, 2, True),
        (0.95, 80, 3, False),
        (0.99, 199, 0, None),
        (0.99, 200, 1, True),
        (0.99, 200, 2, False),
        (0.50, 19, 0, None),
        (0.50, 20, 5, True),
        (0.50, 20, 6, False),
        (0.95, 0, 0, None),
    ],
)
def test_an_slo_holds_while_half_of_what_it_allows_is_late(
    share: float, requests: int, late: int, expected: bool | None
) -> None:
    assert (FEWEST, MARGIN) == (20, 0.5)
    assert holds([Target("x", share, 1.0)], [Served(requests, late)]) is expected


def test_every_target_has_to_hold() -> None:
    good, bad, few = Served(1000, 0), Served(1000, 400), Served(3, 0)
    assert holds([TARGET, TARGET], [good, good]) is True
    assert holds([TARGET, TARGET], [good, few]) is None
    assert holds([TARGET, TARGET], [few, bad]) is False
