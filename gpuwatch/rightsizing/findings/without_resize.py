"""Findings whose remedy is not another size: more CPU, faster input, a server's setting, or the tuner."""

from gpuwatch.model.consent import AUTOTUNE, CLASS
from gpuwatch.rightsizing.findings.advice import Proposal, Risk, advice, allocation_text, savings
from gpuwatch.rightsizing.findings.partition import fits_by_compute, most_by_time
from gpuwatch.rightsizing.findings.preallocators import preallocator
from gpuwatch.rightsizing.findings.text import gib, percent
from gpuwatch.rightsizing.findings.workload import WorkloadFacts
from gpuwatch.rightsizing.model import mig_profiles
from gpuwatch.rightsizing.model.recommendation import (
    FindingKind,
    Level,
    Recommendation,
    RecommendedAction,
    RecommendedChange,
)
from gpuwatch.rightsizing.usage.allocation import IDLE_BUSY

THROTTLED = 0.1
"""Of the CPU's periods: the container wanted more than its limit."""

HELD_BACK = 0.25
"""Of the CPU's periods: a container held back in so many waits for its CPU, even if its GPU shows no swings."""

SWINGS = 0.3
"""Of its time in windows that swing between idle and busy."""

OFTEN_IDLE = 0.6
"""Mean busy: above it the GPU does not wait for long."""

LITTLE_DRAM = 0.05
LITTLE_PCIE = 1e9
"""Bytes a second: above it, input does arrive, even if too late."""


def cpu_bound(facts: WorkloadFacts) -> Recommendation | None:
    """Its CPU limit holds it back: raise that before its GPU is made smaller."""
    throttled = facts.summary.cpu_throttled
    if throttled is None or throttled <= THROTTLED or not _waits(facts, held_back=throttled):
        return None
    return _advice(
        facts,
        FindingKind.CPU_BOUND,
        RecommendedAction.RAISE_CPU,
        "raise the CPU limit",
        f"Its container was held back by its CPU limit in {percent(throttled)} of all periods.",
    )


def io_bound(facts: WorkloadFacts) -> Recommendation | None:
    """It waits, and its CPU limit is no known cause. Batch only: servers wait for requests, notebooks for people."""
    throttled = facts.summary.cpu_throttled
    if facts.may_serve or facts.summary.work_class != "batch" or (throttled or 0.0) > THROTTLED or not _waits(facts):
        return None
    known = "Its CPU limit is not the cause." if throttled is not None else "Whether its CPU limit is, is not known."
    return _advice(facts, FindingKind.IO_BOUND, RecommendedAction.LOOK_AT_INPUT, "look at its input", known)


def _waits(facts: WorkloadFacts, held_back: float = 0.0) -> bool:
    summary = facts.summary
    swings = summary.sawtooth is not None and summary.sawtooth >= SWINGS
    if summary.busy is None or not (swings or held_back >= HELD_BACK):
        return False
    is_little = (summary.dram is None or summary.dram.mean < LITTLE_DRAM) and (
        summary.pcie is None or summary.pcie.mean < LITTLE_PCIE
    )
    return IDLE_BUSY <= summary.busy.mean < OFTEN_IDLE and is_little


def _advice(
    facts: WorkloadFacts, finding: FindingKind, action: RecommendedAction, recommended: str, cause: str
) -> Recommendation:
    mean, swings = facts.summary.busy.mean if facts.summary.busy else 0.0, facts.summary.sawtooth or 0.0
    how = f"; in {percent(swings)} of it, it swings between busy and idle" if swings >= SWINGS else ""
    return advice(
        facts,
        finding,
        Proposal(
            action=action,
            current=allocation_text(facts.present) or "1 x GPU",
            recommended=recommended,
            change=RecommendedChange(resource=facts.resource, count=facts.summary.gpus_per_pod),
        ),
        Risk(level=Level.LOW, text="None for the GPU: more CPU or faster input only lets it work more."),
        why=f"Busy {percent(mean)} of the time{how}. {cause}",
        savings=savings(facts.config, facts.model, 0.0),
    )


