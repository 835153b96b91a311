"""The Judge: from snapshots and events to findings, with hysteresis against flicker.

A finding ends when its fault is confirmed to be gone, never because readings are missing: without a
reading it stays as it was. XIDs that ask for a repair last until there is evidence of one; see `docs/checks.md`.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from gpuwatch.config import ChecksConfig
from gpuwatch.health.causes import with_causes
from gpuwatch.health.check import UNDECIDED, Check, Detection, evidence, has_health_readings, has_readings
from gpuwatch.health.checks import CHECK_BY_NAME, CHECKS
from gpuwatch.health.corroboration import UNCONFIRMED, confirmed, driver_state, not_asked, unconfirmed, with_driver
from gpuwatch.health.gpu_history import GpuHistory
from gpuwatch.health.history import Event, HealthHistory, Occurrence
from gpuwatch.health.occurrences import is_declared_repaired, is_repaired, occurred
from gpuwatch.health.xid.classify import is_own_failure
from gpuwatch.model.finding import UNCONFIRMED_CHECKS, Finding, Health, Judgement, Severity
from gpuwatch.model.snapshot import GpuState, Snapshot
from gpuwatch.model.workload import Attribution

RANK: dict[str, int] = {check.name: rank for rank, check in enumerate(CHECKS)}
WORST_FIRST = tuple(reversed(Severity))


class OpenFinding(msgspec.Struct):
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
    """Keeps its state between snapshots. Two threads must not call it at once."""

    def __init__(
        self,
        config: ChecksConfig | None = None,
        memory: Iterable[Finding] = (),
        *,
        failures: Iterable[Finding] = (),
        uptime: float = 0.0,
        hysteresis: bool = True,
    ) -> None:
        """`memory`: findings that were open when the agent ended; `failures`: those of failed applications by then;
        `uptime`: seconds the node has been up; `hysteresis` False judges a single snapshot: a fault need not last, and
        nothing is given time to come up.
        """
        self._hysteresis = hysteresis
        self._config = self._own(config or ChecksConfig())
        self._history = HealthHistory(self._config, uptime)
        self._open: dict[str, OpenFinding] = {}
        self._tracks: dict[tuple[str, str | None], _Track] = {}
        self._memory, self._failures = tuple(memory), tuple(failures)
        self.repaired_at: Mapping[str, float] = {}
        """Declared by an operator: GPU uuid or `node` -> unix time at which it was repaired."""

    def configure(self, config: ChecksConfig) -> None:
        """Judge by other settings from now on."""
        self._config = self._own(config)
        self._history.configure(self._config)

    def judge(
        self, snapshot: Snapshot, events: Iterable[Event] = (), attribution: Attribution | None = None
    ) -> Judgement:
        """Findings and health now. `events`: those since the previous call, and earlier ones completed since."""
        self._restore(snapshot)
        self._history.take(snapshot, events, attribution)
        self._attach_to_gpu()
        for news in self._history.news:
            self._add_occurrence(occurred(news, self._history), CHECK_BY_NAME[news.check], news)
        for check in CHECKS:
            if check.gpu is not None:
                for past in self._history.gpus.values():
                    if not check.reads:
                        self._apply_hysteresis(check, past, check.gpu(past))
                    elif past.gpu is not None and past.is_new:  # a check that needs a sample runs once on each
                        is_decidable = has_readings(past.gpu, check.reads)
                        self._apply_hysteresis(check, past, check.gpu(past) if is_decidable else UNDECIDED)
            elif check.node is not None:
                self._apply_hysteresis(check, None, check.node(self._history))
        # drop what is repaired, has expired, is switched off, or was about a GPU that was replaced
        for key, known in list(self._open.items()):
            is_off = known.check.name in self._config.ignore and known.check.name not in UNCONFIRMED_CHECKS
            if is_off or self._is_over(known):
                del self._open[key]
        self._corroborate()
        found = (each.finding for each in self._open.values() if each.check.name not in self._config.ignore)
        findings = with_causes(sorted(found, key=lambda each: (WORST_FIRST.index(each.severity), RANK[each.check])))
        gpus = gpu_healths(snapshot, findings)
        return Judgement(
            node=node_health(gpus.values(), findings), gpus=gpus, findings=findings, ignored=self._config.ignore
        )

    def _own(self, config: ChecksConfig) -> ChecksConfig:
        """The settings in force: a single snapshot cannot wait for a GPU that does not answer."""
        return config if self._hysteresis else msgspec.structs.replace(config, unresponsive_after=0.0)

    def _restore(self, snapshot: Snapshot) -> None:
        """Open again the findings of before the restart. Those that end with time have aged meanwhile."""
        for finding in self._memory:
            check = CHECK_BY_NAME.get(finding.check)
            if check is not None and check.fault_domain != "monitor":
                age = max(0.0, snapshot.at - finding.latest) if check.ends == "time" else 0.0
                self._open[finding.key] = OpenFinding(finding=finding, check=check, now=-age)
        for finding in (*self._failures, *self._memory):
            if finding.gpu and names_failed_pods(finding):
                self._history.recall(finding.gpu, finding.pods, max(0.0, snapshot.at - finding.latest))
        self._memory = self._failures = ()

    def _apply_hysteresis(self, check: Check, past: GpuHistory | None, detection: Detection | None) -> None:
        """Hysteresis: N of the latest M answers begin a finding, some good ones in a row end it."""
        subject = past.uuid if past else None
        key = f"{check.name}/{subject or 'node'}"
        is_open = key in self._open
        withheld = check.boot_grace and self._hysteresis and self._history.in_grace and not is_open
        if check.alone and not is_open:
            open_here = (each.finding for each in self._open.values() if each.finding.gpu == subject)
            withheld = any(finding.severity is not Severity.INFO for finding in open_here)
        if detection is UNDECIDED or (detection is not None and withheld):
            return
        enough, of = check.raise_after if self._hysteresis else (1, 1)
        track = self._tracks.get((check.name, subject))
        if track is None:
            track = self._tracks[check.name, subject] = _Track(deque(maxlen=of))
        track.answers.append(detection is not None)
        track.good = 0 if detection else track.good + 1
        if detection is not None and (is_open or sum(track.answers) >= enough):
            self._update_finding(key, check, past, detection)
        elif is_open and check.ends == "clean" and track.good >= check.clear_after:
            del self._open[key]

    def _update_finding(self, key: str, check: Check, past: GpuHistory | None, detection: Detection) -> None:
        """Begin a finding, or bring it up to date."""
        known = self._open.get(key)
        before = known.finding if known else None
        # a fault of a GPU that does not answer began when the state of the GPU changed
        since = past.status.since if past and past.status else None
        at = past.gpu.at if past and past.gpu else self._history.snapshot.at if since is None else since
        rose = known is not None and (
            known.level is not None and detection.level is not None and detection.level > known.level
        )
        pods = before.pods if before else past.pods() if past else ()
        # what the predicate named, else the readings that it used; and the address of the GPU
        facts = detection.evidence or (evidence(past.gpu, check.reads) if past and past.gpu else {})
        where = {"pci": past.status.identity.pci_bus_id} if past and past.status else {}
        found = Finding(
            check=check.name,
            severity=detection.severity or check.severity,
            message=detection.message,
            gpu=past.uuid if past else None,
            since=before.since if before else at,
            last=max(at, before.latest) if before and rose else before.last if before else at,
            remedy=detection.remedy or check.remedy,
            action=detection.action or check.action,
            evidence={**facts, **where},
            pods=pods if detection.pods is None else detection.pods,
        )
        self._open[key] = OpenFinding(finding=found, check=check, now=self._history.now, level=detection.level)

    def _add_occurrence(self, found: Finding, check: Check, news: Occurrence) -> None:
        """An XID or SXid, for the first time, once more, or completed by the other source."""
        if news.by_kernel and found.check in UNCONFIRMED:
            candidate = unconfirmed(found)
            if not news.confirmed:
                found, check = candidate, CHECK_BY_NAME[candidate.check]
            elif (known := self._open.get(candidate.key)) is not None:  # else a state has confirmed it before the event
                if known.finding.count == 1:
                    del self._open[candidate.key]
                else:
                    known.finding = msgspec.structs.replace(known.finding, count=known.finding.count - 1)
                news = news._replace(completes=False)
                found = msgspec.structs.replace(found, pods=known.finding.pods)
        known = self._open.get(found.key)
        if news.withdrawn:
            if known is not None and known.finding.count == 1:
                del self._open[found.key]
            return
        if news.completes:
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
                # an event that comes late is still a new occurrence
                last=found.latest if found.latest > before.latest else before.latest + 0.001,
                count=before.count + 1,
                pods=tuple(dict.fromkeys((*found.pods, *before.pods)))[:MANY_PODS],
            )
        self._open[found.key] = OpenFinding(finding=found, check=check, order=news.order, now=self._history.now)

    def _corroborate(self) -> None:
        """Replace each unconfirmed finding by the confirmed one, where the driver's state confirms it in time."""
        history, within = self._history, self._config.xid_confirm_within
        candidates = [each for each in self._open.values() if each.check.name in UNCONFIRMED_CHECKS]
        if not candidates:
            return
        states = [each.finding for each in self._open.values()]
        for known in candidates:
            finding = known.finding
            if history.now - known.now > within:
                continue
            word = driver_state(finding, states, within)
            if word is None:
                known.finding = with_driver(finding, not_asked(finding, history))
                continue
            del self._open[finding.key]
            self._join(known, confirmed(finding, word, history))

    def _attach_to_gpu(self) -> None:
        """Assign findings about a PCI address to its GPU, once that is known."""
        for key, known in list(self._open.items()):
            uuid = self._history.at_address(known.finding.evidence.get("pci"))
            if known.finding.gpu is None and known.finding.xid is not None and uuid:
                del self._open[key]
                self._join(known, msgspec.structs.replace(known.finding, gpu=uuid))

    def _join(self, known: OpenFinding, found: Finding) -> None:
        """Replace the open finding `known` by `found`, merged with an open one of the same key."""
        if (other := self._open.get(found.key)) is not None:
            before = other.finding
            found = msgspec.structs.replace(
                found,
                since=before.since,
                last=max(found.latest, before.latest),
                count=before.count + found.count,
                pods=tuple(dict.fromkeys((*found.pods, *before.pods)))[:MANY_PODS],
            )
        self._open[found.key] = msgspec.structs.replace(known, finding=found, check=CHECK_BY_NAME[found.check])

    def _is_over(self, known: OpenFinding) -> bool:
        finding, gpus = known.finding, self._history.gpus
        if finding.gpu is not None and finding.gpu not in gpus:
            # the agent has never found this GPU: over when another GPU answers at its address
            other = gpus.get(self._history.at_address(finding.evidence.get("pci")) or "")
            if other is not None and other.gpu is not None:
                return True
        if is_declared_repaired(finding, self.repaired_at, self._history):
            return True
        if known.check.ends == "repair":
            return is_repaired(finding, known.order, known.now, self._history)
        if known.check.ends == "clean":
            return False
        past = gpus.get(finding.gpu or "")
        is_current = finding.gpu is None or (past is not None and past.is_fresh)
        return is_current and self._history.now - known.now >= self._config.xid_expire


