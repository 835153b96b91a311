"""Work whose GPU waits: for the CPU, or for its input. A smaller GPU would not wait less, and hides the cause."""

from gpuwatch.model.recommendation import Action, Change, Finding, Level, Recommendation
from gpuwatch.rightsizing.findings.advice import advice, held_words
from gpuwatch.rightsizing.findings.savings import savings
from gpuwatch.rightsizing.findings.text import percent
from gpuwatch.rightsizing.findings.workload import Case
from gpuwatch.rightsizing.usage.holding import IDLE_BUSY

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