def preallocated(facts: WorkloadFacts) -> Recommendation | None:
    """Only where less memory would help: its compute would fit a MIG instance, or leave time for others."""
    model, busy = mig_profiles.model_of(facts.model), facts.summary.busy
    if not facts.is_preallocating or not facts.is_single or busy is None:
        return None
    smaller = fits_by_compute(facts, model) if model else []
    if not smaller and most_by_time(facts) < 2:
        return None
    known = preallocator(facts.summary.programs, facts.summary.key.image)
    took = max((hold.memory_at_start or 0 for hold in facts.summary.holds), default=0)
    then = f"{smaller[0].profile.name} by compute" if smaller else "shared by time"
    setting = known.setting if known else None
    return advice(
        facts,
        FindingKind.PREALLOCATED,
        Proposal(
            action=RecommendedAction.CHANGE_SETTING,
            current=allocation_text(facts.present) or "1 x GPU",
            recommended=f"{known.change} {known.setting}"
            if known and known.setting
            else "reserve less memory at the start",
            change=RecommendedChange(resource=facts.resource, count=1, setting=setting),
        ),
        Risk(
            level=Level.MEDIUM,
            text="With less memory for its cache it may serve fewer at a time: lower it in steps, and watch.",
        ),
        why=f"Took {gib(took)} of {gib(facts.summary.memory_total or 0)} as it began and has kept it: what it needs "
        f"cannot be seen. Busy {percent(busy.mean)} of the time; the GPU could be {then}."
        + (f" {known.name} takes {known.default}: {known.advice}." if known else ""),
        savings=savings(facts.config, facts.model, 0.0),
    )


BUSY_ENOUGH = 0.5
"""Mean: the tuner needs work to compare with."""

SAVED = 0.15
"""Of the draw above idle: what the tuner's evaluation found, as an estimate (docs/tuner-evaluation.md)."""

HOURS = 24.0


def energy(facts: WorkloadFacts) -> Recommendation | None:
    """Whole GPUs of batch work, where no annotation about tuning is set."""
    busy, watts = facts.summary.busy, facts.summary.watts
    is_batch = facts.summary.work_class == "batch" and not facts.may_serve
    if not is_batch or facts.summary.autotune is not None or facts.shared or facts.profile != "":
        return None
    if busy is None or busy.mean < BUSY_ENOUGH or not facts.summary.key.namespace:
        return None
    known = {hold.gpu for hold in facts.summary.holds}
    idle = [gpu.idle_watts for gpu in facts.context.fleet.gpus if gpu.uuid in known and gpu.idle_watts is not None]
    idle += [hold.loaded_idle_watts for hold in facts.summary.holds if hold.loaded_idle_watts is not None]
    saved = None  # watts, as a mean over all hours of a day
    if watts is not None and idle:
        saved = SAVED * max(0.0, watts.mean - min(idle)) * facts.hours_per_day / HOURS
    drawn = f" It draws {watts.mean:.0f} W a GPU." if watts else ""
    return advice(
        facts,
        FindingKind.ENERGY,
        Proposal(
            action=RecommendedAction.TUNE,
            current=allocation_text(facts.present) or "1 x GPU",
            recommended="let the tuner save energy",
            change=RecommendedChange(
                resource=facts.resource,
                count=facts.summary.gpus_per_pod,
                annotations={AUTOTUNE: "enforce", CLASS: "batch"},
            ),
        ),
        Risk(
            level=Level.LOW,
            text="It takes up to 5 % longer, unless its annotations or the configuration say otherwise.",
        ),
        why=f"Busy {percent(busy.mean)} of the time, and no client waits for its answers.{drawn} The tuner has saved "
        f"about {percent(SAVED)} of the draw above idle in its evaluation, at 5 % longer runs or less.",
        savings=savings(facts.config, facts.model, 0.0, saved),
    )
