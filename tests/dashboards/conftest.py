"""A Prometheus with the fleet's history, for all tests of a process that ask it something."""

from collections.abc import Iterator

import pytest

from dashboards.history import blocks
from dashboards.history.server import prometheus


def pytest_itemcollected(item: pytest.Item) -> None:
    """What needs the history is slow: it takes 80 CPU seconds to play. Quick: test_lint.py knows metrics, labels and
    units of every query, and tests/e2e/test_dashboard.py asks a real Prometheus.
    """
    if "url" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """Where it answers."""
    with prometheus(blocks.get()) as served:
        yield served
