"""Which recommendations are wanted."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from gpuwatch.model.errors import UsageError
from gpuwatch.model.recommendation import Level, Recommendation

LEVELS = tuple(Level)
"""Lowest first."""


class Wanted(NamedTuple):
    """What the command line says; empty and None: any."""

    ids: Collection[str] = ()
    namespaces: Collection[str] = ()
    kinds: Collection[str] = ()
    min_confidence: str = Level.LOW
    top: int | None = None

    def of(self, items: Iterable[Recommendation]) -> tuple[Recommendation, ...]:
        """Those that are, in their order.

        Raises:
            UsageError: there is none of an id that was named.
        """
        there = tuple(items)
        if lost := set(self.ids) - {each.id for each in there}:
            raise UsageError(
                f"there is no recommendation {', '.join(sorted(lost))}", "", "see gpuwatch recommend -o name"
            )
        return tuple(each for each in there if self._is_wanted(each))[: self.top]

    def _is_wanted(self, each: Recommendation) -> bool:
        return (
            (not self.ids or each.id in self.ids)
            and (not self.namespaces or each.target.namespace in self.namespaces)
            and (not self.kinds or each.kind in self.kinds)
            and LEVELS.index(each.confidence) >= LEVELS.index(Level(self.min_confidence))
        )
