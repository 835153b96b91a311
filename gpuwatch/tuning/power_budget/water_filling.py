"""Water-filling: the highest level at which what everybody needs still fits the budget."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

HALVINGS = 40
"""A level of 1,000 W is found to within a nanowatt."""


class Range(NamedTuple):
    """Watts that a limit may have."""

    low: float
    high: float

    def clip(self, watts: float) -> float:
        """The nearest watts within."""
        return min(self.high, max(self.low, watts))


def fill(budget: float, needs: Callable[[float], Sequence[float]], top: float) -> tuple[float, ...]:
    """What everybody gets, watts, at the highest level of 0..`top` that fits; where none does, what level 0 needs.
    `needs` gives watts at a level, never less at a higher one.
    """
    if sum(needs(top)) <= budget:
        return tuple(needs(top))
    low, high = 0.0, top
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if sum(needs(middle)) <= budget:
            low = middle
        else:
            high = middle
    return tuple(needs(low))


def level(budget: float, ranges: Sequence[Range]) -> tuple[float, ...]:
    """The same watts for everybody, as far as the ranges allow."""
    return fill(
        budget, lambda watts: [each.clip(watts) for each in ranges], max((each.high for each in ranges), default=0)
    )
