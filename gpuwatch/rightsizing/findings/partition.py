"""Work that would do with a part of a GPU: a smaller MIG instance, or a share of a GPU.

MIG: memory decides first; then how much longer the work would take by the most pessimistic reading of the counters.
Sharing is for hardware and sizes that MIG does not offer: as many may share a GPU as have room if all are at their 95th
percentile at once, and in memory at any time.
"""

from typing import NamedTuple

from gpuwatch.model.recommendation import Action, Change, Finding, Level, Predicted, Recommendation
from gpuwatch.model.snapshot import Record
from gpuwatch.rightsizing.findings.advice import advice, held_words, savings
from gpuwatch.rightsizing.findings.text import GIB, gib, percent
from gpuwatch.rightsizing.findings.workload import Case
from gpuwatch.rightsizing.model import mig_profiles
from gpuwatch.rightsizing.model.mig_profiles import GpuModel, Profile
from gpuwatch.rightsizing.model.usage import Slowdown
from gpuwatch.rightsizing.usage.memory_demand import Demand, is_full

LITTLE = GIB // 20
"""Bytes a day that round to nothing; they count all the same."""


class Fit(Record, frozen=True, kw_only=True):
    """The smallest instance that will do. `saved`: share of a GPU that is free then."""

    profile: Profile
    slowdown: Slowdown
    saved: float


def mig_fit(case: Case) -> Recommendation | None:
    """Which instance, what follows, and how sure that is."""
    need, fit = case.memory(), best_fit(case)
    if need is None or fit is None or case.is_preallocating:
        return None
    hours = case.hours_per_day * fit.saved
    return advice(
        case,
        Finding.MIG_FIT,
        holds=case.present,
        action=Action.RESIZE,
        current=held_words(case.present) or case.resource or "1 x GPU",
        recommended=f"{max(1, len(case.present))} x {fit.profile.resource}",
        why=_why(case, fit, need),
        evidence=case.evidence(),
        confidence=case.sureness,
        risk=Level.HIGH if not need.sure else Level.MEDIUM if case.may_serve or fit.profile.estimated else Level.LOW,
        risk_words=_risk(case, fit, need),
        savings=savings(case.config, case.model, hours),
        change=Change(resource=case.resource, count=1, to_resource=fit.profile.resource, to_count=1),
        predicted=Predicted(
            slowdown_low=fit.slowdown.low,
            slowdown_high=fit.slowdown.high,
            memory_needed=need.needed,
            memory_offered=fit.profile.memory,
        ),
    )


def best_fit(case: Case) -> Fit | None:
    """By memory and by compute; None: no smaller one will do, or nobody can tell."""
    model, need = mig_profiles.model_of(case.model), case.memory()
    if model is None or need is None or not case.is_single or is_full(need.peak, case.summary.memory_total):
        return None
    return next((fit for fit in fits_by_compute(case, model) if need.needed <= fit.profile.memory), None)


def fits_by_compute(case: Case, model: GpuModel) -> list[Fit]:
    """Smaller instances on which the work is not slowed beyond `max_mig_slowdown`, whatever its memory: least first."""
    now = _share_now(case, model)
    slowdowns = {each.profile: each for each in case.summary.slowdowns}
    found = [
        Fit(profile=profile, slowdown=slowdowns[profile.name], saved=now - model.share(profile))
        for profile in model.plain()
        if now is not None and profile.name in slowdowns and model.share(profile) < now
    ]
    fits = [fit for fit in found if fit.slowdown.high <= case.config.max_mig_slowdown]
    return sorted(fits, key=lambda fit: -fit.saved)


def _share_now(case: Case, model: GpuModel) -> float | None:
    """Of a GPU; None: not all of its devices are alike, or the instance is in no table."""
    if not case.profile:
        return None if case.profile is None else 1.0
    profile = mig_profiles.instance(case.model, None, case.profile)
    return model.share(profile) if profile else None


def _why(case: Case, fit: Fit, need: Demand) -> str:
    busy = case.summary.busy
    work = f"Busy {percent(busy.mean)} of the time, {percent(busy.p95)} at the 95th percentile. " if busy else ""
    grown = f", growing by {gib(need.per_day)} a day" if need.per_day >= LITTLE else ""
    return (
        f"{work}At most {gib(need.peak)} of memory{grown}: {gib(need.needed)} with margin, "
        f"of {gib(fit.profile.memory)}. On {fit.profile.name} it takes {percent(max(0.0, fit.slowdown.low))} to "
        f"{percent(fit.slowdown.high)} longer."
    )


def _risk(case: Case, fit: Fit, need: Demand) -> str:
    parts = ["The slowdown is computed from counters, not measured: try one pod first."]
    if not need.sure:
        parts.append("Too few days to see whether its memory grows.")
    if fit.profile.estimated:
        parts.append("Its usable memory or multiprocessors are estimated.")
    if case.may_serve:
        parts.append("Answers may come later at the peak.")
    return " ".join(parts)


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
