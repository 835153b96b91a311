"""The supervisor over small real children: dead, silent, garbled and stubborn ones."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpuwatch.collect.reader import supervisor as module
from gpuwatch.collect.reader.messages import AnyMessage, DriverOpened, ReaderFailed, ReaderHeartbeat, Settings
from gpuwatch.collect.reader.supervisor import MAX_ABANDONED, Supervisor, ending
from tests.children import children
from tests.cpu_clock import unhindered
from tests.waiting import BOUND_SECONDS, until

SETTINGS = Settings(factory="not:used")
PRELUDE = """
import os, sys, time, signal
from gpuwatch.model.snapshot import Driver
from gpuwatch.collect.reader.messages import ReaderHeartbeat, ReaderFailed, DriverOpened, encode
def say(message): os.write(1, encode(message))
def until_closed():
    while os.read(0, 64): pass
registered = DriverOpened(driver=Driver(), count=0)
"""


class Audience:
    """Keeps what the supervisor hands on; `wait` until it satisfies."""

    def __init__(self) -> None:
        self.messages: list[AnyMessage] = []
        self._news = threading.Condition()

    def __call__(self, message: AnyMessage) -> None:
        with self._news:
            self.messages.append(message)
            self._news.notify_all()

    def wait(self, holds: Callable[[list[AnyMessage]], Any]) -> None:
        with self._news:
            assert self._news.wait_for(lambda: holds(self.messages), BOUND_SECONDS), self.messages

    def failures(self) -> list[ReaderFailed]:
        return [message for message in self.messages if isinstance(message, ReaderFailed)]


Supervise = Callable[..., tuple[Supervisor, Audience]]


@pytest.fixture
def supervise(tmp_path: Path) -> Iterator[Supervise]:
    """Return `supervise(child's program) -> (supervisor, audience)`."""
    with ExitStack() as running:

        def start(program: str, command: tuple[str, ...] = ()) -> tuple[Supervisor, Audience]:
            child = tmp_path / "child.py"
            child.write_text(PRELUDE + program)
            audience = Audience()
            supervisor = Supervisor(SETTINGS, audience, command or (sys.executable, str(child)))
            supervisor.start()
            running.callback(_end_those_left, tmp_path, supervisor)
            running.callback(supervisor.stop)
            return supervisor, audience

        yield start


def _children(folder: Path) -> list[psutil.Process]:
    """Readers of this test that live."""
    return children(str(folder))


def _end_those_left(folder: Path, supervisor: Supervisor) -> None:
    for child in _children(folder):
        child.kill()
    until(lambda: not supervisor.abandoned)


def test_messages_are_handed_on_and_the_end_is_clean(supervise: Supervise) -> None:
    supervisor, audience = supervise("say(registered); until_closed()")
    audience.wait(lambda messages: any(isinstance(m, DriverOpened) for m in messages))
    pid = supervisor.pid
    assert pid is not None
    start = unhindered()
    supervisor.stop()
    assert unhindered() - start < 1
    assert not psutil.pid_exists(pid)
    assert not audience.failures()
    assert supervisor.restarts == 0


def test_a_reader_that_dies_is_reported_and_replaced_ever_more_slowly(supervise: Supervise) -> None:
    supervisor, audience = supervise("say(registered); os.kill(os.getpid(), signal.SIGSEGV)")
    start = time.monotonic()
    audience.wait(lambda _: len(audience.failures()) == 4)
    # 0.1, 0.2 and 0.4 s lie between four readers
    assert time.monotonic() - start >= 0.7
    assert {failed.reason for failed in audience.failures()} == {"the reader process was ended by SIGSEGV"}
    assert all(failed.retry for failed in audience.failures())
    assert supervisor.restarts >= 3


def test_a_reader_that_reported_why_is_not_reported_twice(supervise: Supervise) -> None:
    _, audience = supervise("say(ReaderFailed(reason='driver is gone', kind='x')); until_closed()")
    audience.wait(lambda _: len(audience.failures()) == 2)
    assert {failed.reason for failed in audience.failures()} == {"driver is gone"}


@pytest.mark.parametrize(
    "program",
    ["os.write(1, b'garbage' * 100); until_closed()", "say(registered); os.write(1, b'\\0\\0\\0\\1x')\nuntil_closed()"],
)
def test_a_reader_that_talks_garbage_is_replaced(supervise: Supervise, program: str) -> None:
    supervisor, audience = supervise(program)
    audience.wait(lambda _: len(audience.failures()) == 2)
    assert "the reader is broken" in audience.failures()[0].reason
    assert supervisor.restarts >= 1


def test_garbage_without_end_from_a_stubborn_child(supervise: Supervise, tmp_path: Path) -> None:
    """It neither reads nor minds a closed pipe; it is in no driver call, so that it may be killed."""
    program = "say(registered); signal.signal(signal.SIGPIPE, signal.SIG_IGN)\nos.write(1, b'x' * 1000)\ntime.sleep(60)"
    _, audience = supervise(program)
    audience.wait(lambda _: len(audience.failures()) == 1)
    assert "SIGKILL" in audience.failures()[0].reason or "broken" in audience.failures()[0].reason
    assert len(_children(tmp_path)) <= 1


def test_a_silent_reader_is_replaced(supervise: Supervise, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is in no driver call, so that it is ended, not left alone."""
    supervisor, audience = supervise("say(registered)\nos.read(0, 1)\nsay(ReaderHeartbeat())\ntime.sleep(60)")
    first = _wait_for_pid(supervisor)
    audience.wait(lambda messages: any(isinstance(m, DriverOpened) for m in messages))
    monkeypatch.setattr(module, "SILENCE_SECONDS", 0.5)  # from the next message on
    supervisor.refresh()
    audience.wait(lambda _: audience.failures())
    assert "silent" in audience.failures()[0].reason
    until(lambda: supervisor.restarts >= 1)
    until(lambda: not psutil.pid_exists(first))


