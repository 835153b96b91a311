"""HealthHistory: all that a check may read: the relevant part of past samples, the XIDs, and evidence of repairs.

Pure: times come with snapshots and events. `now` is a clock of its own that adds up the steps between snapshots, none
longer than three intervals and none backwards: a wall clock that jumps makes nothing old and nothing new.
"""

from collections.abc import Iterable
from typing import NamedTuple

from gpuwatch.config import ChecksConfig
from gpuwatch.health.gpu_history import GpuHistory, RepairEvidence
from gpuwatch.health.xid.classify import CHECK_OF, RECOVERY_CHANGED, Class, classify, is_own_failure
from gpuwatch.model.finding import CheckName
from gpuwatch.model.pci import pci_key
from gpuwatch.model.snapshot import Snapshot
from gpuwatch.model.workload import Attribution, Workload
from gpuwatch.model.xid import BusLossEvent, SxidEvent, XidEvent

MAX_STEP_INTERVALS = 3
TEXT_SECONDS = 1.0
"""Time for which an XID from NVML waits for its kernel line, where only the line decides its meaning."""

REMEMBERED = 5_000
"""Occurrences remembered, so that none is reported twice."""

Event = XidEvent | SxidEvent | BusLossEvent


class Occurrence(NamedTuple):
    """An event that makes or renews a finding. `order` grows with each event and snapshot; `completes`: it was known
    before, and the other source has completed it; `withdrawn`: the other source has shown that its class was wrong;
    `by_kernel`: only the kernel log had reported it; `confirmed`: the driver's own event has now come as well.
    """

    check: CheckName
    kind: Class
    event: XidEvent | SxidEvent
    gpu: str | None
    pods: tuple[Workload, ...]
    order: int
    completes: bool = False
    withdrawn: bool = False
    by_kernel: bool = False
    confirmed: bool = False


