"""Findings whose remedy is not another size: more CPU, faster input, a server's setting, or the tuner."""

from gpuwatch.model.consent import AUTOTUNE, CLASS
from gpuwatch.model.recommendation import Action, Change, Finding, Level, Recommendation
from gpuwatch.rightsizing.findings.advice import advice, held_words, savings
from gpuwatch.rightsizing.findings.partition import by_time, fits_by_compute
from gpuwatch.rightsizing.findings.preallocators import preallocator
from gpuwatch.rightsizing.findings.text import gib, percent
from gpuwatch.rightsizing.findings.workload import Case
from gpuwatch.rightsizing.model import mig_profiles
from gpuwatch.rightsizing.usage.allocation import IDLE_BUSY

THROTTLED = 0.1
"""Of the CPU's periods: the container wanted more than its limit."""

HELD_BACK = 0.25
"""Of the CPU's periods: who was held back so often waits for it, also where no swings were seen."""

SWINGS = 0.3
"""Of its time in windows that swing between idle and busy."""

OFTEN_IDLE = 0.6
"""Mean busy: above it the GPU does not wait for long."""

LITTLE_DRAM = 0.05
LITTLE_PCIE = 1e9
"""Bytes a second: more is input that comes, if not in time."""


def cpu_bound(case: Case) -> Recommendation | None:
    """Its CPU limit holds it back: raise that before anything is taken away."""
    throttled = case.summary.cpu_throttled
    if throttled is None or throttled <= THROTTLED or not _waits(case, held_back=throttled):
        return None
    return _advice(
        case,
        Finding.CPU_BOUND,
        Action.RAISE_CPU,
        "raise the CPU limit",
        f"Its container was held back by its CPU limit in {percent(throttled)} of all periods.",
    )


def io_bound(case: Case) -> Recommendation | None:
    """It waits, and not for its CPU limit. Only of batch: what serves waits for requests, a notebook for its author."""
    throttled = case.summary.cpu_throttled
    if case.may_serve or case.summary.work_class != "batch" or (throttled or 0.0) > THROTTLED or not _waits(case):
        return None
    known = "Its CPU limit is not the cause." if throttled is not None else "Whether its CPU limit is, is not known."
    return _advice(case, Finding.IO_BOUND, Action.LOOK_AT_INPUT, "look at its input", known)


def _waits(case: Case, held_back: float = 0.0) -> bool:
    summary = case.summary
    swings = summary.sawtooth is not None and summary.sawtooth >= SWINGS
    if summary.busy is None or not (swings or held_back >= HELD_BACK):
        return False
    is_little = (summary.dram is None or summary.dram.mean < LITTLE_DRAM) and (
        summary.pcie is None or summary.pcie.mean < LITTLE_PCIE
    )
    return IDLE_BUSY <= summary.busy.mean < OFTEN_IDLE and is_little


def _advice(case: Case, finding: Finding, action: Action, recommended: str, cause: str) -> Recommendation:
    mean, swings = case.summary.busy.mean if case.summary.busy else 0.0, case.summary.sawtooth or 0.0
    how = f"; in {percent(swings)} of it, it swings between busy and idle" if swings >= SWINGS else ""
    return advice(
        case,
        finding,
        holds=case.present,
        action=action,
        current=held_words(case.present) or "1 x GPU",
        recommended=recommended,
        why=f"Busy {percent(mean)} of the time{how}. {cause}",
        evidence=case.evidence(),
        confidence=case.sureness,
        risk=Level.LOW,
        risk_words="None for the GPU: more CPU or faster input only lets it work more.",
        savings=savings(case.config, case.model, 0.0),
        change=Change(resource=case.resource, count=case.summary.gpus_per_pod),
    )


def preallocated(case: Case) -> Recommendation | None:
    """Only where something could be won: its compute would fit a MIG instance or leave time for others."""
    model, busy = mig_profiles.model_of(case.model), case.summary.busy
    if not case.is_preallocating or not case.is_single or busy is None:
        return None
    smaller = fits_by_compute(case, model) if model else []
    if not smaller and by_time(case) < 2:
        return None
    known = preallocator(case.summary.programs, case.summary.key.image)
    took = max((hold.memory_at_start or 0 for hold in case.summary.holds), default=0)
    then = f"{smaller[0].profile.name} by compute" if smaller else "shared by time"
    setting = known.setting if known else None
    return advice(
        case,
        Finding.PREALLOCATED,
        holds=case.present,
        action=Action.CHANGE_SETTING,
        current=held_words(case.present) or "1 x GPU",
        recommended=f"lower {setting}" if setting else "reserve less memory at the start",
        why=f"Took {gib(took)} of {gib(case.summary.memory_total or 0)} as it began and has kept it: what it needs "
        f"cannot be seen. Busy {percent(busy.mean)} of the time; the GPU could be {then}."
        + (f" {known.name} takes {known.default}: {known.advice}." if known else ""),
        evidence=case.evidence(),
        confidence=case.sureness,
        risk=Level.MEDIUM,
        risk_words="With less memory for its cache it may serve fewer at a time: lower it in steps, and watch.",
        savings=savings(case.config, case.model, 0.0),
        change=Change(resource=case.resource, count=1, setting=setting),
    )


BUSY_ENOUGH = 0.5
"""Mean: the tuner needs work to compare with."""

SAVED = 0.15
"""Of the draw above idle: what the tuner's evaluation found, as an estimate (docs/tuner-evaluation.md)."""

HOURS = 24.0


def energy(case: Case) -> Recommendation | None:
    """Whole GPUs of batch work, where no annotation says anything about tuning yet."""
    busy, watts = case.summary.busy, case.summary.watts
    is_batch = case.summary.work_class == "batch" and not case.may_serve
    if not is_batch or case.summary.autotune is not None or case.shared or case.profile != "":
        return None
    if busy is None or busy.mean < BUSY_ENOUGH or not case.summary.key.namespace:
        return None
    saved = _saved(case)
    drawn = f" It draws {watts.mean:.0f} W a GPU." if watts else ""
    return advice(
        case,
        Finding.ENERGY,
        holds=case.present,
        action=Action.TUNE,
        current=held_words(case.present) or "1 x GPU",
        recommended="let the tuner save energy",
        why=f"Busy {percent(busy.mean)} of the time, and nobody waits for its answers.{drawn} The tuner has saved "
        f"about {percent(SAVED)} of the draw above idle in its evaluation, at 5 % longer runs or less.",
        evidence=case.evidence(),
        confidence=case.sureness,
        risk=Level.LOW,
        risk_words="It takes up to 5 % longer, unless its annotations or the configuration say otherwise.",
        savings=savings(case.config, case.model, 0.0, saved),
        change=Change(
            resource=case.resource,
            count=case.summary.gpus_per_pod,
            annotations={AUTOTUNE: "enforce", CLASS: "batch"},
        ),
    )


def _saved(case: Case) -> float | None:
    """Watts, as a mean over all hours of a day. None: draw or draw at rest is not known."""
    known = {hold.gpu for hold in case.summary.holds}
    idle = [gpu.idle_watts for gpu in case.ground.fleet.gpus if gpu.uuid in known and gpu.idle_watts is not None]
    idle += [hold.loaded_idle_watts for hold in case.summary.holds if hold.loaded_idle_watts is not None]
    if case.summary.watts is None or not idle:
        return None
    return SAVED * max(0.0, case.summary.watts.mean - min(idle)) * case.hours_per_day / HOURS
