"""What waits is spread over the workers, and no test is lost by it."""

from types import SimpleNamespace

import pytest

from tests.order import WAITING, spread


def listed(*files: tuple[str, int]) -> list[SimpleNamespace]:
    return [SimpleNamespace(nodeid=f"{file}::test_{number}") for file, count in files for number in range(count)]


@pytest.mark.parametrize("workers", [2, 5, 8])
def test_each_worker_but_the_first_begins_with_what_waits(workers):
    items = listed(("tests/cluster/a.py", 10), *((f"tests/drills/{n}.py", 3) for n in range(9)), ("tests/x.py", 200))
    found = spread(items, workers)
    assert sorted(item.nodeid for item in found) == sorted(item.nodeid for item in items)
    assert found[:10] == items[:10]
    parts = [found[len(items) * n // workers] for n in range(1, workers)]
    assert all(part.nodeid.startswith(WAITING) for part in parts)


def test_more_that_waits_than_fits_is_kept():
    items = listed(("tests/e2e/a.py", 20), ("tests/x.py", 2))
    assert sorted(item.nodeid for item in spread(items, 5)) == sorted(item.nodeid for item in items)
