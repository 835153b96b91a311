"""Agents on fake drivers, ended when the test is over."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import Any

import pytest

from tests.drills.agent_process import AgentProcess
from tests.fakes.libnvml import FakeDriver


@pytest.fixture(scope="session", autouse=True)
def no_forkserver_is_left(no_process_is_left: None) -> Iterator[None]:
    """The standard library ends it with the interpreter; by then a process that a test left would not be found."""
    yield
    for server in (forkserver._forkserver, resource_tracker._resource_tracker):  # type: ignore[attr-defined]
        server._stop()


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[FakeDriver]:
    """Four healthy GPUs."""
    with FakeDriver(tmp_path / "driver", gpus=4) as driver:
        yield driver


@pytest.fixture
def start(tmp_path: Path, driver: FakeDriver) -> Iterator[Callable[..., AgentProcess]]:
    """Return `start(**sources) -> AgentProcess` on the driver of the test."""
    with ExitStack() as running:
        running.callback(driver.clear)

        def run(driver: FakeDriver | None = driver, **options: Any) -> AgentProcess:
            return running.enter_context(AgentProcess(tmp_path, driver, **options))

        yield run
