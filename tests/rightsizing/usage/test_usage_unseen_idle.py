"""A monitor that is away for an hour must not make a GPU look used that has been idle for days."""

from collections.abc import Iterator
from itertools import chain

import pytest

from gpuwatch.config import RightsizingConfig
from gpuwatch.rightsizing.model.usage import DeviceAllocation, UsageWindow
from gpuwatch.rightsizing.usage.ledger import UsageLedger
from tests.rightsizing.usage.usage_spans import BEGIN, HOUR, at_rest, at_work


def held(*spans: Iterator[UsageWindow]) -> DeviceAllocation:
    """The one hold of all these windows."""
    ledger = UsageLedger(RightsizingConfig())
    last = BEGIN
    for window in chain(*spans):
        ledger.add(window)
        last = window.at + window.span
    (summary,) = ledger.summaries(last)
    (hold,) = summary.holds
    return hold


def idle_hours(away: float) -> float:
    """After work, 50 hours at rest, `away` hours that nobody saw, and two more at rest."""
    begin = BEGIN + HOUR
    hold = held(at_work(BEGIN, HOUR), at_rest(begin, 50 * HOUR), at_rest(begin + (50 + away) * HOUR, 2 * HOUR))
    assert hold.idle_since is not None
    return (hold.last - hold.idle_since) / HOUR


@pytest.mark.parametrize("away", [0.1, 1.0, 5.0, 20.0])
def test_a_gap_much_shorter_than_the_idle_time_does_not_end_it(away: float) -> None:
    assert idle_hours(away) == pytest.approx(52.0, abs=0.2)


@pytest.mark.parametrize(("after", "counted"), [(2, 2), (6, 16)])
def test_a_longer_one_does_until_the_time_before_and_after_it_is_twice_as_long(after: int, counted: int) -> None:
    hold = held(at_work(BEGIN, HOUR), at_rest(BEGIN + HOUR, 10 * HOUR), at_rest(BEGIN + 19 * HOUR, after * HOUR))

    assert hold.idle_since is not None
    assert hold.last - hold.idle_since == pytest.approx(counted * HOUR)


def test_many_gaps_count_together() -> None:
    hold = held(at_work(BEGIN, HOUR), *(at_rest(BEGIN + hour * HOUR, HOUR) for hour in range(1, 21, 3)))

    assert hold.idle_since == BEGIN + 19 * HOUR


def test_who_worked_before_a_gap_is_idle_since_its_end_at_most() -> None:
    hold = held(at_work(BEGIN, HOUR), at_rest(BEGIN + 2 * HOUR, HOUR))
    assert hold.idle_since == BEGIN + 2 * HOUR
