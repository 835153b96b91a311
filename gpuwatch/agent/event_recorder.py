"""Stores and logs the changes of each View: events, findings that began or ended, the position in the kernel log.

The order makes a kill at any moment harmless: an event is stored before the finding it led to, and the kernel log's
cursor moves past a line only once the findings made from it are stored. A line that was cut off is read and judged
again. The log has one line when a finding begins or ends, for an XID, for a new reader; no change makes no line.
"""

import logging
import re
import threading
from collections.abc import Iterable

from gpuwatch.health.judge import names_failed_pods
from gpuwatch.health.xid.ledger import Event
from gpuwatch.model.clock import Clock
from gpuwatch.model.event import MAX_EVENTS, Change, EventQuery, FindingEvent
from gpuwatch.model.finding import Finding, Severity
from gpuwatch.model.view import View
from gpuwatch.model.xid import KernelCursor, XidEvent
from gpuwatch.storage.store import Store

log = logging.getLogger(__name__)

CURSOR_SECONDS = 60.0
"""Longest time that the cursor is kept unsaved, when only lines that are not about GPUs have moved it."""


STORM_SECONDS, STORM_EVENTS = 3600.0, 100
"""At most so many events of one code on one GPU are kept within so many seconds, or a killed job's 11,000 XIDs 45
would displace everything else in the store. The counters continue.
"""

STORMS = 1_000
"""Pairs of code and GPU whose events are counted separately."""


