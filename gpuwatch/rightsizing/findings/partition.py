"""Work that would do with a part of a GPU: a smaller MIG instance, or a share of a GPU.

MIG: memory decides first; then how much longer the work would take by the most pessimistic reading of the counters.
Sharing is for hardware and sizes that MIG does not offer: as many may share a GPU as have room if all are at their 95th
percentile at once, and in memory at any time.
"""

from typing import NamedTuple

from gpuwatch.model.snapshot import Record
from gpuwatch.rightsizing.findings.advice import Proposal, Risk, advice, allocation_text, savings
from gpuwatch.rightsizing.findings.text import GIB, gib, percent
from gpuwatch.rightsizing.findings.workload import WorkloadFacts
from gpuwatch.rightsizing.model import mig_profiles
from gpuwatch.rightsizing.model.mig_profiles import GpuModel, Profile
from gpuwatch.rightsizing.model.recommendation import (
    FindingKind,
    Level,
    Predicted,
    Recommendation,
    RecommendedAction,
    RecommendedChange,
)
from gpuwatch.rightsizing.model.usage import Slowdown
from gpuwatch.rightsizing.usage.memory_demand import MemoryDemand, is_full

LITTLE = GIB // 20
"""Bytes a day: the text omits slower growth, the memory needed includes it."""


class MigFit(Record, frozen=True, kw_only=True):
    """The smallest instance that will do. `saved`: share of a GPU that it frees."""

    profile: Profile
    slowdown: Slowdown
    saved: float


def mig_fit(facts: WorkloadFacts) -> Recommendation | None:
    """The instance to ask for, the slowdown to expect, and the risk."""
    need, fit = facts.memory(), best_fit(facts)
    if need is None or fit is None or facts.is_preallocating:
        return None
    hours = facts.hours_per_day * fit.saved
    busy = facts.summary.busy
    work = f"Busy {percent(busy.mean)} of the time, {percent(busy.p95)} at the 95th percentile. " if busy else ""
    grown = f", growing by {gib(need.per_day)} a day" if need.per_day >= LITTLE else ""
    return advice(
        facts,
        FindingKind.MIG_FIT,
        Proposal(
            action=RecommendedAction.RESIZE,
            current=allocation_text(facts.present) or facts.resource or "1 x GPU",
            recommended=f"{max(1, len(facts.present))} x {fit.profile.resource}",
            change=RecommendedChange(resource=facts.resource, count=1, to_resource=fit.profile.resource, to_count=1),
        ),
        Risk(
            level=Level.HIGH
            if not need.sure
            else Level.MEDIUM
            if facts.may_serve or fit.profile.estimated
            else Level.LOW,
            text=_risk(facts, fit, need),
        ),
        why=f"{work}At most {gib(need.peak)} of memory{grown}: {gib(need.needed)} with margin, "
        f"of {gib(fit.profile.memory)}. On {fit.profile.name} it takes {percent(max(0.0, fit.slowdown.low))} to "
        f"{percent(fit.slowdown.high)} longer.",
        savings=savings(facts.config, facts.model, hours),
        predicted=Predicted(
            slowdown_low=fit.slowdown.low,
            slowdown_high=fit.slowdown.high,
            memory_needed=need.needed,
            memory_offered=fit.profile.memory,
        ),
    )


def best_fit(facts: WorkloadFacts) -> MigFit | None:
    """By memory and by compute; None: no smaller one will do, or that is not known."""
    model, need = mig_profiles.model_of(facts.model), facts.memory()
    if model is None or need is None or not facts.is_single or is_full(need.peak, facts.summary.memory_total):
        return None
    return next((fit for fit in fits_by_compute(facts, model) if need.needed <= fit.profile.memory), None)


