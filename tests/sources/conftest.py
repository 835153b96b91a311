"""A healthy fake driver with one GPU."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.sim.fakelib import FakeDriver
from tests import memory

tmp_path, no_folder_is_left = memory.tmp_path, memory.no_folder_is_left


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[FakeDriver]:
    """One H100 under a current driver."""
    with FakeDriver(tmp_path / "driver", gpus=1) as driver:
        yield driver
