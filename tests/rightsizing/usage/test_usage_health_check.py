"""A server that only answers its health checks is at rest; one that gets a request now and then is not."""

from collections import Counter
from collections.abc import Iterable
from itertools import accumulate
from random import Random

import pytest

from gpuwatch.config import RightsizingConfig
from gpuwatch.rightsizing.model.usage import DeviceAllocation
from gpuwatch.rightsizing.usage.allocation import activity
from gpuwatch.rightsizing.usage.ledger import UsageLedger
from tests.rightsizing.usage.usage_spans import BEGIN, window

SPAN = 300.0
REQUEST = 0.2
"""Seconds of a short kernel; of ten of them the share is below 1 % of SPAN."""


@pytest.mark.parametrize("every", [10.0, 30.0, 60.0])
def test_a_short_check_is_no_work(every: float) -> None:
    check = 0.09
    assert activity(window(span=300.0, busy=check / every, busy_high=check / min(every, 10.0))) is False


def test_a_request_now_and_then_is_work() -> None:
    assert activity(window(span=300.0, busy=0.006, busy_high=0.2)) is True


def test_little_all_the_time_is_work() -> None:
    assert activity(window(span=300.0, busy=0.012, busy_high=0.012)) is True


def test_what_nobody_saw_is_neither() -> None:
    assert activity(window(span=300.0, busy_high=0.9)) is None


def has_requests(counts: Iterable[int], span: float = SPAN) -> DeviceAllocation:
    """A hold with so many short kernels in each window."""
    ledger = UsageLedger(RightsizingConfig())
    end = BEGIN
    for count in counts:
        high = REQUEST / 10 if count else 0.0
        ledger.add(window(end, span, busy=count * REQUEST / span, busy_high=high, processes=1))
        end += span
    (summary,) = ledger.summaries(end)
    assert summary.holds[0].idle_since == BEGIN
    return summary.holds[0]


def by_chance(mean: float, windows: int) -> list[int]:
    """How many come in each window when they come by chance, `mean` of them."""
    rng = Random(7)
    times = accumulate(rng.expovariate(mean) for _ in range(int(2 * mean * windows)))
    counts = Counter(int(time) for time in times)
    return [counts[number] for number in range(windows)]


@pytest.mark.parametrize("counts", [(0,) * 200, (10,) * 200, (3, 2) * 100], ids=["rest", "every 30 s", "every 120 s"])
def test_what_comes_as_a_clock_does_is_a_check(counts: tuple[int, ...]) -> None:
    assert not has_requests(counts).has_requests


def test_checks_that_come_in_each_other_minute_are_checks_too() -> None:
    assert not has_requests((1, 0) * 300, span=60.0).has_requests


@pytest.mark.parametrize("mean", [0.3, 1.0, 4.0])
def test_what_comes_by_chance_is_requests(mean: float) -> None:
    assert has_requests(by_chance(mean, 400)).has_requests


def test_once_nobody_asks_any_more_it_is_at_rest() -> None:
    counts = by_chance(1.0, 400)

    assert not has_requests([*counts, *(0 for _ in range(2 * 64 * 4))]).has_requests


def test_a_few_windows_show_nothing() -> None:
    assert not has_requests((1, 0, 4, 0, 0, 2)).has_requests
