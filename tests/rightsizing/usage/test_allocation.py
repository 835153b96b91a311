"""Holds: what is idle and since when, which pauses are known, and where one hold ends and the next begins."""

from collections.abc import Iterable

import pytest

from gpuwatch.rightsizing.model.usage import DeviceAllocation, UsageWindow
from gpuwatch.rightsizing.usage.allocation import activity
from gpuwatch.rightsizing.usage.workload_stats import WorkloadStats
from tests.rightsizing.usage.usage_spans import BEGIN, DAY, HOUR, MINUTE, at_rest, at_work, stretch, unobserved, window


def holds(*parts: Iterable[UsageWindow]) -> tuple[DeviceAllocation, ...]:
    """Of a book with all these windows, latest first."""
    windows = [each for part in parts for each in part]
    book = WorkloadStats.begun(windows[0])
    for each in windows:
        book.add(each, (), activity(each), 0.0)
    return book.summary(windows[-1].at + windows[-1].span, None).holds


def hold(*parts: Iterable[UsageWindow]) -> DeviceAllocation:
    (only,) = holds(*parts)
    return only


def test_idle_since_its_last_work():
    found = hold(at_work(BEGIN, HOUR), at_rest(BEGIN + HOUR, HOUR))

    assert found.idle_since == BEGIN + HOUR
    assert found.worked
    assert (found.watts, found.loaded_idle_watts, found.pcie) == (110.0, 110.0, 0.0)
    assert found.busy == pytest.approx(0.4)


def test_idle_from_the_beginning():
    assert hold(at_rest(BEGIN, HOUR)).idle_since == BEGIN


def test_what_it_did_before_its_first_sample_is_unknown():
    found = hold(at_rest(BEGIN, HOUR, held_since=BEGIN - DAY))

    assert (found.since, found.idle_since) == (BEGIN - DAY, BEGIN)


@pytest.mark.parametrize("busy", [0.01, 0.8])
def test_work_ends_idleness(busy: float):
    assert hold(at_rest(BEGIN, HOUR), stretch(BEGIN + HOUR, MINUTE, busy=busy)).idle_since is None


def test_a_burst_within_a_long_window_is_work():
    assert hold(stretch(BEGIN, HOUR, HOUR, busy=0.002, busy_high=0.4)).idle_since is None


def test_what_nobody_saw_is_not_idle():
    assert hold(unobserved(BEGIN, HOUR)).idle_since is None
    assert hold(stretch(BEGIN, HOUR, watts=110.0)).idle_since is None


def test_a_short_gap_is_bridged_a_long_one_is_not():
    short = hold(at_rest(BEGIN, HOUR), at_rest(BEGIN + HOUR + 5 * MINUTE, HOUR))
    long = hold(at_rest(BEGIN, HOUR), at_rest(BEGIN + 3 * HOUR, HOUR))

    assert short.idle_since == BEGIN
    assert long.idle_since == BEGIN + 3 * HOUR
    assert long.since == BEGIN


def test_figures_that_stay_away_end_idleness():
    minutes = hold(at_rest(BEGIN, HOUR), unobserved(BEGIN + HOUR, HOUR))
    gap = hold(at_rest(BEGIN, HOUR), unobserved(BEGIN + HOUR, 2 * HOUR, span=2 * HOUR))

    assert (minutes.idle_since, gap.idle_since) == (None, None)


def test_one_unseen_window_of_an_hour_is_bridged_among_hours():
    found = hold(
        at_rest(BEGIN, 5 * HOUR, span=HOUR),
        unobserved(BEGIN + 5 * HOUR, HOUR, span=HOUR),
        at_rest(BEGIN + 6 * HOUR, HOUR, span=HOUR),
    )

    assert found.idle_since == BEGIN


def test_the_longest_pause_after_which_it_worked_again():
    found = hold(
        at_work(BEGIN, HOUR),
        at_rest(BEGIN + HOUR, 3 * HOUR),
        at_work(BEGIN + 4 * HOUR, HOUR),
        at_rest(BEGIN + 5 * HOUR, 9 * HOUR),
    )

    assert found.longest_gap == 3 * HOUR