class HealthHistory:
    """One node. The caller passes each snapshot with the events since the one before to `take`, then reads members."""

    def __init__(self, config: ChecksConfig, uptime: float = 0.0) -> None:
        """`uptime`: seconds the node had been up at the first snapshot."""
        self.config = config
        self.now = 0.0
        self.snapshot = Snapshot(at=0.0, interval=1.0)
        self.gpus: dict[str, GpuHistory] = {}
        self.news: list[Occurrence] = []
        """Occurrences that came, or were classified, with the latest snapshot."""
        self.boot_id: str | None = None
        self.driver: str | None = None
        self.bus_seen = False
        self._settled = -uptime  # `now` of the boot or the last driver change
        self._order = 0
        self._first = True
        self._known: dict[tuple[object, ...], Class | None] = {}
        self._waiting: dict[tuple[object, ...], tuple[XidEvent, float]] = {}
        self._by_pci: dict[str | None, str] = {}
        self._recalled: dict[str, list[tuple[tuple[Workload, ...], float]]] = {}

    def configure(self, config: ChecksConfig) -> None:
        """Judge by other settings from now on."""
        self.config = config
        for past in self.gpus.values():
            past.config = config

    def recall(self, uuid: str, pods: tuple[Workload, ...], age: float) -> None:
        """Restore, before the first snapshot, the pods whose applications failed on a GPU `age` seconds ago."""
        self._recalled.setdefault(uuid, []).append((pods, age))

    @property
    def in_grace(self) -> bool:
        """Whether the node booted, or its driver or one of its GPUs restarted, less than `checks.boot_grace` ago."""
        return self.now - self._settled < self.config.boot_grace

    def take(self, snapshot: Snapshot, events: Iterable[Event] = (), attribution: Attribution | None = None) -> None:
        """Take in one more snapshot. Samples count as older than the events that came with them."""
        step = 0.0 if self._first else snapshot.at - self.snapshot.at
        step = min(max(step, 0.0), MAX_STEP_INTERVALS * snapshot.interval)
        self._first = False
        self.now += step
        self._order += 1
        self.snapshot, self.news = snapshot, []
        self.boot_id = snapshot.host.boot_id or self.boot_id
        self.bus_seen = self.bus_seen or snapshot.bus is not None
        version = snapshot.driver.version if snapshot.driver else None
        if version is not None and version != self.driver:
            if self.driver is not None:
                self._settled = self.now
            self.driver = version
        self._update_gpus(snapshot, attribution or Attribution(), step)
        for event in events:
            self._order += 1
            match event:
                case XidEvent():
                    self._xid(event)
                case SxidEvent():
                    is_known = self._is_known(("sxid", event.at, event.switch, event.sxid, event.link))
                    if not is_known and not event.historical:
                        kind: Class = "fatal" if event.severity == "fatal" else "warning"
                        check: CheckName = "sxid_fatal" if kind == "fatal" else "sxid_warning"
                        self.news.append(Occurrence(check, kind, event, None, (), self._order, by_kernel=True))
                case BusLossEvent():
                    self._loss(event)
        for key, (waiting, since) in list(self._waiting.items()):
            if self.now - since >= TEXT_SECONDS:  # its line has not come: the catalogue decides its meaning
                del self._waiting[key]
                self._understood(waiting, classify(waiting, self.config.xids) or "unknown", key)

    def uuid(self, event: XidEvent | BusLossEvent) -> str | None:
        """The GPU of an event; None when the GPU at its address is not known."""
        return event.uuid or self._by_pci.get(pci_key(event.pci))

    def at_address(self, pci: str | None) -> str | None:
        """The GPU that is, or was last, at a PCI address."""
        return self._by_pci.get(pci_key(pci)) if pci else None

    def _update_gpus(self, snapshot: Snapshot, attribution: Attribution, step: float) -> None:
        samples = {gpu.identity.uuid: gpu for gpu in snapshot.gpus}
        statuses = {status.identity.uuid: status for status in snapshot.statuses}
        for uuid, status in statuses.items():
            self._by_pci[pci_key(status.identity.pci_bus_id)] = uuid
            if uuid not in self.gpus:
                self.gpus[uuid] = GpuHistory(uuid, self.config, self.gpus)
                for pods, age in self._recalled.pop(uuid, ()):
                    self.gpus[uuid].add_failed_pods(pods, -age)
        for uuid, past in self.gpus.items():
            given = [(use.gi, each.workload) for use in attribution.devices if use.gpu == uuid for each in use.holders]
            running = [(row.gi, row.workload) for row in attribution.usage if row.gpu == uuid]
            uses = (*given, *running)
            past.is_withheld = None if attribution.withheld is None else uuid in attribution.withheld
            past.update(statuses.get(uuid), samples.get(uuid), uses, self.now, step, self._order)
            if past.repair is not None and past.repair.order == self._order:  # links and fabric start again
                self._settled = self.now

    def _xid(self, event: XidEvent) -> None:
        key = (event.source, event.at, event.xid, event.pci or event.uuid)
        past = self.gpus.get(self.uuid(event) or "")
        is_recovered = event.xid == RECOVERY_CHANGED and event.recovery == 0 and "nvml" in event.sources
        if past and is_recovered and not self._is_known((*key, "recovered")):
            past.repair = RepairEvidence(self._order, event.at, "the driver says that it has recovered (XID 154)")
        if event.historical:
            return
        if self._is_known(key) and key not in self._waiting:
            self._complete(event, key)
            return
        kind = classify(event, self.config.xids, final=False)
        if kind is None:
            self._waiting.setdefault(key, (event, self.now))
            return
        self._waiting.pop(key, None)
        self._understood(event, kind, key)

    def _complete(self, event: XidEvent, key: tuple[object, ...]) -> None:
        """Take in what the other source adds to an event already classified; a late line may change its class."""
        if event.also is None or self._is_known((*key, "completed")):
            return
        kind, before = classify(event, self.config.xids) or "unknown", self._known.get(key)
        if before in CHECK_OF:
            same, by_kernel = kind == before, event.source == "kernel"
            occurrence = Occurrence(CHECK_OF[before], before, event, self.uuid(event), (), self._order, same, not same)
            self.news.append(occurrence._replace(by_kernel=by_kernel, confirmed=by_kernel))
        if kind != before:
            self._understood(event, kind, key)
        elif event.source == "kernel":
            past = self.gpus.get(self.uuid(event) or "")
            self._note(event, kind, past, past.pods(event.gi) if past else ())

    def _understood(self, event: XidEvent, kind: Class, key: tuple[object, ...]) -> None:
        self._known[key] = kind
        uuid = self.uuid(event)
        past = self.gpus.get(uuid) if uuid else None
        pods = past.pods(event.gi) if past else ()
        by_driver = "nvml" in event.sources
        if by_driver:
            self._note(event, kind, past, pods)
        if kind in CHECK_OF:
            self.news.append(Occurrence(CHECK_OF[kind], kind, event, uuid, pods, self._order, by_kernel=not by_driver))

    def _note(self, event: XidEvent, kind: Class, past: GpuHistory | None, pods: tuple[Workload, ...]) -> None:
        """Keep what the checks of a GPU need of an XID that the driver has reported."""
        if past and event.xid in INFOROM_XIDS:
            past.inforom = self._order, event.xid
        if past and kind == "application" and is_own_failure(event.xid):
            past.add_failed_pods(pods, self.now)

    def _loss(self, event: BusLossEvent) -> None:
        if self._is_known(("loss", event.at, event.pci)) or event.historical:
            return
        past = self.gpus.get(self.uuid(event) or "")
        if past:
            past.lost_line = event.message or "the driver lost it from the PCIe bus"

    def _is_known(self, key: tuple[object, ...]) -> bool:
        if key in self._known:
            return True
        self._known[key] = None
        if len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]
        return False


INFOROM_XIDS = (93, 125)
"""XIDs about the GPU's own configuration memory."""
