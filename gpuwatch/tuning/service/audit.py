"""The tuner's decisions as lines of the audit, each with what came of it."""

from collections.abc import Iterable, Mapping

from gpuwatch.model.event import Result
from gpuwatch.storage.audit import Audit, AuditEntry
from gpuwatch.tuning.cycle.orders import Told
from gpuwatch.tuning.model.order import Outcome, Turned

RESULTS: Mapping[Outcome, Result] = {
    Outcome.DONE: Result.DONE,
    Outcome.FAILED: Result.FAILED,
    Outcome.SILENT: Result.FAILED,
    Outcome.REFUSED: Result.FAILED,
    Outcome.FOREIGN: Result.SKIPPED,
}


class Deeds:
    """Writes them down; without an audit, nowhere."""

    def __init__(self, audit: Audit | None) -> None:
        self._audit = audit

    def note(self, told: Iterable[Told], turned: Iterable[Turned]) -> None:
        """One line for each decision. A decision without an order is done by being made."""
        if self._audit is None:
            return
        by_key = {(each.order.uuid, each.order.knob): each for each in turned}
        for each in told:
            found = by_key.get((each.uuid, each.knob)) if each.knob is not None else None
            deed = AuditEntry(
                action=each.action, target=f"gpu/{each.uuid}", why=each.why, before=each.before, after=each.after
            )
            self._audit.note(deed, RESULTS[found.outcome] if found else Result.DONE, found.words if found else "")
