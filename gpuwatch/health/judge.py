"""The Judge: from snapshots and events to findings, with the patience that keeps a flicker from becoming a fault.

A finding ends when its fault is seen to be gone, never because nothing is seen: what a GPU does not tell stays as it
was. XIDs that ask for a repair last until there is evidence of one; see `docs/checks.md`.
"""

from collections import deque
from collections.abc import Iterable, Mapping

import msgspec

from gpuwatch.config import ChecksConfig
from gpuwatch.health.check import CANNOT_TELL, Check, Sighting, can_tell, evidence
from gpuwatch.health.checks import CHECK_BY_NAME, CHECKS
from gpuwatch.health.gpu_history import GpuHistory
from gpuwatch.health.history import Event, History, Occurrence
from gpuwatch.health.occurrences import is_repaired, is_said_repaired, occurred
from gpuwatch.health.rollup import gpu_healths, node_health
from gpuwatch.health.xid.classify import is_own_failure
from gpuwatch.model.finding import Finding, Judgement, Severity
from gpuwatch.model.snapshot import Snapshot
from gpuwatch.model.workload import Attribution

RANK: dict[str, int] = {check.name: rank for rank, check in enumerate(CHECKS)}
WORST_FIRST = tuple(reversed(Severity))


class Open(msgspec.Struct):
    """A finding that has not ended. `order` and `now` are the history's at its latest occurrence."""

    finding: Finding
    check: Check
    order: int = 0
    now: float = 0.0
    level: float | None = None


class _Track(msgspec.Struct):
    """The latest answers of one check about one subject."""

    answers: deque[bool]
    good: int = 0


