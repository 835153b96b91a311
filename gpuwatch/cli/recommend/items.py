"""The JSON documents of `gpuwatch recommend`: one item a recommendation, filters, and sums that count a GPU once."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from gpuwatch.cli.console.document import Envelope
from gpuwatch.cli.console.words import utc
from gpuwatch.cli.look.items import Item, same_members
from gpuwatch.model.errors import UsageError
from gpuwatch.rightsizing.model.recommendation import (
    Apply,
    Evidence,
    FindingKind,
    Level,
    Predicted,
    Recommendation,
    Recommendations,
    RecommendationTarget,
    RecommendedAction,
    RecommendedChange,
    Savings,
)

LEVELS = tuple(Level)
"""Lowest first."""


class RecommendationFilter(NamedTuple):
    """The filters of the command line; empty and None: any."""

    ids: Collection[str] = ()
    namespaces: Collection[str] = ()
    kinds: Collection[str] = ()
    min_confidence: str = Level.LOW
    top: int | None = None

    def of(self, items: Iterable[Recommendation]) -> tuple[Recommendation, ...]:
        """The items that match, in their order, at most `top`.

        Raises:
            UsageError: no item has an id that was named.
        """
        there = tuple(items)
        if lost := set(self.ids) - {each.id for each in there}:
            raise UsageError(
                f"there is no recommendation {', '.join(sorted(lost))}", "", "see gpuwatch recommend -o name"
            )
        wanted = (
            each
            for each in there
            if (not self.ids or each.id in self.ids)
            and (not self.namespaces or each.target.namespace in self.namespaces)
            and (not self.kinds or each.kind in self.kinds)
            and LEVELS.index(each.confidence) >= LEVELS.index(Level(self.min_confidence))
        )
        return tuple(wanted)[: self.top]


ROOM = frozenset({FindingKind.QUOTA_SLACK, FindingKind.STEADY_LOAD, FindingKind.MIG_LAYOUT})
"""Findings about room for GPUs: the workloads that free it are counted already."""


class RecommendationItem(Item, frozen=True, kw_only=True):
    """One recommendation. `id` stays the same while target and finding do; after `expires` it is stale."""

    id: str
    kind: FindingKind
    action: RecommendedAction
    target: RecommendationTarget
    current: str
    recommended: str
    why: str
    evidence: Evidence
    predicted: Predicted | None
    confidence: Level
    risk: Level
    risk_text: str
    savings: Savings
    change: RecommendedChange
    apply: tuple[Apply, ...]
    at: datetime
    expires: datetime


class RecommendationList(Envelope, frozen=True, kw_only=True):
    """Largest savings first. `source`: where they are from; `since`: since when usage is known; `learning`: how many of
    the `workloads` have too little history. `total` is of the items here; a GPU that several are about counts once.
    """

    source: str
    since: datetime | None
    workloads: int
    learning: int
    total: Savings


def document(body: Recommendations, source: str, chosen: Sequence[Recommendation]) -> RecommendationList:
    """The document for scripts, of the chosen recommendations."""
    return RecommendationList(
        kind="RecommendationList",
        node=body.node,
        at=utc(body.at),
        items=tuple(
            same_members(RecommendationItem, each, at=utc(each.at), expires=utc(each.expires)) for each in chosen
        ),
        source=source,
        since=None if body.since is None else utc(body.since),
        workloads=body.workloads,
        learning=body.learning,
        total=total(chosen),
    )


def total(items: Iterable[Recommendation | RecommendationItem]) -> Savings:
    """The sum; of several findings about one workload only the largest counts."""
    by_target: defaultdict[tuple[str | None, ...], dict[FindingKind, list[Savings]]] = defaultdict(dict)
    for each in items:
        target = each.target
        if each.kind not in ROOM:
            key = target.namespace, target.kind, target.name, target.container
            by_target[key].setdefault(each.kind, []).append(each.savings)
    sums = [
        max(
            map(_added, kinds.values()),
            key=lambda each: (each.gpu_hours_per_day, each.money_per_day or 0.0, each.watts or 0.0),
        )
        for kinds in by_target.values()
    ]
    return _added(sums)


def _added(savings: Iterable[Savings]) -> Savings:
    """The sums of the members; None where the value is not known for any."""
    given = tuple(savings)
    watts = [each.watts for each in given if each.watts is not None]
    money = [each.money_per_day for each in given if each.money_per_day is not None]
    return Savings(
        gpu_hours_per_day=sum(each.gpu_hours_per_day for each in given),
        watts=sum(watts) if watts else None,
        money_per_day=sum(money) if money else None,
        currency=next((each.currency for each in given if each.money_per_day is not None), None),
    )
