"""What a remediator reports of itself: the state that metrics and pages show, log lines, counts, and a file."""

import contextlib
import logging
import re
from collections import Counter
from pathlib import Path

from msgspec.structs import replace

from gpuwatch.agent.roles import REMEDIATOR_STATE
from gpuwatch.config import Mode
from gpuwatch.kube.errors import KubeError
from gpuwatch.kube.objects import NodeObject
from gpuwatch.model.clock import Clock
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.event import Result
from gpuwatch.model.snapshot import Record, Snapshot
from gpuwatch.remediation.model import Blocked, BlockReason, Plan, RemediatorState
from gpuwatch.remediation.planning.slots import Slots
from gpuwatch.remediation.service.executor import PlanOutcome, action_of, audit_entry
from gpuwatch.storage.audit import Audit
from gpuwatch.storage.versioned_file import VersionedFile

log = logging.getLogger(__name__)


WRITE_SECONDS = 10.0
FRESH_SECONDS = 60.0
"""A remediator writes its state each WRITE_SECONDS, and when it changes. A state older than FRESH_SECONDS is of a
process that hangs or is gone: the longest step, with requests that time out, is shorter.
"""


class RunningRemediator(Record, frozen=True, kw_only=True):
    """The remediator of this machine. `at`: unix seconds of its newest report."""

    node: str
    mode: Mode
    at: float
    quarantined: bool = False
    """The Node has our taint: no new work comes to its GPUs."""


class RemediatorStatusFile:
    """The file in `directory`, "" for none: from it `gpuwatch node` reads the mode of the process, which may depend on
    options and variables of the process alone. It means nothing after a reboot: it is not flushed.
    """

    def __init__(self, directory: str) -> None:
        path = Path(directory) / REMEDIATOR_STATE
        self._file = VersionedFile(path, RunningRemediator, durable=False) if directory else None
        self._written: RunningRemediator | None = None

    def write(self, running: RunningRemediator) -> None:
        """Replace it where it is due. A state folder that cannot be written is reported by the store, not here."""
        last = self._written
        is_due = last is None or replace(running, at=last.at) != last or not 0 <= running.at - last.at < WRITE_SECONDS
        if self._file is not None and is_due:
            with contextlib.suppress(GpuwatchError):
                self._file.write(running)
            self._written = running

    def clear(self) -> None:
        """Remove it, at the end."""
        if self._file is not None:
            with contextlib.suppress(GpuwatchError):
                self._file.remove()

    def read(self, now: float) -> RunningRemediator | None:
        """None: no remediator runs here, or its state cannot be read."""
        found = None
        if self._file is not None:
            with contextlib.suppress(GpuwatchError):
                found = self._file.read()
        return found if found is not None and abs(now - found.at) <= FRESH_SECONDS else None


class StatusReporter:
    """Reports each change once: a state that stays as it is makes no second line."""

    def __init__(self, node: str, audit: Audit, clock: Clock) -> None:
        self._audit, self._clock = audit, clock
        self._actions: Counter[tuple[str, str]] = Counter()
        self._errors: Counter[str] = Counter()
        self._observed: object = None
        self._reported: object = None
        self.state = RemediatorState(node=node, mode="off")

    def mode_changed(self, mode: Mode) -> None:
        """A configuration takes effect."""
        self._observed = None
        self.state = replace(self.state, mode=mode)

    def refused(self, error: KubeError) -> None:
        """A request failed."""
        self._errors[type(error).__name__] += 1

    def acted(self, outcome: PlanOutcome) -> None:
        """Steps were done or not."""
        for each in outcome.steps:
            self._actions[action_of(each.step), each.result] += 1
            if isinstance(each.error, KubeError):
                self.refused(each.error)

    def observed(self, made: Plan, node: NodeObject) -> None:
        """Record what would be done, once for as long as it stays the same."""
        entries = tuple(audit_entry(step, made, node) for step in made.steps)
        steps = tuple((entry.action, entry.after) for entry in entries)  # not the target: all slots are alike
        if steps == self._observed:
            return
        self._observed = steps
        for entry in entries:
            self._audit.note(entry, Result.OBSERVED)
            self._actions[entry.action, Result.OBSERVED] += 1

    def settled(self, made: Plan) -> None:
        """A cycle succeeded."""
        self._show(made, None)

    def failed(self, error: GpuwatchError, made: Plan | None) -> None:
        """A cycle failed; `made` is its plan, None where it made none: then the last plan is still shown."""
        reason = BlockReason.PERMISSION if error.exit_code == 6 else BlockReason.API
        made = made or self.state.plan
        if made is not None:
            others = tuple(each for each in made.blocked if each.reason is not reason)
            made = replace(made, blocked=(*others, Blocked(reason=reason, message=str(error))))
        self._show(made, str(error))

    def read(self, slots: Slots | None, most: int | None, snapshot: Snapshot | None) -> None:
        """How the budget was when it was last read, how old the View is, and of which machine."""
        leases = slots.leases if slots else None
        used = None if leases is None else sum(bool(lease.holder) for lease in leases)
        at, boot_id = (snapshot.at, snapshot.host.boot_id) if snapshot else (None, self.state.boot_id)
        self.state = replace(self.state, slots=most, slots_used=used, view_at=at, boot_id=boot_id)

    def _show(self, made: Plan | None, trouble: str | None) -> None:
        self.state = replace(
            self.state,
            plan=made,
            planned_at=self._clock.time() if trouble is None else self.state.planned_at,
            actions=dict(self._actions),
            errors=dict(self._errors),
            trouble=trouble,
        )
        text = re.sub(r"\b\d+ s\b", "", made.message) if made else ""  # without the seconds that count down in it
        report = (trouble, made and (made.stage, text, tuple(each.reason for each in made.blocked)))
        if report == self._reported:
            return
        self._reported = report
        if made is not None:
            mistaken = any(each.reason is BlockReason.IDENTITY for each in made.blocked)
            level = logging.ERROR if mistaken else logging.INFO
            log.log(level, "%s: %s%s", made.node, made.stage, f"; {made.message}" if made.message else "")
        if trouble is not None:
            log.warning("%s", trouble)
