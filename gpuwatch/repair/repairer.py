"""`gpuwatch repairer`: every ten seconds it resets a GPU that needs a reset and may have one; where there is none, it
validates a GPU of the quarantine.

One GPU at a time. A lock in `state_dir` keeps a second repairer out, and a repairer that only observes has no GpuReset.
"""

import logging
import math
from collections.abc import Callable, Collection
from pathlib import Path

import msgspec
from msgspec.structs import replace

from gpuwatch.agent.client import AgentViews
from gpuwatch.agent.repairs import MAX_CLOSED_SECONDS, keep_validations, mark_repaired, publish_repairer, validations
from gpuwatch.agent.support_cases import AGAIN_SECONDS, keep_case
from gpuwatch.config import Config
from gpuwatch.diagnose.validation import ValidationCommand, ValidationRun, validate
from gpuwatch.health.checks import CHECKS
from gpuwatch.model.clock import Clock
from gpuwatch.model.event import Result
from gpuwatch.model.finding import Finding, Response
from gpuwatch.model.view import STALE_INTERVALS, GpuRepair, RepairerStatus, View
from gpuwatch.remediation.planning.evidence import in_force
from gpuwatch.remediation.planning.policy import Policy
from gpuwatch.remediation.service.status import RemediatorStatusFile
from gpuwatch.repair.eligibility import candidates, refusal
from gpuwatch.repair.reset import GpuReset, RepairRecord, record_file
from gpuwatch.storage.audit import Audit, AuditEntry
from gpuwatch.storage.store import Store

log = logging.getLogger(__name__)

REST_SECONDS = 10.0
REPORTED = "bug_reports"
"""GPU uuid -> when its report was begun last, in the store."""

SETTLE_SECONDS = 120.0
"""Seconds that the agent has after a reset to judge the GPU; only then may another reset begin."""


