"""Work that takes most of a GPU's memory as it starts and keeps it: the setting to look at, no verdict on memory."""

from gpuwatch.model import mig_profiles
from gpuwatch.model.recommendation import Action, Change, Finding, Level, Recommendation
from gpuwatch.rules.preallocators import preallocator
from gpuwatch.rules.rightsizing_advice import advice, held_words
from gpuwatch.rules.rightsizing_case import Case
from gpuwatch.rules.rightsizing_mig import fits_by_compute
from gpuwatch.rules.rightsizing_savings import savings
from gpuwatch.rules.rightsizing_share import by_time
from gpuwatch.rules.rightsizing_words import gib, percent


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