def names_failed_pods(finding: Finding) -> bool:
    """Whether its pods are those whose own application failed on the GPU."""
    own = finding.check == "xid_application" and finding.xid is not None and is_own_failure(finding.xid)
    return own or finding.check == "xid_application_repeated"


MANY_PODS = 32
"""More affected pods are not listed."""


def gpu_healths(snapshot: Snapshot, findings: Sequence[Finding]) -> dict[str, Health]:
    """The health of every GPU by uuid."""
    unread = {gpu.identity.uuid for gpu in snapshot.gpus if not has_health_readings(gpu)}
    healths = {}
    for status in snapshot.statuses:
        uuid = status.identity.uuid
        # an unconfirmed finding is about the node's log: the health of the GPU is what the driver reports
        judged = (finding for finding in findings if finding.gpu == uuid and finding.check not in UNCONFIRMED_CHECKS)
        severities = {finding.severity for finding in judged}
        if Severity.CRITICAL in severities:
            healths[uuid] = Health.FAILED
        elif status.state is not GpuState.FRESH or uuid in unread:
            healths[uuid] = Health.UNKNOWN
        else:
            healths[uuid] = Health.DEGRADED if Severity.WARNING in severities else Health.HEALTHY
    return healths


def node_health(gpus: Collection[Health], findings: Sequence[Finding]) -> Health:
    """The node is as bad as its worst GPU or finding."""
    if Health.FAILED in gpus or any(f.severity is Severity.CRITICAL for f in findings):
        return Health.FAILED
    if not gpus or Health.UNKNOWN in gpus:
        return Health.UNKNOWN
    degraded = Health.DEGRADED in gpus or any(f.severity is Severity.WARNING for f in findings)
    return Health.DEGRADED if degraded else Health.HEALTHY
