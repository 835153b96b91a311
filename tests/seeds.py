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


def a_third(cases: Iterable[Any], arguments: int = 1) -> list[Any]:
    """Of a table whose cases go the same way through the code: every third, and the last; the others are slow.

    `arguments`: how many each case is for.
    """
    every = list(cases)
    quick = {*range(0, len(every), 3), len(every) - 1}
    return [case if place in quick else _slow(case, arguments) for place, case in enumerate(every)]


def _slow(case: Any, arguments: int) -> Any:
    return pytest.param(*(case if arguments > 1 else (case,)), marks=pytest.mark.slow)