class Repairer:
    """Does the repairs of one node. `wait` sleeps; `prove` validates a GPU."""

    def __init__(
        self,
        config: Config,
        views: AgentViews,
        store: Store,
        clock: Clock,
        boot_id: str | None,
        wait: Callable[[float], None],
        prove: Callable[..., ValidationRun] = validate,
    ) -> None:
        self._config, self._views, self._store, self._clock, self._boot_id = config, views, store, clock, boot_id
        self._prove, self._mode = prove, config.repair.mode
        self._policy = Policy.compile(config.remediation, CHECKS, config.checks.xids)
        self._audit = Audit(store, clock, actor="repairer", boot_id=boot_id)
        self._file = record_file(Path(config.state_dir))
        self._closed: str | None = None
        self.status: tuple[GpuRepair, ...] = ()
        """The state of each GPU that needs a reset."""
        self._observed: set[str] = set()
        self._faults: dict[str | None, float] = {}
        """GPU, None: the node -> its newest fault that takes the node out, and that may be over by now."""
        self._not_begun: dict[str, tuple[float, str]] = {}
        """GPU -> when a reset could not even be begun, and why."""
        self._reset: GpuReset | None = None
        if self._mode == "enforce":
            proc = Path(config.sources.proc)
            dev = Path(config.sources.dev)
            self._reset = GpuReset(
                config.repair, proc, dev, self._file, self._audit, clock, self._poll, self._close, wait
            )

    def start(self) -> None:
        """Restore what an earlier process left changed. Raises GpuwatchError: the record cannot be used."""
        if self._reset is not None:
            self._reset.recover(self._boot_id)
        self._publish()

    def step(self) -> None:
        """One cycle: at most one reset or one validation. Raises GpuwatchError: the record cannot be used."""
        view = self._poll()
        if view is None:
            self.status = ()
        elif view.snapshot.host.boot_id != self._boot_id:
            log.warning("the agent's view is of another machine or boot; nothing is done")
            self.status = ()
        else:
            for fault in in_force(view, self._policy, Response.TAINT):
                self._faults[fault.gpu] = max(fault.last, self._faults.get(fault.gpu, fault.last))
            asked = candidates(view, self._policy)
            self.status = tuple(self._standing(view, uuid) for uuid in sorted(asked))
            ready = [each.gpu for each in self.status if not each.message]
            for uuid in ready[:1]:
                self._act(view, asked[uuid])
            if not ready:
                self._validate(view, asked)
        self._publish()

    def _standing(self, view: View, uuid: str) -> GpuRepair:
        """The state of a GPU that needs a reset; no message: it is to be reset now."""
        config, now = self._config.repair, self._clock.time()
        recorded = (self._file.read() or RepairRecord()).tries.get(uuid, ())
        tries = [at for at in recorded if now - at < config.window]
        if len(tries) >= config.tries and now - tries[-1] >= SETTLE_SECONDS:
            message = f"{len(tries)} resets did not help; the next step is a reboot"
            return GpuRepair(gpu=uuid, state="given_up", tries=len(tries), message=message)
        if tries and 0 <= now - tries[-1] < SETTLE_SECONDS:
            message = "a reset was tried; the agent is given time to judge the GPU"
            return GpuRepair(gpu=uuid, state="waiting", tries=len(tries), message=message)
        at, message = self._not_begun.get(uuid, (-math.inf, ""))
        if not 0 <= now - at < SETTLE_SECONDS:
            message = self._not_quarantined() or refusal(view, uuid) or ""
        return GpuRepair(gpu=uuid, state="waiting", tries=len(tries), message=message)

    def _not_quarantined(self) -> str | None:
        running = RemediatorStatusFile(self._config.state_dir).read(self._clock.time())
        if self._config.repair.quarantined_only and not (running and running.quarantined):
            return "the remediator does not hold this node's quarantine, so new work may come"
        return None

    def _act(self, view: View, finding: Finding) -> None:
        uuid = finding.gpu or ""
        gpu = next(gpu for gpu in view.snapshot.gpus if gpu.identity.uuid == uuid)
        if self._reset is None:
            if finding.key not in self._observed:
                why = f"{finding.check} on GPU {gpu.identity.index}: {finding.message}"
                self._audit.note(AuditEntry("reset_gpu", f"gpu/{uuid}", why, (finding.key,)), Result.OBSERVED)
                self._observed.add(finding.key)
            self._set(uuid, message="mode observe: it would be reset now")
            return
        kept, at = self._config.support, self._clock.time()
        reported = self._store.remembered(REPORTED, dict[str, float]) or {}
        if kept.bug_report and at - reported.get(uuid, -math.inf) >= AGAIN_SECONDS:
            self._store.remember(REPORTED, msgspec.json.encode(reported | {uuid: at}))  # first: a failed one counts
            self._set(uuid, message="the bug report is written")
            saved, text = keep_case(self._config.state_dir, at, "bug_report", "log", kept.bug_report, kept.deadline)
            entry = AuditEntry("support_case", f"gpu/{uuid}", "a reset is due", (finding.key,))
            self._audit.note(entry, Result.DONE if saved else Result.FAILED, text)
            newest = self._poll()  # the report took minutes
            asks = newest is not None and uuid in candidates(newest, self._policy)
            if newest is None or not asks or (reason := self._not_quarantined() or refusal(newest, uuid)):
                self._set(uuid, message=reason if asks else "it asks for no reset any more, or the agent is silent")
                return
            view, gpu = newest, next(each for each in newest.snapshot.gpus if each.identity.uuid == uuid)
        self._set(uuid, state="resetting", message="a reset is under way")
        error = self._reset.reset(view, gpu, finding)
        if error is None:
            mark_repaired(self._store, {uuid}, self._clock.time(), [finding.key], "repairer", "it was reset")
        before, now = next(each.tries for each in self.status if each.gpu == uuid), self._clock.time()
        recorded = (self._file.read() or RepairRecord()).tries.get(uuid, ())
        tries = sum(now - at < self._config.repair.window for at in recorded)
        if error and tries == before:  # nothing was asked of the driver: that is no try
            self._not_begun[uuid] = now, error
        self._set(uuid, state="failed" if error else "repaired", message=error or "it was reset", tries=tries)

    def _validate(self, view: View, asked: Collection[str]) -> None:
        """With `validate: active`: prove one idle GPU without a validation in this boot (a later fault removes it)."""
        settings = self._config.remediation
        if self._reset is None or settings.validate != "active" or self._not_quarantined():
            return
        results = (*view.validations, *validations(self._store))  # the agent reads the newest within ten seconds
        node = self._faults.get(None, -math.inf)
        tried = {  # as the remediator counts them
            each.gpu
            for each in results
            if each.boot_id == self._boot_id and each.at > max(node, self._faults.get(each.gpu, -math.inf))
        }
        for status in view.snapshot.statuses:
            uuid, index = status.identity.uuid, status.identity.index
            if uuid in tried or uuid in asked or refusal(view, uuid):
                continue
            command = ValidationCommand(settings.validation.command, settings.validation.deadline)
            run = self._prove(view, frozenset({index}), self._clock, command)
            keep_validations(self._store, run.validations, "repairer")
            return

    def _set(self, uuid: str, **changes: object) -> None:
        self.status = tuple(replace(each, **changes) if each.gpu == uuid else each for each in self.status)
        self._publish()

    def _poll(self) -> View | None:
        """The newest View, if it is fresh."""
        self._views.poll()
        view = self._views.view
        if view is None or self._views.age > max(STALE_INTERVALS * view.snapshot.interval, REST_SECONDS):
            return None
        return view

    def _close(self, uuid: str | None) -> None:
        self._closed = uuid
        self._publish()

    def _publish(self) -> None:
        now = self._clock.time()
        until = now + MAX_CLOSED_SECONDS if self._closed else 0.0
        status = RepairerStatus(at=now, mode=self._mode, gpus=self.status, closed=self._closed, closed_until=until)
        publish_repairer(self._store, status)
