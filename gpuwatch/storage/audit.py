"""The audit trail: one JSON line for every decision, and a row of the store, written before the act and after it.

A line has what, why, evidence, before, after and result. A row `intended` without a later one of its number was
interrupted: its action may or may not have happened, and the next cycle reads the state.
"""

import logging
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from gpuwatch.model.clock import Clock
from gpuwatch.model.event import ActionEvent, Result
from gpuwatch.model.text import json_text

log = logging.getLogger("gpuwatch.audit")
"""Its messages are the JSON lines; give it a handler of its own for a file with nothing else."""


class ActionStore(Protocol):
    """Where actions and memories are kept: `storage.store.Store`, or a stand-in that keeps nothing."""

    def record(self, action: ActionEvent, /) -> int:
        """Keep it and return its number; one that is `intended` is on the disk when this returns."""
        ...

    def memory(self, name: str, /) -> bytes | None:
        """The document kept under a name."""
        ...

    def remember(self, name: str, body: bytes, /) -> None:
        """Keep a small document."""
        ...


class AuditEntry(NamedTuple):
    """What is to be done: `before` and `after` are short texts of what changes."""

    action: str
    target: str
    why: str = ""
    evidence: tuple[str, ...] = ()
    before: str = ""
    after: str = ""


class Audit:
    """The trail of one actor on one node."""

    def __init__(
        self, ledger: ActionStore, clock: Clock, *, actor: str = "remediator", boot_id: str | None = None
    ) -> None:
        self._ledger, self._clock, self._actor, self.boot_id = ledger, clock, actor, boot_id
        self._open: dict[AuditEntry, int] = {}

    def intend(self, entry: AuditEntry) -> int:
        """Write that it is about to be tried; its number. Tried again after a conflict, it is not written twice."""
        number = self._open.get(entry)
        if number is None:
            self._open.clear()  # an action that is tried again after another one is a new intention
            number = self._open[entry] = self._write(entry, Result.INTENDED)
        return number

    def finish(self, entry: AuditEntry, number: int, result: Result, detail: str = "") -> None:
        """Write the result."""
        self._open.pop(entry, None)
        self._write(entry, result, number=number, detail=detail)

    def note(self, entry: AuditEntry, result: Result, detail: str = "") -> None:
        """Write what needs no row before it: an action observed or left out."""
        self._write(entry, result, detail=detail)

    def _write(self, entry: AuditEntry, result: Result, *, number: int | None = None, detail: str = "") -> int:
        event = ActionEvent(
            at=self._clock.time(),
            actor=self._actor,
            result=result,
            number=number,
            detail=detail,
            boot_id=self.boot_id,
            **entry._asdict(),
        )
        given = self._ledger.record(event)
        log.info("%s", json_text(msgspec.json.encode(replace(event, number=given))))
        return given
