"""A task that runs now, again later, at once when woken, and goes on after it has failed."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from gpuwatch.agent.agent import MIN_GAP_SECONDS, Periodic, paced
from gpuwatch.model.view import STALE_INTERVALS
from tests.waiting import BOUND_SECONDS

Run = Callable[[float, Callable[[], None]], Periodic]


@pytest.fixture
def run() -> Iterator[Run]:
    """Return `run(interval, task) -> Periodic`, started."""
    with ExitStack() as running:

        def start(interval: float, task: Callable[[], None]) -> Periodic:
            periodic = Periodic("test", interval, task)
            periodic.start()
            running.callback(periodic.join, BOUND_SECONDS)
            running.callback(periodic.stop)
            return periodic

        yield start


def test_it_runs_at_once_and_ends_when_stopped(run: Run) -> None:
    ran = threading.Event()
    periodic = run(3600, ran.set)
    assert ran.wait(BOUND_SECONDS)
    periodic.stop()
    periodic.join(BOUND_SECONDS)
    assert not periodic.is_alive()


def test_waking_brings_the_next_turn_forward_but_not_without_a_rest(run: Run) -> None:
    turns: list[float] = []
    second = threading.Event()

    def task() -> None:
        turns.append(time.monotonic())
        if len(turns) == 2:
            second.set()

    periodic = run(3600, task)
    for _ in range(20):
        periodic.wake()
    assert second.wait(BOUND_SECONDS)
    assert turns[1] - turns[0] >= MIN_GAP_SECONDS


def test_a_turn_that_fails_is_logged_and_followed_by_another(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    turns: list[int] = []
    second = threading.Event()

    def task() -> None:
        turns.append(1)
        if len(turns) == 1:
            raise RuntimeError("an odd kubelet")
        second.set()

    with caplog.at_level(logging.ERROR):
        periodic = run(3600, task)
        periodic.wake()
        assert second.wait(BOUND_SECONDS)
    assert "an odd kubelet" in caplog.text


@pytest.mark.parametrize(("interval", "seconds"), [(1.0, 10.0), (10.0, 10.0), (12.0, 12.0), (60.0, 14.0)])
def test_the_kubelet_is_asked_no_more_often_than_views_show_it_and_may_fail_once(
    interval: float, seconds: float
) -> None:
    assert paced(10.0, interval) == seconds
    assert 2 * seconds < STALE_INTERVALS * 10.0