class Judge:
    """Keeps what it must remember between snapshots. Not to be called by two threads at once."""

    def __init__(
        self,
        config: ChecksConfig | None = None,
        memory: Iterable[Finding] = (),
        *,
        failures: Iterable[Finding] = (),
        uptime: float = 0.0,
        patient: bool = True,
    ) -> None:
        """`memory`: findings that were open when the agent ended; `failures`: what applications had done by then;
        `uptime`: seconds the node has been up; `patient` False judges a single look: a fault need not last, and nothing
        is given time to come up.
        """
        self._patient = patient
        self._config = self._own(config or ChecksConfig())
        self._history = History(self._config, uptime)
        self._open: dict[str, Open] = {}
        self._tracks: dict[tuple[str, str | None], _Track] = {}
        self._memory, self._failures = tuple(memory), tuple(failures)
        self.said: Mapping[str, float] = {}
        """What a person has said: GPU uuid or `node` -> unix time at which it was repaired."""

    def configure(self, config: ChecksConfig) -> None:
        """Judge by other settings from now on."""
        self._config = self._own(config)
        self._history.configure(self._config)

    def judge(
        self, snapshot: Snapshot, events: Iterable[Event] = (), attribution: Attribution | None = None
    ) -> Judgement:
        """Findings and health now. `events`: what happened since the previous call, and what of it became clearer."""
        self._remember(snapshot)
        self._history.take(snapshot, events, attribution)
        self._take_home()
        for news in self._history.news:
            self._occur(occurred(news, self._history), CHECK_BY_NAME[news.check], news)
        for check in CHECKS:
            if check.gpu is not None:
                for past in self._history.gpus.values():
                    self._look_at(check, past)
            elif check.node is not None:
                self._weigh(check, None, check.node(self._history))
        self._end()
        findings = self._findings()
        gpus = gpu_healths(snapshot, findings)
        return Judgement(node=node_health(gpus.values(), findings), gpus=gpus, findings=findings)

    def _own(self, config: ChecksConfig) -> ChecksConfig:
        """Who looks once cannot wait for a GPU that does not answer."""
        return config if self._patient else msgspec.structs.replace(config, unresponsive_after=0.0)

    def _remember(self, snapshot: Snapshot) -> None:
        """Open again what was open before the restart. What passes with time has aged meanwhile."""
        for finding in self._memory:
            check = CHECK_BY_NAME.get(finding.check)
            if check is not None and check.blame != "monitor":
                age = max(0.0, snapshot.at - finding.latest) if check.ends == "time" else 0.0
                self._open[finding.key] = Open(finding=finding, check=check, now=-age)
        for finding in (*self._failures, *self._memory):
            if finding.gpu and tells_of_failures(finding):
                self._history.recall(finding.gpu, finding.pods, max(0.0, snapshot.at - finding.latest))
        self._memory = self._failures = ()

    def _look_at(self, check: Check, past: GpuHistory) -> None:
        """Ask about one GPU; what needs a sample is asked of each sample once."""
        if check.gpu is None or (check.reads and not past.is_new):
            return
        sees: Sighting | None = CANNOT_TELL
        if not check.reads or (past.gpu is not None and can_tell(past.gpu, check.reads)):
            sees = check.gpu(past)
        self._weigh(check, past, sees)

    def _weigh(self, check: Check, past: GpuHistory | None, sighting: Sighting | None) -> None:
        """Hysteresis: N of the latest M answers begin a finding, some good ones in a row end it."""
        subject = past.uuid if past else None
        key = f"{check.name}/{subject or 'node'}"
        is_open = key in self._open
        withheld = check.boot_grace and self._patient and self._history.in_grace and not is_open
        if sighting is CANNOT_TELL or (sighting is not None and withheld):
            return
        enough, of = check.raise_after if self._patient else (1, 1)
        track = self._tracks.setdefault((check.name, subject), _Track(deque(maxlen=of)))
        track.answers.append(sighting is not None)
        track.good = 0 if sighting else track.good + 1
        if sighting is not None and (is_open or sum(track.answers) >= enough):
            self._see(key, check, past, sighting)
        elif is_open and check.ends == "clean" and track.good >= check.clear_after:
            del self._open[key]

    def _see(self, key: str, check: Check, past: GpuHistory | None, sighting: Sighting) -> None:
        """Begin a finding, or bring it up to date."""
        known = self._open.get(key)
        before = known.finding if known else None
        at = self._moment(past)
        rose = known is not None and _rose(known.level, sighting.level)
        pods = before.pods if before else past.pods() if past else ()
        found = Finding(
            check=check.name,
            severity=sighting.severity or check.severity,
            message=sighting.message,
            gpu=past.uuid if past else None,
            since=before.since if before else at,
            last=max(at, before.latest) if before and rose else before.last if before else at,
            remedy=sighting.remedy or check.remedy,
            action=sighting.action or check.action,
            evidence=_evidence(check, past, sighting),
            pods=pods if sighting.pods is None else sighting.pods,
        )
        self._open[key] = Open(finding=found, check=check, now=self._history.now, level=sighting.level)

    def _moment(self, past: GpuHistory | None) -> float:
        """When what is seen now was so: of a GPU that does not answer, since its state changed."""
        if past and past.gpu:
            return past.gpu.at
        since = past.status.since if past and past.status else None
        return self._history.snapshot.at if since is None else since

    def _occur(self, found: Finding, check: Check, news: Occurrence) -> None:
        """An XID or SXid, for the first time, once more, or told of more fully."""
        known = self._open.get(found.key)
        if news.withdrawn:
            if known is not None and known.finding.count == 1:
                del self._open[found.key]
            return
        if news.amends:
            if known is not None:
                merged = {**found.evidence, **known.finding.evidence}
                known.finding = msgspec.structs.replace(
                    known.finding, message=found.message, remedy=found.remedy, action=found.action, evidence=merged
                )
            return
        if known is not None:
            before = known.finding
            found = msgspec.structs.replace(
                found,
                since=before.since,
                # an event that comes late is still news of its own
                last=found.latest if found.latest > before.latest else before.latest + 0.001,
                count=before.count + 1,
                pods=tuple(dict.fromkeys((*found.pods, *before.pods)))[:MANY_PODS],
            )
        self._open[found.key] = Open(finding=found, check=check, order=news.order, now=self._history.now)

    def _take_home(self) -> None:
        """Findings about a place whose GPU is known by now belong to that GPU."""
        for key, known in list(self._open.items()):
            uuid = self._history.at_address(known.finding.evidence.get("pci"))
            if known.finding.gpu is None and known.finding.xid is not None and uuid:
                del self._open[key]
                finding = msgspec.structs.replace(known.finding, gpu=uuid)
                self._open.setdefault(finding.key, msgspec.structs.replace(known, finding=finding))

    def _end(self) -> None:
        """Drop what is repaired, has expired, is switched off, or was about a GPU that was replaced."""
        for key, known in list(self._open.items()):
            if known.check.name in self._config.disabled or self._is_over(known) or self._is_replaced(known.finding):
                del self._open[key]

    def _is_over(self, known: Open) -> bool:
        if is_said_repaired(known.finding, self.said, self._history):
            return True
        if known.check.ends == "repair":
            return is_repaired(known.finding, known.order, known.now, self._history)
        if known.check.ends == "clean":
            return False
        past = self._history.gpus.get(known.finding.gpu or "")
        is_seen = known.finding.gpu is None or (past is not None and past.is_fresh)
        return is_seen and self._history.now - known.now >= self._config.xid_expire

    def _is_replaced(self, finding: Finding) -> bool:
        """Another GPU answers where a GPU sat that nobody has seen since the agent began."""
        if finding.gpu is None or finding.gpu in self._history.gpus:
            return False
        other = self._history.gpus.get(self._history.at_address(finding.evidence.get("pci")) or "")
        return other is not None and other.gpu is not None

    def _findings(self) -> tuple[Finding, ...]:
        """The worst first."""
        found = (known.finding for known in self._open.values())
        return tuple(sorted(found, key=lambda f: (WORST_FIRST.index(f.severity), RANK[f.check])))


def tells_of_failures(finding: Finding) -> bool:
    """Whether its pods are those whose own application failed on the GPU."""
    own = finding.check == "xid_application" and finding.xid is not None and is_own_failure(finding.xid)
    return own or finding.check == "xid_application_repeated"


def _rose(before: float | None, now: float | None) -> bool:
    return before is not None and now is not None and now > before


def _evidence(check: Check, past: GpuHistory | None, sighting: Sighting) -> dict[str, str]:
    """What the predicate named, else the readings it went by; and where the GPU sits."""
    facts = sighting.evidence or (evidence(past.gpu, check.reads) if past and past.gpu else {})
    where = {"pci": past.status.identity.pci_bus_id} if past and past.status else {}
    return {**facts, **where}


MANY_PODS = 32
"""More affected pods are not listed."""
