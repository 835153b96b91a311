"""The agent's log for people: a line when a finding begins or ends, when an XID comes, when the reader is replaced.

Nothing is said twice: what stays as it is makes no line, however often it is looked at.
"""

import logging

from gpuwatch.model.finding import Finding, Severity
from gpuwatch.model.view import View
from gpuwatch.model.xid import XidEvent

log = logging.getLogger(__name__)

LEVELS = {Severity.CRITICAL: logging.ERROR, Severity.WARNING: logging.WARNING, Severity.INFO: logging.INFO}


class Journal:
    """Compares each View with the one before."""

    def __init__(self) -> None:
        self._findings: dict[str, Finding] = {}
        self._restarts = 0
        self._indices: dict[str, int] = {}

    def tell(self, view: View) -> None:
        """Log what is new in `view`."""
        self._indices |= {status.identity.uuid: status.identity.index for status in view.snapshot.statuses}
        findings = {finding.key: finding for finding in view.judgement.findings}
        for key, finding in findings.items():
            if _is_news(finding, self._findings.get(key)):
                log.log(LEVELS[finding.severity], "%s: %s; %s", self._what(finding), finding.message, finding.action)
        for key in self._findings.keys() - findings.keys():
            log.info("%s: over", self._what(self._findings[key]))
        self._findings = findings
        if view.agent.reader_restarts > self._restarts:
            log.info("the reader was started anew; times so far: %d", view.agent.reader_restarts)
        self._restarts = view.agent.reader_restarts

    def xid(self, event: XidEvent) -> None:
        """Log one XID; the pid and name the driver gives are whoever owned the channel, so they are left out."""
        index = self._indices.get(event.uuid or "")
        where = event.uuid or event.pci or "unknown" if index is None else str(index)
        log.warning("GPU %s: XID %d%s", where, event.xid, f": {event.message}" if event.message else "")

    def _what(self, finding: Finding) -> str:
        if finding.gpu is None:
            return finding.check
        return f"GPU {self._indices.get(finding.gpu, finding.gpu)}: {finding.check}"


def _is_news(finding: Finding, before: Finding | None) -> bool:
    """A finding that began; or one about the node, such as its sources, that has come to be about more of them."""
    if before is None:
        return True
    return finding.gpu is None and finding.xid is None and bool(finding.evidence.keys() - before.evidence.keys())
