"""Joins what all sources found into one View: snapshot, who uses what, energy per pod, judgement."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gpuwatch.agent.source_health import SourceHealth
from gpuwatch.collect.reader.messages import Settings
from gpuwatch.config import Backend, Config
from gpuwatch.health.judge import Judge
from gpuwatch.health.xid.ledger import Event
from gpuwatch.host.load import uptime
from gpuwatch.host.machine import in_pod, machine
from gpuwatch.host.pci import BusGpu, bus_gpus, driver_gpus
from gpuwatch.model.clock import Clock
from gpuwatch.model.finding import Finding
from gpuwatch.model.snapshot import Driver, Gpu, GpuStatus, Host, Snapshot, SourceStatus
from gpuwatch.model.view import AgentStatus, PodEnergy, View
from gpuwatch.model.workload import Allocation, Attribution, ProcessOwner, Workload
from gpuwatch.model.xid import SxidCount, XidCount
from gpuwatch.workloads.attribution import attribute
from gpuwatch.workloads.procfs import PodLogs, Processes

if TYPE_CHECKING:
    from gpuwatch.workloads.podresources import PodResources

OFF = "switched off in the configuration"

STALE_INTERVALS = 3
"""Past so many intervals without an answer of the kubelet its last one is withheld."""


def reader_settings(config: Config, backend: Backend, interval: float) -> Settings:
    """What a reader of this node is told."""
    return Settings(
        factory=backend.factory,
        target=backend.target or config.sources.nvml_library,
        interval=interval,
        with_gpm="gpm" not in config.sources.disabled,
        buffers=config.sources.sample_buffers,
    )


class ViewJoin:
    """Joins samples, workloads and events into Views, for an agent and for a scenario on simulated time alike."""

    def __init__(self, config: Config, judge: Judge, node: str, host: Host) -> None:
        self._config, self._node, self._host = config, node, host
        self.judge = judge
        self._energy = EnergyMeter()
        self.unjudged: list[Event] = []
        """What the ledger learned since the last View; should a View fail, the next one is judged by it."""

    def view(
        self,
        at: float,
        gpus: Sequence[Gpu],
        statuses: tuple[GpuStatus, ...],
        driver: Driver | None,
        *,
        answered: bool,
        unanswered: dict[int, str],
        awaited: dict[int, float] | None = None,
        last_seen: Sequence[Gpu],
        sources: Sequence[SourceStatus],
        bus: tuple[str, ...] | None,
        allocations: tuple[Allocation, ...] | None,
        owners: Mapping[int, ProcessOwner],
        agent: AgentStatus,
        xids: tuple[XidCount, ...],
        sxids: tuple[SxidCount, ...],
    ) -> View:
        """One View of unix time `at`. `answered`: NVML has shown all its GPUs, so that those missing can be told;
        `last_seen`: the last sample of GPUs that are not fresh; `allocations`: None while the kubelet does not answer;
        `owners`: by pid.
        """
        attribution = attribute((*gpus, *last_seen), allocations, owners)
        snapshot = Snapshot(
            at=at,
            interval=self._config.agent.interval,
            driver=driver,
            gpus=tuple(gpus),
            statuses=statuses,
            sources=tuple(sources),
            unanswered=unanswered,
            awaited=awaited or {},
            bus=bus if answered else None,
            expected_gpus=self._config.agent.expected_gpus if answered else None,
            node=self._node,
            host=self._host,
        )
        judgement = self.judge.judge(snapshot, self.unjudged, attribution)
        self.unjudged = []
        return View(
            snapshot=snapshot,
            agent=agent,
            attribution=attribution,
            owners=tuple(owners.values()),
            pod_energy=self._energy.update(gpus, attribution),
            xids=xids,
            sxids=sxids,
            judgement=judgement,
        )


class Assembly:
    """The last state of the slower sources, and the join. `refresh_*` may run on threads of their own."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        node: str,
        memory: Iterable[Finding] = (),
        *,
        failures: Iterable[Finding] = (),
        patient: bool = True,
    ) -> None:
        """`memory`: findings that were open when the agent ended; `failures`: what applications had done by then;
        `patient` False: there will be one look only.
        """
        sources = config.sources
        self._config, self._clock = config, clock
        off = {name: OFF if name in sources.disabled else None for name in ("podresources", "procfs", "pci")}
        self._health = {name: SourceHealth(name, clock, reason) for name, reason in off.items()}
        self._enabled = {name for name, reason in off.items() if reason is None}
        self._kubelet: PodResources | None = None
        self._allocations: tuple[Allocation, ...] | None = None
        self._allocated = 0.0  # monotonic
        self._bus: tuple[BusGpu, ...] | None = None
        self._hidden: set[str] = set()
        self._logs = PodLogs(Path(sources.pod_logs).parent)
        self._processes = Processes(Path(sources.proc), self._logs)
        self._strangers: frozenset[int | str] = frozenset()
        self._unseen: dict[int, float] = {}  # pid -> first sample in which /proc did not have it
        judge = Judge(
            config.checks, memory, failures=failures, uptime=uptime(Path(sources.proc)) or 0.0, patient=patient
        )
        host = machine(Path(sources.proc), Path(sources.sys), Path(sources.machine_id))
        self._join = ViewJoin(config, judge, node, host)
        self.wants_allocations = False

    def refresh_allocations(self) -> None:
        """Ask the kubelet. A node without one is no failure: pods are then unknown, processes are not."""
        if "podresources" not in self._enabled:
            return
        from gpuwatch.workloads.podresources import PodResources, PodResourcesError

        path = Path(self._config.sources.pod_resources)
        if self._allocations is None and not path.parent.exists() and not in_pod():
            self._health["podresources"].switch_off(f"{path} is not there: no kubelet on this machine, or not mounted")
            return
        if self._kubelet is None:
            self._kubelet = PodResources(path, resources=self._config.sources.resource_names)
        with self._health["podresources"].asking(PodResourcesError):
            allocations = self._kubelet.allocations()
            self._logs.refresh()
            self._allocations = tuple(self._logs.with_uid(allocation) for allocation in allocations)
            self._allocated = self._clock.monotonic()

    def refresh_bus(self) -> bool:
        """Look at the PCI bus; True when GPUs came, went or got another driver since the last look."""
        if "pci" not in self._enabled:
            return False
        before = self._bus
        with self._health["pci"].asking():
            self._bus = bus_gpus(Path(self._config.sources.sys) / "bus/pci/devices")
            gpus = driver_gpus(Path(self._config.sources.proc) / "driver/nvidia/gpus")
            devices = Path(self._config.sources.dev)
            self._hidden = {
                g.address for g in gpus if g.minor is not None and not (devices / f"nvidia{g.minor}").exists()
            }
            if gpus and self._bus:  # NVIDIA's container runtime lists only what the container was given
                listed = {g.address for g in gpus}
                self._hidden |= {g.address for g in self._bus if g.driver == "nvidia" and g.address not in listed}
        if self._bus is None:
            self._health["pci"].switch_off(f"{self._config.sources.sys}/bus/pci/devices cannot be read")
            return False
        return before is not None and {(g.address, g.driver) for g in before} != {
            (g.address, g.driver) for g in self._bus
        }

    def view(
        self,
        at: float,
        gpus: Sequence[Gpu],
        statuses: tuple[GpuStatus, ...],
        driver: Driver | None,
        *,
        answered: bool,
        unanswered: dict[int, str],
        awaited: dict[int, float] | None = None,
        last_seen: Sequence[Gpu],
        sources: Sequence[SourceStatus],
        agent: AgentStatus,
        xids: tuple[XidCount, ...],
        sxids: tuple[SxidCount, ...],
        news: Iterable[Event] = (),
    ) -> View:
        """One View, as `ViewJoin.view` describes."""
        self._join.unjudged += news
        owners = self._owners(gpus)
        stale = (
            self._clock.monotonic() - self._allocated > STALE_INTERVALS * self._config.sources.pod_resources_interval
        )
        view = self._join.view(
            at,
            gpus,
            statuses,
            driver,
            answered=answered,
            unanswered=unanswered,
            awaited=awaited,
            last_seen=last_seen,
            sources=(*sources, *(self._status(name, stale=stale) for name in self._health)),
            bus=self.bus,
            allocations=None if stale else self._allocations,
            owners=owners,
            agent=agent,
            xids=xids,
            sxids=sxids,
        )
        self._notice_news(view.attribution, owners)
        return view

    def configure(self, config: Config) -> None:
        """Judge by other settings from the next View on."""
        self._join.judge.configure(config.checks)

    def believe(self, said: Mapping[str, float]) -> None:
        """What a person has said to be repaired, and when: GPU uuid or `node` -> unix time."""
        self._join.judge.said = said

    @property
    def bus(self) -> tuple[str, ...] | None:
        """GPUs on the bus, but for those another driver has (vfio-pci, nouveau) or this container may not see."""
        if self._bus is None:
            return None
        return tuple(g.address for g in self._bus if g.driver in (None, "nvidia") and g.address not in self._hidden)

    def _status(self, name: str, *, stale: bool) -> SourceStatus:
        """A kubelet whose last answer is withheld is not up."""
        status = self._health[name].status
        if name == "podresources" and status.up and stale:
            return replace(status, up=False, reason="its last answer is too old")
        return status

    def _owners(self, gpus: Sequence[Gpu]) -> dict[int, ProcessOwner]:
        if "procfs" not in self._enabled:
            return {}
        pids = {process.pid: gpu.at for gpu in gpus for process in gpu.processes or ()}
        owners: dict[int, ProcessOwner] = {}
        with self._health["procfs"].asking(OSError):
            owners = self._processes.owners(pids)
            self._unseen = {pid: self._unseen.get(pid, at) for pid, at in pids.items() if pid not in owners}
            # in a single sample they may just have ended
            if not owners and any(pids[pid] > first for pid, first in self._unseen.items()):
                raise PermissionError(
                    f"none of {len(pids)} GPU processes can be seen in {self._config.sources.proc}; "
                    "run in the host's pid namespace (hostPID)"
                )
        return owners

    def _notice_news(self, attribution: Attribution, owners: dict[int, ProcessOwner]) -> None:
        """A device or pod process nobody told us of: the kubelet may know more by now. Each is asked about once."""
        pods = {pid for pid, owner in owners.items() if owner.pod_uid}
        strangers: frozenset[int | str] = frozenset((*pods, *attribution.unknown_devices))
        self.wants_allocations = bool(strangers - self._strangers)
        self._strangers = strangers