def _wait_for_pid(supervisor: Supervisor) -> int:
    pid = until(lambda: supervisor.pid)
    assert isinstance(pid, int)
    return pid


def test_a_reader_inside_the_driver_is_left_alone_and_the_end_does_not_wait(supervise: Supervise) -> None:
    supervisor, audience = supervise(
        "say(ReaderHeartbeat(reads={'GPU-1': ('fields', 9.0, 9.0)}))\n"
        "signal.signal(signal.SIGPIPE, signal.SIG_IGN)\ntime.sleep(60)"
    )
    audience.wait(lambda messages: any(isinstance(m, ReaderHeartbeat) for m in messages))
    pid = supervisor.pid
    assert pid is not None
    start = unhindered()
    supervisor.stop()
    assert unhindered() - start < 1.2
    assert psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    assert supervisor.abandoned == 1


def test_no_more_readers_than_may_hang_are_started(supervise: Supervise) -> None:
    """Each would meet the same driver."""
    supervisor, audience = supervise("say(ReaderHeartbeat(starting='nvmlInit'))\nos.write(1, b'x' * 9)\ntime.sleep(60)")
    audience.wait(lambda _: len(audience.failures()) == MAX_ABANDONED)
    time.sleep(1.0)  # longer than the pause after which a fourth one would start
    assert supervisor.abandoned == MAX_ABANDONED
    assert supervisor.restarts == MAX_ABANDONED - 1


def test_a_reader_that_cannot_be_started_is_reported(supervise: Supervise) -> None:
    _, audience = supervise("", command=("/nonexistent/python",))
    audience.wait(lambda _: len(audience.failures()) == 2)
    assert "cannot be started" in audience.failures()[0].reason


def test_replace_has_a_fresh_reader_open_the_driver(supervise: Supervise) -> None:
    supervisor, audience = supervise("say(registered); until_closed()")
    audience.wait(lambda messages: any(isinstance(m, DriverOpened) for m in messages))
    supervisor.replace()
    audience.wait(lambda messages: sum(isinstance(m, DriverOpened) for m in messages) == 2)
    assert [failed.reason for failed in audience.failures()] == ["a new reader opens the driver"]


def test_a_reader_asked_for_does_not_wait_for_failures_of_old(supervise: Supervise, tmp_path: Path) -> None:
    """A driver that was away for long, is back, and then shows on the bus as well."""
    tries = tmp_path / "tries"
    supervisor, audience = supervise(f"""
with open({str(tries)!r}, "a") as file:
    file.write(".")
if os.path.getsize({str(tries)!r}) < 5:
    sys.exit()
say(registered)
until_closed()
""")
    audience.wait(lambda messages: any(isinstance(m, DriverOpened) for m in messages))
    started = supervisor.restarts
    supervisor.replace()
    audience.wait(lambda _: audience.failures()[-1].reason == "a new reader opens the driver")
    asked = time.monotonic()
    until(lambda: supervisor.restarts > started)
    assert time.monotonic() - asked < module.BACKOFF_SECONDS[0] * 2**4
    audience.wait(lambda messages: sum(isinstance(m, DriverOpened) for m in messages) == 2)


def test_refresh_reaches_the_reader(supervise: Supervise) -> None:
    supervisor, audience = supervise(
        "say(registered)\nassert os.read(0, 64) == b'R'\nsay(ReaderHeartbeat(starting='refreshed'))\nuntil_closed()"
    )
    audience.wait(lambda messages: any(isinstance(m, DriverOpened) for m in messages))
    supervisor.refresh()
    audience.wait(lambda messages: any(isinstance(m, ReaderHeartbeat) and m.starting == "refreshed" for m in messages))


def test_closing_a_gpu_takes_a_reader_that_does_not_open_it(supervise: Supervise) -> None:
    program = "say(ReaderHeartbeat(starting=str(json.loads(sys.argv[-1])['closed']))); until_closed()"
    supervisor, audience = supervise("import json\n" + program)

    def reported(closed: str) -> Callable[[list[AnyMessage]], bool]:
        return lambda messages: any(isinstance(m, ReaderHeartbeat) and m.starting == closed for m in messages)

    audience.wait(reported("[]"))
    supervisor.close(())
    supervisor.close((1,))
    audience.wait(reported("[1]"))
    assert supervisor.restarts == 1, "the same GPUs again are no reason for a new reader"


def test_refresh_without_a_reader_is_nothing() -> None:
    Supervisor(SETTINGS, lambda message: None).refresh()


@pytest.mark.parametrize(
    ("status", "words"),
    [(None, "does not answer"), (-9, "SIGKILL"), (-11, "SIGSEGV"), (3, "status 3")],
)
def test_endings_in_words(status: int | None, words: str) -> None:
    assert words in ending(status)
