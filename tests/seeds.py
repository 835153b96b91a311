"""Which of a test's seeds run in `make test`: the first third; `make test-slow` runs all of them."""

from collections.abc import Iterable
from typing import Any

import pytest


def seeded(values: Iterable[Any]) -> list[Any]:
    """`values` for `pytest.mark.parametrize`: the first third as they are, the others marked slow."""
    every = list(values)
    quick = max(1, len(every) // 3)
    return every[:quick] + [pytest.param(value, marks=pytest.mark.slow) for value in every[quick:]]