def fits_by_compute(facts: WorkloadFacts, model: GpuModel) -> list[MigFit]:
    """Smaller instances on which the work is not slowed beyond `max_mig_slowdown`, whatever its memory: least first."""
    instance = mig_profiles.instance(facts.model, None, facts.profile) if facts.profile else None
    if facts.profile is None or (facts.profile and instance is None):
        return []  # not all of its devices are alike, or the instance is in no table
    now = model.share(instance) if instance else 1.0
    slowdowns = {each.profile: each for each in facts.summary.slowdowns}
    found = [
        MigFit(profile=profile, slowdown=slowdowns[profile.name], saved=now - model.share(profile))
        for profile in model.plain()
        if profile.name in slowdowns and model.share(profile) < now
    ]
    fits = [fit for fit in found if fit.slowdown.high <= facts.config.max_mig_slowdown]
    return sorted(fits, key=lambda fit: -fit.saved)


def _risk(facts: WorkloadFacts, fit: MigFit, need: MemoryDemand) -> str:
    parts = ["The slowdown is computed from counters, not measured: try one pod first."]
    if not need.sure:
        parts.append("Too few days to see whether its memory grows.")
    if fit.profile.estimated:
        parts.append("Its usable memory or multiprocessors are estimated.")
    if facts.may_serve:
        parts.append("Answers may come later at the peak.")
    return " ".join(parts)


SELDOM, AT_MOST = 0.2, 0.6
"""Busy: mean, and 95th percentile."""

MOST_REPLICAS = 8
MEMORY = 0.92
"""Share of the GPU's memory for the pods that share it: contexts and fragments take the rest."""


class SharingStrategy(NamedTuple):
    """How GPUs are shared: a strategy of the device plugin. `busy`: the most, of all sharers together."""

    strategy: str
    words: str
    busy: float
    risk: str


TIME_SLICING = SharingStrategy(
    "time_slicing",
    "time slicing",
    0.9,
    "Time slicing keeps neither memory nor faults apart: one that takes too much memory takes it from all.",
)
MPS = SharingStrategy(
    "mps",
    "MPS",
    0.7,
    "MPS is for those who trust each other: a fault of one may end all. Each gets an equal part of memory.",
)


def duty_cycled(facts: WorkloadFacts) -> Recommendation | None:
    """Several like it on one GPU."""
    need, total, busy = facts.memory(), facts.summary.memory_total, facts.summary.busy
    if need is None or total is None or busy is None or is_full(need.peak, total) or facts.is_preallocating:
        return None
    count = min(most_by_time(facts), int(MEMORY * total / need.needed))
    if count < 2:
        return None
    way, resource = sharing_strategy(facts), facts.resource or "nvidia.com/gpu"
    return advice(
        facts,
        FindingKind.DUTY_CYCLED,
        Proposal(
            action=RecommendedAction.SHARE,
            current=allocation_text(facts.present) or f"1 x {resource}",
            recommended=f"{'each ' if len(facts.present) > 1 else ''}1 of {count} shares ({way.words})",
            change=RecommendedChange(
                resource=facts.resource,
                count=1,
                to_resource=f"{resource}.shared",
                to_count=1,
                strategy=way.strategy,
                replicas=count,
            ),
        ),
        Risk(
            level=Level.MEDIUM if need.sure and not facts.may_serve else Level.HIGH,
            text=f"{way.risk} Work waits when others have their turn.",
        ),
        why=f"Busy {percent(busy.mean)} of the time, {percent(busy.p95)} at the 95th percentile. At most "
        f"{gib(need.peak)} of memory: {gib(need.needed)} with margin, of {gib(total)}. {count} like it would fit.",
        savings=savings(facts.config, facts.model, facts.hours_per_day * (1 - 1 / count)),
        predicted=Predicted(memory_needed=need.needed, memory_offered=total // count),
    )


def sharing_strategy(facts: WorkloadFacts) -> SharingStrategy:
    """MPS where it may be serving: a request must not wait for the time slices of others."""
    return MPS if facts.may_serve else TIME_SLICING


def most_by_time(facts: WorkloadFacts) -> int:
    """How many like it one GPU has time for; 1: itself alone, or that is not known."""
    busy = facts.summary.busy
    if busy is None or not facts.is_single or facts.profile != "" or busy.mean >= SELDOM or busy.p95 >= AT_MOST:
        return 1
    return max(
        1, min(MOST_REPLICAS, int(sharing_strategy(facts).busy / busy.p95 + 1e-9) if busy.p95 > 0 else MOST_REPLICAS)
    )