class EventRecorder:
    """Compares each View with the one before; `store` holds the findings before the first one.

    Any thread may call `record_events`, whose storm counts `_lock` guards; the rest belongs to the publisher.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._open = {finding.key: finding for finding in store.open_findings()}
        self._cursor: KernelCursor | None = None
        self._saved: KernelCursor | None = None
        self._saved_at = 0.0
        self._storms: dict[tuple[str | None, int], tuple[float, set[float]]] = {}
        self._began: list[XidEvent] = []  # storms that have yet to be logged
        # a row from NVML has another key than its line, which is read again where no cursor was saved since
        xids = store.events(EventQuery(kinds=("xid",))).xids
        self._stored_lines = {(e.boot_id, e.sequence) for e in xids if e.source == "nvml" and e.sequence is not None}
        self.without_line = [event for event in xids if event.source == "nvml" and event.sequence is None]
        """Events that earlier agents stored from NVML without their line of the kernel log, oldest first."""
        self._lock = threading.Lock()

    def failures(self, seconds: float) -> tuple[Finding, ...]:
        """Findings of the last `seconds` that name pods of failed applications, also those that have ended."""
        query = EventQuery(self._clock.time() - seconds, MAX_EVENTS, ("finding",))
        return tuple(e.finding for e in self._store.events(query).findings if names_failed_pods(e.finding))

    def record_events(self, events: Iterable[Event], *, resumed: bool) -> list[Event]:
        """Store new and newly completed events; returns those that were stored. `resumed`: an earlier agent has stored
        the historical ones. One storm limit holds for the store and the log, which gets only the returned events.
        """
        with self._lock:
            new = []
            for event in events:
                is_line = isinstance(event, XidEvent) and event.source == "kernel"
                is_stored = is_line and (event.boot_id, event.sequence) in self._stored_lines
                if not (resumed and event.historical) and not is_stored:
                    new.append(event)
            kept = [e for e in new if not self._is_too_many(e)]
            storms, self._began = self._began, []
        for event in kept:
            self._store.add(event)
        for event in storms:
            where = event.pci or event.uuid
            log.info("XID %d of %s comes too often: it is counted, and not listed for a while", event.xid, where)
        return kept

    def _is_too_many(self, event: Event) -> bool:
        if not isinstance(event, XidEvent):
            return False
        key = event.pci or event.uuid, event.xid
        began, kept = self._storms.pop(key, (event.at, set[float]()))
        if not 0 <= event.at - began < STORM_SECONDS:
            began, kept = event.at, set()
        if len(kept) < STORM_EVENTS:
            kept.add(event.at)  # an event that is completed later has the same time
            if len(kept) == STORM_EVENTS:
                self._began.append(event)
        self._storms[key] = began, kept
        if len(self._storms) > STORMS:
            del self._storms[next(iter(self._storms))]
        return event.at not in kept

    def record_view(self, view: View, cursor: KernelCursor | None, *, urgent: bool) -> None:
        """Store what changed in `view`, which was judged by the kernel log up to `cursor`; `urgent`: it has events."""
        findings = {finding.key: finding for finding in view.judgement.findings}
        for change, ours, others in ((Change.ENDED, self._open, findings), (Change.BEGAN, findings, self._open)):
            for key in ours.keys() - others.keys():
                at, boot_id = view.snapshot.at, view.snapshot.host.boot_id
                self._store.add(FindingEvent(at=at, change=change, finding=ours[key], boot_id=boot_id))
        if {key: _lasting(finding) for key, finding in findings.items()} != {
            key: _lasting(finding) for key, finding in self._open.items()
        }:
            self._store.save_open(tuple(findings.values()))
        self._open, self._cursor = findings, cursor
        if urgent or self._saved is None or self._clock.monotonic() - self._saved_at > CURSOR_SECONDS:
            self._save_cursor()

    def close(self) -> None:
        """Save the cursor and close the store."""
        self._save_cursor()
        self._store.close()

    def _save_cursor(self) -> None:
        if self._cursor is not None and self._cursor != self._saved:
            self._store.save_cursor(self._cursor)
            self._saved, self._saved_at = self._cursor, self._clock.monotonic()


def _lasting(finding: Finding) -> tuple[object, ...]:
    """The members of a finding that must survive a restart; its readings change with every View."""
    return finding.severity, finding.since, finding.last, finding.count, finding.remedy, finding.pods


MOST_REASONS = 50
"""Logged of one finding: a source with a different text for each failure must fill neither the log nor memory."""

_FIGURE = re.compile(r"\d+(\.\d+)?")

LEVELS = {Severity.CRITICAL: logging.ERROR, Severity.WARNING: logging.WARNING, Severity.INFO: logging.INFO}


class EventLogger:
    """Compares each View with the one before."""

    def __init__(self) -> None:
        self._findings: dict[str, Finding] = {}
        self._logged: dict[str, set[tuple[str, str]]] = {}  # evidence of open findings about the node
        self._restarts = 0
        self._indices: dict[str, int] = {}

    def log_changes(self, view: View) -> None:
        """Log the changes in `view`."""
        self._indices |= {status.identity.uuid: status.identity.index for status in view.snapshot.statuses}
        findings = {finding.key: finding for finding in view.judgement.findings}
        for finding in findings.values():
            if self._is_news(finding):
                log.log(LEVELS[finding.severity], "%s: %s; %s", self._what(finding), finding.message, finding.action)
        for key in self._findings.keys() - findings.keys():
            log.info("%s: resolved", self._what(self._findings[key]))
            self._logged.pop(key, None)
        self._findings = findings
        if view.agent.reader_restarts > self._restarts:
            log.info("reader restarted; restarts so far: %d", view.agent.reader_restarts)
        self._restarts = view.agent.reader_restarts

    def log_xid(self, event: XidEvent) -> None:
        """Log one XID; the driver's pid and name are those of the owner of the channel, so they are left out."""
        index = self._indices.get(event.uuid or "")
        where = event.uuid or event.pci or "unknown" if index is None else str(index)
        log.warning("GPU %s: XID %d%s", where, event.xid, f": {event.message}" if event.message else "")

    def _is_news(self, finding: Finding) -> bool:
        """Whether it began, or is about the node, such as its sources, and names another of them or a new reason.

        A source that fails at start-up has another reason first ("starting"), and the one that names the next step
        later. Reasons that alternate, or differ only in their figures, are logged once, and MOST_REASONS at most.
        """
        began = finding.key not in self._findings
        if finding.gpu is not None or finding.xid is not None:
            return began
        logged = self._logged.setdefault(finding.key, set())
        reasons = {(name, _FIGURE.sub("#", str(reason))) for name, reason in finding.evidence.items()}
        new = reasons - logged if len(logged) < MOST_REASONS else set()
        logged |= new
        return began or bool(new)

    def _what(self, finding: Finding) -> str:
        if finding.gpu is None:
            return finding.check
        return f"GPU {self._indices.get(finding.gpu, finding.gpu)}: {finding.check}"
