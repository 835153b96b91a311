"""A server that only answers its health checks is at rest; one that gets a request now and then is not."""

import pytest

from gpuwatch.rules.usage_hold import activity
from tests.rules.usage_spans import window


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
