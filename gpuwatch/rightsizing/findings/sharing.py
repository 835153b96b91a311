"""Work that is seldom busy and would do with a part of a GPU, on hardware or in sizes that MIG cannot give.

As many may share a GPU as would still find room if all had their 95th percentile at once, and in memory at any time.
"""

from typing import NamedTuple

from gpuwatch.model.recommendation import Action, Change, Finding, Level, Predicted, Recommendation
from gpuwatch.rightsizing.findings.advice import advice, held_words
from gpuwatch.rightsizing.findings.savings import savings
from gpuwatch.rightsizing.findings.text import gib, percent
from gpuwatch.rightsizing.findings.workload import Case
from gpuwatch.rightsizing.usage.memory_demand import is_full

SELDOM, AT_MOST = 0.2, 0.6
"""Busy: mean, and 95th percentile."""

MOST_REPLICAS = 8
MEMORY = 0.92
"""Of the GPU's, for all who share it: contexts and fragments take the rest."""


class Way(NamedTuple):
    """How GPUs are shared: a strategy of the device plugin. `busy`: of all together at most."""

    strategy: str
    words: str
    busy: float
    risk: str


TIME_SLICING = Way(
    "time_slicing",
    "time slicing",
    0.9,
    "Time slicing keeps neither memory nor faults apart: one that takes too much memory takes it from all.",
)
MPS = Way(
    "mps",
    "MPS",
    0.7,
    "MPS is for those who trust each other: a fault of one may end all. Each gets an equal part of memory.",
)


def duty_cycled(case: Case) -> Recommendation | None:
    """Several of its kind on one GPU."""
    need, way = case.memory(), way_of(case)
    count = min(by_time(case), _by_memory(case))
    if need is None or count < 2 or case.is_preallocating:
        return None
    busy, resource = case.summary.busy, case.resource or "nvidia.com/gpu"
    total = case.summary.memory_total
    if busy is None or total is None:
        return None
    return advice(
        case,
        Finding.DUTY_CYCLED,
        holds=case.present,
        action=Action.SHARE,
        current=held_words(case.present) or f"1 x {resource}",
        recommended=f"{'each ' if len(case.present) > 1 else ''}1 of {count} shares ({way.words})",
        why=f"Busy {percent(busy.mean)} of the time, {percent(busy.p95)} at the 95th percentile. At most "
        f"{gib(need.peak)} of memory: {gib(need.needed)} with margin, of {gib(total)}. {count} like it would fit.",
        evidence=case.evidence(),
        confidence=case.sureness,
        risk=Level.MEDIUM if need.sure and not case.may_serve else Level.HIGH,
        risk_words=f"{way.risk} Work waits when others have their turn.",
        savings=savings(case.config, case.model, case.hours_per_day * (1 - 1 / count)),
        change=Change(
            resource=case.resource,
            count=1,
            to_resource=f"{resource}.shared",
            to_count=1,
            strategy=way.strategy,
            replicas=count,
        ),
        predicted=Predicted(memory_needed=need.needed, memory_offered=total // count),
    )


def way_of(case: Case) -> Way:
    """Who has to answer gets no turns of others' length."""
    return MPS if case.may_serve else TIME_SLICING


def by_time(case: Case) -> int:
    """How many like it one GPU has time for; 1: none beside it, or nobody can tell."""
    busy = case.summary.busy
    if busy is None or not case.is_single or case.profile != "" or busy.mean >= SELDOM or busy.p95 >= AT_MOST:
        return 1
    return max(1, min(MOST_REPLICAS, int(way_of(case).busy / busy.p95 + 1e-9) if busy.p95 > 0 else MOST_REPLICAS))


def _by_memory(case: Case) -> int:
    """How many a GPU has memory for; with MPS each gets no more than its part of it."""
    need, total = case.memory(), case.summary.memory_total
    if need is None or total is None or is_full(need.peak, total):
        return 1
    return int(MEMORY * total / need.needed)
