"""No test leaves a process, also when the run is killed, nor a thread of gpuwatch.

Every process of a run inherits a mark in its environment. What is still there when a worker has torn down its last
fixture fails that worker's last test; what has the mark when all workers are gone fails the run. `tests/watcher.py`
does the same for a run that was killed. A thread that outlives its test writes into folders that are gone, and its log
lines are found by the test that runs next.
"""

import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator

import psutil
import pytest

from tests import watcher
from tests.waiting import BOUND_SECONDS
from tests.watcher import MARK, marked

PATIENCE_SECONDS = BOUND_SECONDS
"""How long a process or thread that was asked to end may take on a busy machine."""

_watcher = pytest.StashKey[subprocess.Popen]()


def pytest_configure(config: pytest.Config) -> None:
    """Mark this run and start its watcher; a worker, or a run inside a test, belongs to the outer one."""
    if MARK in os.environ:
        return
    mark = uuid.uuid4().hex
    command = [sys.executable, "-S", watcher.__file__, mark]
    config.stash[_watcher] = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
    os.environ[MARK] = mark


def pytest_unconfigure(config: pytest.Config) -> None:
    """Let the watcher end."""
    if process := config.stash.get(_watcher, None):
        del os.environ[MARK]
        process.communicate()


@pytest.hookimpl(trylast=True)  # xdist has ended its workers
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run if a process of it is left that no worker knows as its descendant."""
    if _watcher not in session.config.stash or session.config.option.collectonly:
        return
    if left := _after(lambda: [psutil.Process(pid) for pid in marked(os.environ[MARK]) if psutil.pid_exists(pid)]):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print("\nprocesses that a test left:", *map(_command, left), sep="\n  ")


@pytest.fixture(scope="session", autouse=True)
def no_process_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set up before every other fixture and so torn down after them: what lives then, a test has left."""
    watching = request.config.stash.get(_watcher, None)
    kept = {watching.pid} if watching else set()
    before = {process.pid for process in psutil.Process().children(recursive=True)} | kept
    yield

    def descendants() -> list[psutil.Process]:
        return [each for each in psutil.Process().children(recursive=True) if each.pid not in before and _lives(each)]

    if left := _after(descendants):
        pytest.fail("processes that a test of this worker left:\n" + "\n".join(map(_command, left)), pytrace=False)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Torn down after all that the test itself has asked for; threads of a wider fixture were there before."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + PATIENCE_SECONDS
    while left := [each for each in threading.enumerate() if each not in before and _of_gpuwatch(each)]:
        if time.monotonic() > deadline:
            pytest.fail(f"threads that this test left: {', '.join(each.name for each in left)}", pytrace=False)
        left[0].join(0.05)


def _of_gpuwatch(thread: threading.Thread) -> bool:
    """Whether its class or what it runs is gpuwatch's; servers and pools of libraries end when they like."""
    target = getattr(thread, "_target", None)  # gone when the thread has ended
    modules = (type(thread).__module__, getattr(target, "__module__", None) or "")
    return any(module.partition(".")[0] == "gpuwatch" for module in modules)


def _after(find) -> list[psutil.Process]:
    """What `find` still finds after PATIENCE_SECONDS, killed; nothing as soon as it finds nothing."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while left := find():
        if time.monotonic() > deadline:
            for process in left:
                process.kill()
            return left
        time.sleep(0.05)
    return []


def _lives(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _command(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())}"
    except psutil.Error:
        return f"{process.pid} (ended)"
