"""Work that takes most of a GPU's memory as it starts and keeps it: the setting to look at, no verdict on memory."""

from gpuwatch.model.recommendation import Action, Change, Finding, Level, Recommendation
from gpuwatch.rightsizing.findings.advice import advice, held_words
from gpuwatch.rightsizing.findings.mig import fits_by_compute
from gpuwatch.rightsizing.findings.preallocators import preallocator
from gpuwatch.rightsizing.findings.savings import savings
from gpuwatch.rightsizing.findings.sharing import by_time
from gpuwatch.rightsizing.findings.text import gib, percent
from gpuwatch.rightsizing.findings.workload import Case
from gpuwatch.rightsizing.model import mig_profiles


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
