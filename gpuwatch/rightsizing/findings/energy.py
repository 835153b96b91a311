"""Batch work that keeps its GPU busy: nobody waits for an answer, so the tuner may trade a little speed for energy."""

from gpuwatch.model.consent import AUTOTUNE, CLASS
from gpuwatch.model.recommendation import Action, Change, Finding, Level, Recommendation
from gpuwatch.rightsizing.findings.advice import advice, held_words
from gpuwatch.rightsizing.findings.savings import savings
from gpuwatch.rightsizing.findings.text import percent
from gpuwatch.rightsizing.findings.workload import Case

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
