"""A machine of each test's own."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.repair.machine import Machine


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Machine]]:
    made: list[Machine] = []

    def make(**repair: Any) -> Machine:
        made.append(Machine(tmp_path, **repair))
        return made[-1]

    yield make
    for machine in made:
        machine.store.close()


@pytest.fixture
def machine(make: Callable[..., Machine]) -> Machine:
    return make()