_Party = tuple[str, str | None, str | None, str | None]
"""GPU, namespace, pod (its uid while the name is unknown), container: a workload learns its uid only later."""


class EnergyMeter:
    """Joules per pod and GPU, from the GPU's energy counter and each pod's share of it."""

    def __init__(self) -> None:
        self._counters: dict[str, float] = {}
        self._joules: dict[_Party, float] = {}

    def update(self, gpus: Sequence[Gpu], attribution: Attribution) -> tuple[PodEnergy, ...]:
        """Add what was used since the previous update; pods that left are forgotten."""
        used: dict[str, float] = {}
        for gpu in gpus:
            uuid, counter = gpu.identity.uuid, gpu.power.energy
            if counter is not None:
                # a smaller counter is one that began anew with the driver
                used[uuid] = max(0.0, counter - self._counters.get(uuid, counter))
                self._counters[uuid] = counter
        joules: dict[_Party, float] = {}
        workloads: dict[_Party, Workload] = {}
        for row in attribution.usage:
            key = (row.gpu, row.workload.namespace, row.workload.pod or row.workload.pod_uid, row.workload.container)
            before = joules.get(key, self._joules.get(key, 0.0))
            joules[key] = before + row.energy_share * used.get(row.gpu, 0.0)
            workloads[key] = row.workload
        self._joules = joules
        return tuple(PodEnergy(gpu=key[0], workload=workloads[key], joules=j) for key, j in joules.items())
