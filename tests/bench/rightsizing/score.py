"""What the aims are about, counted over moments and fleets: idle GPUs found, memory that lacked, time lost."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from gpuwatch.rightsizing.model.recommendation import FindingKind, RecommendedAction
from tests.bench.rightsizing.evaluate import DAYS, Idle, Played, Size

LATER = 24.0
"""Hours after a life is over, to find it in."""

TOO_SLOW = 0.2
"""`max_mig_slowdown`."""


class Found(NamedTuple):
    """Of idle GPUs. `right`: of the flagged, those without work for DAYS more; `recall`: of those to be found."""

    flagged: int
    right: tuple[float | None, ...]
    untouched: float | None
    over: int
    recall: float | None
    later: int
    recall_later: float | None
    dead: int
    recall_dead: float | None
    resting: int
    recall_resting: float | None
    serving_deleted: int


def share(part: int, whole: int) -> float | None:
    """None: of nothing."""
    return part / whole if whole else None


def found(holds: Sequence[Idle], flag: Callable[[Idle], bool], deletes: Callable[[Idle], bool]) -> Found:
    """For a rule that flags some of the holds, and would delete some."""
    flagged = [each for each in holds if flag(each)]
    over = [each for each in holds if each.over is not None and each.seen]
    later = [each for each in over if (each.over or 0.0) >= LATER]
    dead = [each for each in holds if each.old and each.rests[-1]]
    resting = [each for each in holds if each.old and each.rests[0]]
    return Found(
        flagged=len(flagged),
        right=tuple(share(sum(each.rests[at] for each in flagged), len(flagged)) for at in range(len(DAYS))),
        untouched=share(sum(each.untouched for each in flagged), len(flagged)),
        over=len(over),
        recall=share(sum(map(flag, over)), len(over)),
        later=len(later),
        recall_later=share(sum(map(flag, later)), len(later)),
        dead=len(dead),
        recall_dead=share(sum(map(flag, dead)), len(dead)),
        resting=len(resting),
        recall_resting=share(sum(map(flag, resting)), len(resting)),
        serving_deleted=sum(each.serving and deletes(each) for each in holds),
    )


def flagged(hold: Idle) -> bool:
    """By gpuwatch."""
    return hold.finding is not None


def deleted(hold: Idle) -> bool:
    """Somebody who follows gpuwatch's advice deletes it."""
    return hold.action is RecommendedAction.SCALE_DOWN


def pruned(hold: Idle) -> bool:
    """By gpu-pruner's rule, which deletes what it flags."""
    return hold.pruned


class Followed(NamedTuple):
    """Of advice on size. `lacked`: workloads without enough memory within 7 and 14 days; `slow`: over the bound."""

    advice: int
    workloads: int
    lacked: tuple[int, int]
    rate: tuple[float | None, float | None]
    preallocators: int
    slow: float | None
    p95: float | None
    saved: float


def followed(sizes: Sequence[Size]) -> Followed:
    """One rule's advice."""
    lost = sorted(each.slower.p95 for each in sizes if each.slower)
    lacked = (sum(each.memory[0] for each in sizes), sum(each.memory[1] for each in sizes))
    return Followed(
        advice=len(sizes),
        workloads=len({(each.moment, each.kind) for each in sizes}),
        lacked=lacked,
        rate=(share(lacked[0], len(sizes)), share(lacked[1], len(sizes))),
        preallocators=sum(each.preallocates for each in sizes),
        slow=share(sum(each > TOO_SLOW for each in lost), len(lost)),
        p95=lost[int(0.95 * (len(lost) - 1))] if lost else None,
        saved=sum(each.saved for each in sizes),
    )


class Predicted(NamedTuple):
    """Of slowdowns on MIG instances, the truth's 95th percentile against the two that were predicted."""

    advice: int
    below: float | None
    within: float | None
    above: float | None
    worst_above: float | None
    mean_truth: float | None
    mean_high: float | None


def predicted(sizes: Iterable[Size]) -> Predicted:
    """Where both are known. A point of slack for bins of a percent."""
    known = [(each.low, each.slower.p95, each.high) for each in sizes if each.slower and each.low is not None]
    rows = [(low, truth, high) for low, truth, high in known if low is not None and high is not None]
    below = sum(truth < low - 0.01 for low, truth, _ in rows)
    above = [truth - high for _, truth, high in rows if truth > high + 0.01]
    count = len(rows)
    return Predicted(
        advice=count,
        below=share(below, count),
        within=share(count - below - len(above), count),
        above=share(len(above), count),
        worst_above=max(above, default=None),
        mean_truth=sum(truth for _, truth, _ in rows) / count if count else None,
        mean_high=sum(high for *_, high in rows) / count if count else None,
    )


def by_kind(plays: Iterable[Played]) -> dict[str, Counter[FindingKind]]:
    """What was said of each kind of workload, all moments together."""
    table: dict[str, Counter[FindingKind]] = defaultdict(Counter)
    for each in plays:
        for _, kind, finding in each.other:
            table[kind][finding] += 1
    return table
