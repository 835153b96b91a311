"""A scraper's habit: when it is expected, and when no more."""

from gpuwatch.metrics.page_cache import EXPIRY_GAPS, EXPIRY_SECONDS, REMEMBERED, ScrapeSchedule


def schedule(*asked: float) -> ScrapeSchedule:
    found = ScrapeSchedule()
    for at in asked:
        found.note(at)
    return found


def test_one_who_asked_once_may_come_at_any_time() -> None:
    assert schedule(100).expects(100.1)


def test_a_regular_one_is_expected_when_its_time_has_come() -> None:
    regular = schedule(100, 115, 130)
    assert not regular.expects(144.9)
    assert regular.expects(145)
    assert regular.expects(160), "it is late, but may come"


def test_of_two_scrapers_neither_is_kept_waiting() -> None:
    """One comes at 0, 15, 30... and the other four seconds after it."""
    both = schedule(0, 4, 15, 19, 30)
    assert both.expects(34)
    assert not both.expects(33)


def test_old_habits_die() -> None:
    changed = schedule(0, 1, *(1 + 15 * n for n in range(1, REMEMBERED + 1)))
    assert not changed.expects(1 + 15 * REMEMBERED + 14)


def test_nobody_is_expected_for_ever() -> None:
    _, once = EXPIRY_SECONDS
    assert not schedule(100).is_expired(100 + once)
    assert schedule(100).is_expired(100.1 + once)


def test_a_regular_one_that_stays_away_is_forgotten() -> None:
    slow = schedule(0, 60, 120)
    assert not slow.is_expired(120 + 60 * EXPIRY_GAPS)
    assert slow.is_expired(121 + 60 * EXPIRY_GAPS)


def test_a_burst_is_soon_forgotten_but_not_between_two_of_its_requests() -> None:
    soon, _ = EXPIRY_SECONDS
    burst = schedule(100, 100.1, 100.2)
    assert not burst.is_expired(100.2 + soon)
    assert burst.is_expired(100.3 + soon)
