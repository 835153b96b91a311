"""A Prometheus with the fleet's history, for all tests of a process that ask it something."""

from collections.abc import Iterator

import pytest

from dashboards.history import blocks
from dashboards.history.server import prometheus


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """Where it answers."""
    with prometheus(blocks.get()) as served:
        yield served
