"""A healthy fake driver with one GPU."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.libnvml import FakeDriver


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[FakeDriver]:
    """One H100 under a current driver."""
    with FakeDriver(tmp_path / "driver", gpus=1) as driver:
        yield driver
