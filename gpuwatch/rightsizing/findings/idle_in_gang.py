"""Pods with several GPUs of which one does nothing while the others work."""

from gpuwatch.model.recommendation import Action, Change, Finding, Level, Recommendation
from gpuwatch.rightsizing.findings.advice import advice, held_words
from gpuwatch.rightsizing.findings.quiet import quiet_seconds
from gpuwatch.rightsizing.findings.savings import savings
from gpuwatch.rightsizing.findings.text import percent, span
from gpuwatch.rightsizing.findings.workload import Case, by_pod
from gpuwatch.rightsizing.model.usage import Hold
from gpuwatch.rightsizing.usage.holding import IDLE_BUSY

OTHERS_BUSY = 0.3
"""At least, mean over the hold, of every GPU that is not spare."""

QUIET = 0.9
"""Of the time it was held: something may run on every GPU at the start."""


def gang_oversized(case: Case) -> Recommendation | None:
    """Every pod has as many to spare, and has had them for as long as a size must be known."""
    count = case.summary.gpus_per_pod
    if count < 2 or case.profile != "" or case.shared or not case.present:
        return None
    spare = [_spare(case, holds) for _, holds in by_pod(case.present)]
    fewest = min(map(len, spare))
    if not 0 < fewest < count:
        return None
    holds = tuple(hold for each in spare for hold in each)
    quiet = min(quiet_seconds(hold, case.ground) or 0.0 for hold in holds)
    others = [hold.busy for hold in case.present if hold not in holds and hold.busy is not None]
    return advice(
        case,
        Finding.GANG_OVERSIZED,
        holds=holds,
        action=Action.REDUCE,
        current=f"{count} x {case.resource or 'GPU'}",
        recommended=f"{count - fewest} x {case.resource or 'GPU'}",
        why=f"{fewest} of {count} GPUs of each pod did nothing for {span(quiet)}, while every other one was busy "
        f"{percent(min(others))} of the time or more. Now: {held_words(case.present)}.",
        evidence=case.evidence(idle=quiet),
        confidence=case.sureness,
        risk=Level.MEDIUM,
        risk_words=f"The work may not divide by {count - fewest}, as tensor parallelism and batch sizes often do not: "
        "try it, or lower what it asks for to what it uses.",
        savings=savings(case.config, case.model, case.hours_per_day * fewest / count),
        change=Change(resource=case.resource, count=count, to_resource=case.resource, to_count=count - fewest),
    )


def _spare(case: Case, holds: tuple[Hold, ...]) -> tuple[Hold, ...]:
    """GPUs of one pod that are not needed; none where not all of its GPUs are known, or any is in between."""
    if len({hold.gpu for hold in holds}) != case.summary.gpus_per_pod:
        return ()
    spare = tuple(hold for hold in holds if _is_spare(case, hold))
    at_work = [hold for hold in holds if hold.busy is not None and hold.busy >= OTHERS_BUSY]
    return spare if len(spare) + len(at_work) == len(holds) else ()


def _is_spare(case: Case, hold: Hold) -> bool:
    held, quiet = hold.last - hold.since, quiet_seconds(hold, case.ground)
    if quiet is None or hold.busy is None or hold.busy >= IDLE_BUSY or held < case.config.min_history:
        return False
    return quiet >= max(case.config.idle_after, QUIET * (held - case.config.grace))
