"""A GPU is tried at another cap so many times in any hour, and no more."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuwatch.tuning.gates.cooldowns import HOUR, RateLimit, wait_seconds, with_action

LIMIT = 12


def paced(*at: float) -> RateLimit:
    pace = RateLimit()
    for each in at:
        pace = with_action(pace, each)
    return pace


def test_s10_the_action_beyond_the_limit_waits_until_the_oldest_is_an_hour_old() -> None:
    pace = paced(*range(LIMIT))
    assert wait_seconds(paced(*range(LIMIT - 1)), 20.0, LIMIT) is None
    assert wait_seconds(pace, 20.0, LIMIT) == HOUR - 20.0
    assert wait_seconds(pace, HOUR - 0.5, LIMIT) == 0.5
    assert wait_seconds(pace, HOUR, LIMIT) is None


def test_a_limit_that_was_lowered_waits_for_as_many_as_are_too_many() -> None:
    assert wait_seconds(paced(0.0, 100.0, 200.0), 300.0, 1) == HOUR - 100.0


@pytest.mark.parametrize("limit", [0, -1])
def test_without_a_limit_above_nothing_nothing_is_done(limit: int) -> None:
    assert wait_seconds(RateLimit(), 0.0, limit) == HOUR


@example([1575.5399371535618, 0.0], 1)  # at + HOUR - at rounds to more than HOUR
@example([1824.4985208121893, 3599.9999999999995], 1)  # at + HOUR rounds to now, 5e-13 s before the hour is over
@given(st.lists(st.floats(0, 2000), max_size=200), st.integers(1, 20))
def test_s10_no_hour_has_more_actions_than_the_limit_and_waiting_is_enough(gaps: list[float], limit: int) -> None:
    pace, now, done = RateLimit(), 0.0, []
    for gap in gaps:
        now += gap
        wait = wait_seconds(pace, now, limit)
        assert wait is None or 0 < wait <= HOUR
        if wait is not None:
            assert wait_seconds(pace, now + wait + 1e-6, limit) is None
            continue
        pace = with_action(pace, now)
        done.append(now)
    assert all(sum(start <= at < start + HOUR - 1e-6 for at in done) <= limit for start in done)
    assert len(pace.acts) <= limit