def test_time_that_nobody_saw_is_no_pause():
    found = hold(
        at_rest(BEGIN, HOUR),
        unobserved(BEGIN + HOUR, 5 * HOUR),
        at_rest(BEGIN + 6 * HOUR, HOUR),
        at_work(BEGIN + 7 * HOUR, 60),
    )

    assert found.longest_gap == 2 * HOUR


def test_a_wait_before_its_first_work_is_a_pause_too():
    assert hold(at_rest(BEGIN, HOUR), at_work(BEGIN + HOUR, MINUTE)).longest_gap == HOUR


def test_a_pause_is_known_to_the_pods_that_come_after():
    found = holds(
        at_work(BEGIN, HOUR),
        at_rest(BEGIN + HOUR, 8 * HOUR),
        at_work(BEGIN + 9 * HOUR, HOUR),
        at_rest(BEGIN + 10 * HOUR, HOUR, pod="llm-1"),
    )

    assert [(each.pod, each.longest_gap) for each in found] == [("llm-1", 8 * HOUR), ("llm-0", 8 * HOUR)]


def test_the_time_between_two_pods_is_no_pause():
    found = holds(at_work(BEGIN, HOUR), at_work(BEGIN + 9 * HOUR, HOUR, pod="llm-1"))

    assert {each.longest_gap for each in found} == {0.0}


def test_memory_at_the_start_and_how_it_moves_after():
    found = hold(
        stretch(BEGIN, 2 * MINUTE, memory=70 << 30),
        stretch(BEGIN + 2 * MINUTE, HOUR, memory=72 << 30, memory_low=72 << 30),
    )

    assert (found.memory_at_start, found.memory) == (70 << 30, 72 << 30)
    assert (found.memory_later, found.memory_spread) == (72 << 30, 0.0)


def test_memory_that_falls_within_windows_moves():
    found = hold(
        stretch(BEGIN, 3 * HOUR, HOUR, memory=72 << 30, memory_low=0),
    )

    assert found.memory_spread == pytest.approx(1.0)


def test_the_same_name_again_is_another_hold_if_it_was_seen_to_begin():
    latest, before = holds(at_rest(BEGIN, HOUR), at_rest(BEGIN + 2 * HOUR, HOUR, held_since=BEGIN + 2 * HOUR))[0], BEGIN

    assert (latest.since, latest.covered) == (before + 2 * HOUR, HOUR)


def test_or_after_more_than_a_day():
    assert hold(at_rest(BEGIN, HOUR), at_rest(BEGIN + 2 * DAY, HOUR)).since == BEGIN + 2 * DAY


def test_a_name_that_was_drawn_by_chance_never_comes_again():
    drawn = hold(at_rest(BEGIN, HOUR, pod="llm-6b8-x2k4q"), at_rest(BEGIN + 2 * DAY, HOUR, pod="llm-6b8-x2k4q"))

    assert drawn.since == BEGIN


def test_a_pod_that_shows_its_begin_was_there_whatever_was_not_seen():
    begun = BEGIN - HOUR

    assert hold(at_work(BEGIN, HOUR, held_since=begun), at_rest(BEGIN + 2 * DAY, HOUR, held_since=begun)).worked


def test_what_was_seen_before_is_dropped_and_of_an_overlap_the_rest_is_taken():
    book = WorkloadStats.begun(window())
    first = window(span=HOUR, busy=1.0)

    assert book.add(first, (), True, 0.0)
    assert not book.add(first, (), True, 0.0)
    assert not book.add(window(BEGIN + 59 * MINUTE), (), None, 0.0)
    assert book.add(window(BEGIN + HOUR / 2, span=HOUR, busy=1.0), (), True, 0.0)
    found = book.summary(BEGIN + 1.5 * HOUR, None)
    assert (found.held, found.covered) == (1.5 * HOUR, 1.5 * HOUR)


def test_present_until_its_next_window_is_overdue():
    book = WorkloadStats.begun(window())
    book.add(window(), (), None, 0.0)

    present = [book.summary(BEGIN + MINUTE + later, None).holds[0].present for later in (0.0, 180.0, 181.0)]

    assert present == [True, True, False]
