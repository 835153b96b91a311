"""In which order several workers run the tests: each begins with some that mostly wait, while the others compute.

pytest-xdist gives each worker an equal part of the list. What waits stands together in it, so that without this one
worker would wait at the end of the run for one test after the other, and the cores with it.
"""

import os
from collections import defaultdict

import pytest

WAITING = ("tests/drills/", "tests/e2e/")
"""Processes that live through something, minutes of it for each second of CPU."""


@pytest.hookimpl(trylast=True)  # of those that are run
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files stay together, and what is first stays first: tests with a control plane share its process."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers > 1:
        items[:] = spread(items, workers)


def spread(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """The same items; those of WAITING first in the parts of all workers but the first, as evenly as files are long."""
    files: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.nodeid.startswith(WAITING):
            files[item.nodeid.partition("::")[0]].append(item)
    rest = [item for item in items if not item.nodeid.startswith(WAITING)]
    shares: list[list[pytest.Item]] = [[] for _ in range(workers)]
    for file in sorted(files.values(), key=len, reverse=True):
        min(shares[1:], key=len).extend(file)
    found: list[pytest.Item] = []
    for number, share in enumerate(shares):
        found += share
        end = len(items) * (number + 1) // workers - len(found)
        found += rest[: max(0, end)]
        rest = rest[max(0, end) :]
    return found + rest
