"""How much a test tries in `make test`: a third of its seeds or examples; `make test-slow` tries all of them."""

import os
from collections.abc import Iterable
from typing import Any

import pytest


def seeded(values: Iterable[Any]) -> list[Any]:
    """`values` for `pytest.mark.parametrize`: the first third as they are, the others marked slow."""
    every = list(values)
    quick = max(1, len(every) // 3)
    return every[:quick] + [pytest.param(value, marks=pytest.mark.slow) for value in every[quick:]]


def examples(count: int) -> int:
    """How many of `count` examples hypothesis tries: `@settings(max_examples=examples(300))`."""
    return count if os.environ.get("HYPOTHESIS_PROFILE") == "random" else max(1, count // 3)
