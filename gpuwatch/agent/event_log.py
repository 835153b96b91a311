"""The agent's log for people: a line when a finding begins or ends, when an XID comes, when the reader is replaced.

Nothing is said twice: what stays as it is makes no line, however often it is looked at.
"""

import logging
import re

from gpuwatch.model.finding import Finding, Severity
from gpuwatch.model.view import View
from gpuwatch.model.xid import XidEvent

log = logging.getLogger(__name__)

MOST_REASONS = 50
"""Of one finding: a source whose every failure reads differently neither fills the log nor memory."""

_FIGURE = re.compile(r"\d+(\.\d+)?")

LEVELS = {Severity.CRITICAL: logging.ERROR, Severity.WARNING: logging.WARNING, Severity.INFO: logging.INFO}


class EventLogger:
    """Compares each View with the one before."""

    def __init__(self) -> None:
        self._findings: dict[str, Finding] = {}
        self._logged: dict[str, set[tuple[str, str]]] = {}  # evidence of open findings about the node
        self._restarts = 0
        self._indices: dict[str, int] = {}

    def tell(self, view: View) -> None:
        """Log what is new in `view`."""
        self._indices |= {status.identity.uuid: status.identity.index for status in view.snapshot.statuses}
        findings = {finding.key: finding for finding in view.judgement.findings}
        for finding in findings.values():
            if self._is_news(finding):
                log.log(LEVELS[finding.severity], "%s: %s; %s", self._what(finding), finding.message, finding.action)
        for key in self._findings.keys() - findings.keys():
            log.info("%s: over", self._what(self._findings[key]))
            self._logged.pop(key, None)
        self._findings = findings
        if view.agent.reader_restarts > self._restarts:
            log.info("the reader was started anew; times so far: %d", view.agent.reader_restarts)
        self._restarts = view.agent.reader_restarts

    def xid(self, event: XidEvent) -> None:
        """Log one XID; the pid and name the driver gives are whoever owned the channel, so they are left out."""
        index = self._indices.get(event.uuid or "")
        where = event.uuid or event.pci or "unknown" if index is None else str(index)
        log.warning("GPU %s: XID %d%s", where, event.xid, f": {event.message}" if event.message else "")

    def _is_news(self, finding: Finding) -> bool:
        """A finding that began; or one about the node, such as its sources, that names another of them or a new reason.

        A source that fails at start-up has a reason of its own first ("starting"), and the one that says what to do
        later. Reasons that take turns, or differ only in their figures, are logged once, and MOST_REASONS at most.
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
