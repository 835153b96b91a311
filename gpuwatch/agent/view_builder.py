"""Joins the results of all sources into one View: snapshot, users of GPUs, energy per pod, judgement."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from gpuwatch.agent.driver_gpus import DriverGpus
from gpuwatch.agent.node_state import DriverReading
from gpuwatch.collect.reader.messages import Settings
from gpuwatch.config import Backend, Config, MetricsConfig
from gpuwatch.consents.file import ConsentsFile
from gpuwatch.health.judge import Judge
from gpuwatch.health.xid.ledger import Event
from gpuwatch.host.load import uptime
from gpuwatch.host.machine import in_pod, machine
from gpuwatch.host.pci import BusGpu, bus_gpus
from gpuwatch.model.clock import Clock
from gpuwatch.model.consent import Consents
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.finding import Finding
from gpuwatch.model.snapshot import Gpu, Host, Snapshot, SourceStatus
from gpuwatch.model.view import STALE_INTERVALS, AgentStatus, PodEnergy, RepairerStatus, RoleReport, Validation, View
from gpuwatch.model.workload import Allocatable, Allocation, Attribution, EnergyMethod, ProcessOwner, Workload
from gpuwatch.model.xid import SxidCount, XidCount
from gpuwatch.workloads.attribution import attribute
from gpuwatch.workloads.podresources import PodResources, PodResourcesError
from gpuwatch.workloads.procfs import PodLogs, Processes

OFF = "switched off in the configuration"


def reader_settings(config: Config, backend: Backend, interval: float) -> Settings:
    """The settings of a reader on this node."""
    return Settings(
        factory=backend.factory,
        target=backend.target or config.sources.nvml_library,
        interval=interval,
        with_gpm="gpm" not in config.sources.disabled,
        buffers=config.sources.sample_buffers,
    )


def capture_status(backend: Backend) -> tuple[SourceStatus, ...]:
    """The status of an incomplete dump as a source that is down: its missing values are unknown, not healthy."""
    return (SourceStatus(name="capture", up=False, reason=backend.incomplete),) if backend.incomplete else ()


class ViewInputs(NamedTuple):
    """The inputs of a View, without the slower sources."""

    at: float  # unix time
    reading: DriverReading
    sources: tuple[SourceStatus, ...]  # kernel log and store
    agent: AgentStatus
    xids: tuple[XidCount, ...]
    sxids: tuple[SxidCount, ...]
    news: tuple[Event, ...]  # events that the ledger has added or completed since the last View


class SlowSources(NamedTuple):
    """The last results of the kubelet, the PCI bus and /proc."""

    sources: tuple[SourceStatus, ...] = ()
    bus: tuple[str, ...] | None = None  # addresses of the GPUs that should be there; None: not known
    allocations: tuple[Allocation, ...] | None = None  # None while the kubelet does not answer
    allocatable: tuple[Allocatable, ...] | None = None  # None also where the kubelet lacks the call
    owners: Mapping[int, ProcessOwner] = {}  # by pid
    validations: tuple[Validation, ...] = ()
    repairer: RepairerStatus | None = None
    roles: tuple[RoleReport, ...] = ()
    consents: Consents | None = None


class ViewJoin:
    """Joins samples, workloads and events into Views, for an agent and for a scenario on simulated time alike.

    It does no I/O and belongs to one thread.
    """

    def __init__(self, config: Config, judge: Judge, node: str, host: Host) -> None:
        self._config, self._node, self._host = config, node, host
        self.judge = judge
        self._energy = EnergyMeter()
        self._unjudged: list[Event] = []

    def view(self, inputs: ViewInputs, slow: SlowSources) -> View:
        """One View."""
        self._unjudged += inputs.news  # if this View fails, the next one is judged by them
        reading = inputs.reading
        attribution = attribute((*reading.gpus, *reading.last_seen), slow.allocations, slow.owners, slow.allocatable)
        snapshot = Snapshot(
            at=inputs.at,
            interval=self._config.agent.interval,
            driver=reading.driver,
            gpus=reading.gpus,
            statuses=reading.statuses,
            sources=(*reading.sources, *inputs.sources, *slow.sources),
            unanswered=reading.unanswered,
            awaited=reading.awaited,
            bus=slow.bus if reading.answered else None,
            expected_gpus=self._config.agent.expected_gpus if reading.answered else None,
            node=self._node,
            host=self._host,
        )
        judgement = self.judge.judge(snapshot, self._unjudged, attribution)
        self._unjudged = []
        return View(
            snapshot=snapshot,
            agent=inputs.agent,
            attribution=attribution,
            owners=tuple(slow.owners.values()),
            pod_energy=self._energy.update(reading.gpus, attribution),
            xids=inputs.xids,
            sxids=inputs.sxids,
            judgement=judgement,
            validations=slow.validations,
            repairer=slow.repairer,
            roles=slow.roles,
            consents=slow.consents,
        )


class _Bus(NamedTuple):
    """One read of the PCI bus: never changed, replaced as a whole."""

    gpus: tuple[BusGpu, ...] | None = None
    hidden: frozenset[str] = frozenset()  # addresses of GPUs that this container has no access to


class ViewBuilder:
    """The last state of the slower sources, and the join.

    Threads: `view` and `configure`, and with them the judge, belong to the publisher; each `refresh_*` to one
    thread; `set_repaired` and `set_roles` to any. There is no lock: what crosses threads (`_allocations`, `_bus`,
    `_consents`, `_repaired`, `_validations`, `_repairer`, `_roles`) is an immutable value that is replaced in one
    assignment.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock,
        node: str,
        memory: Iterable[Finding] = (),
        *,
        failures: Iterable[Finding] = (),
        hysteresis: bool = True,
    ) -> None:
        """`memory`: findings that were open when the agent ended; `failures`: findings of failed applications by then;
        `hysteresis` False: there will be one View only.
        """
        sources = config.sources
        self._config, self._clock = config, clock
        off = {name: OFF if name in sources.disabled else None for name in ("podresources", "procfs", "pci")}
        self._health = {name: SourceHealth(name, clock, reason) for name, reason in off.items()}
        self._labels = SourceHealth("consents", clock)
        self._enabled = {name for name, reason in off.items() if reason is None}
        self._kubelet: PodResources | None = None
        # allocations, allocatable devices, and their monotonic time
        self._allocations: tuple[tuple[Allocation, ...] | None, tuple[Allocatable, ...] | None, float] = None, None, 0.0
        self._bus = _Bus()
        self._driver_gpus = DriverGpus(Path(sources.proc) / "driver/nvidia/gpus")
        self._logs = PodLogs(Path(sources.pod_logs).parent)
        paths = Path(sources.proc), self._logs
        self._processes = Processes(*paths, jobs=sources.slurm_jobs, runtimes=sources.containers)
        self._unlisted: frozenset[int | str] = frozenset()
        self._unseen: dict[int, float] = {}  # pid -> first sample in which /proc did not have it
        self._repaired: Mapping[str, float] = {}
        self._validations: tuple[Validation, ...] = ()
        self._repairer: RepairerStatus | None = None
        self._roles: tuple[RoleReport, ...] = ()
        self._consents: Consents | None = None
        up = uptime(Path(sources.proc)) or 0.0
        judge = Judge(config.checks, memory, failures=failures, uptime=up, hysteresis=hysteresis)
        host = machine(Path(sources.proc), Path(sources.sys), Path(sources.machine_id))
        self._join = ViewJoin(config, judge, node, host)
        self.needs_allocations = False

    def refresh_allocations(self) -> None:
        """Ask the kubelet. A node without one is no failure: pods are then unknown, processes are not."""
        if "podresources" not in self._enabled:
            return
        path = Path(self._config.sources.pod_resources)
        if self._allocations[0] is None and not path.parent.exists() and not in_pod():
            self._health["podresources"].switch_off(f"{path} is not there: no kubelet on this machine, or not mounted")
            return
        if self._kubelet is None:
            self._kubelet = PodResources(path, resources=self._config.sources.resource_names)
        with self._health["podresources"].asking(PodResourcesError):
            found = self._kubelet.allocations()
            allocatable = self._kubelet.allocatable()
            self._logs.refresh()
            self._allocations = tuple(map(self._logs.with_uid, found)), allocatable, self._clock.monotonic()

    def refresh_bus(self) -> bool:
        """Read the PCI bus; True when GPUs came, went or got another driver since the last read."""
        if "pci" not in self._enabled:
            return False
        before = self._bus.gpus
        with self._health["pci"].asking(OSError):
            on_bus = bus_gpus(Path(self._config.sources.sys) / "bus/pci/devices")
            gpus = self._driver_gpus.read()
            devices = Path(self._config.sources.dev)
            hidden = {g.address for g in gpus if g.minor is not None and not (devices / f"nvidia{g.minor}").exists()}
            if gpus and on_bus:  # NVIDIA's container runtime lists only the GPUs of the container
                listed = {g.address for g in gpus}
                hidden |= {g.address for g in on_bus if g.driver == "nvidia" and g.address not in listed}
            self._bus = _Bus(on_bus, frozenset(hidden))
        now = self._bus.gpus
        if now is None:
            if self._health["pci"].status.up:
                self._health["pci"].switch_off(f"{self._config.sources.sys}/bus/pci/devices cannot be read")
            return False
        return before is not None and {(g.address, g.driver) for g in before} != {(g.address, g.driver) for g in now}

    def refresh_labels(self, metrics: MetricsConfig) -> None:
        """Read the labels of Node and pods, where the metrics export some; the agent has no token to ask for them."""
        of_pods, found = bool(metrics.pod_labels or metrics.pod_annotations), None
        if not (of_pods or metrics.node_labels) or not self._config.state_dir:
            self._labels.switch_off(OFF)
        else:
            with self._labels.asking(GpuwatchError):
                found = ConsentsFile(Path(self._config.state_dir)).read()
                if found is None or found.is_old(self._clock.time()):
                    why = "no file" if found is None else "the file is more than two minutes old"
                    raise GpuwatchError("no labels for the metrics", why, "start `gpuwatch tuner --consents`")
        self._consents = found and found.only_labels(pods=of_pods)

    def view(self, inputs: ViewInputs) -> View:
        """One View of `inputs` and the last results of the slower sources; reads /proc for the owners of processes."""
        owners = self._owners(inputs.reading.gpus)
        allocations, allocatable, allocated = self._allocations
        stale = self._clock.monotonic() - allocated > STALE_INTERVALS * self._config.sources.pod_resources_interval
        statuses = {name: health.status for name, health in self._health.items()}
        if stale and statuses["podresources"].up:  # its last answer is withheld
            statuses["podresources"] = replace(statuses["podresources"], up=False, reason="its last answer is too old")
        if self._labels.status.up is not None:
            statuses["consents"] = self._labels.status
        consents = self._consents if self._consents and not self._consents.is_old(inputs.at) else None
        self._join.judge.repaired_at = self._repaired
        given = (None, None) if stale else (allocations, allocatable)
        roles = self._repairer, self._roles
        slow = SlowSources(tuple(statuses.values()), self.bus, *given, owners, self._validations, *roles, consents)
        view = self._join.view(inputs, slow)
        # a new pod process or an unknown device: the kubelet may know more by now, and is asked once for each
        pods = {pid for pid, owner in owners.items() if owner.pod_uid}
        unlisted: frozenset[int | str] = frozenset((*pods, *view.attribution.unknown_devices))
        self.needs_allocations = bool(unlisted - self._unlisted)
        self._unlisted = unlisted
        return view

    def configure(self, config: Config) -> None:
        """Judge by other settings from the next View on."""
        self._join.judge.configure(config.checks)

    def set_repaired(self, repaired: Mapping[str, float], validations: tuple[Validation, ...] = ()) -> None:
        """What an operator marked as repaired, and when: GPU uuid or `node` -> unix time. What was validated."""
        self._repaired, self._validations = repaired, validations

    def set_roles(self, repairer: RepairerStatus | None, others: tuple[RoleReport, ...]) -> None:
        """What repairer, remediator and tuner last reported."""
        self._repairer, self._roles = repairer, others

    @property
    def bus(self) -> tuple[str, ...] | None:
        """GPUs on the bus, except those of another driver (vfio-pci, nouveau) or hidden from this container."""
        gpus, hidden = self._bus
        if gpus is None:
            return None
        return tuple(g.address for g in gpus if g.driver in (None, "nvidia") and g.address not in hidden)

    def _owners(self, gpus: Sequence[Gpu]) -> dict[int, ProcessOwner]:
        if "procfs" not in self._enabled:
            return {}
        pids = {process.pid: gpu.at for gpu in gpus for process in gpu.processes or ()}
        owners: dict[int, ProcessOwner] = {}
        with self._health["procfs"].asking(OSError):
            owners = self._processes.owners(pids)
            self._unseen = {pid: self._unseen.get(pid, at) for pid, at in pids.items() if pid not in owners}
            # in a single sample they may have ended meanwhile
            if not owners and any(pids[pid] > first for pid, first in self._unseen.items()):
                raise PermissionError(
                    f"none of {len(pids)} GPU processes can be seen in {self._config.sources.proc}; "
                    "run in the host's pid namespace (hostPID)"
                )
        return owners


_Party = tuple[str, int | None, str | None, str | None, str | None]
"""GPU, GPU instance, namespace, pod (its uid while the name is unknown), container: a workload learns its uid only
later.
"""


class EnergyMeter:
    """Joules per pod and GPU, from the GPU's energy counter and each pod's share of it."""

    def __init__(self) -> None:
        self._counters: dict[str, float] = {}
        self._joules: dict[_Party, dict[EnergyMethod, float]] = {}
        self._workloads: dict[_Party, Workload] = {}

    def update(self, gpus: Sequence[Gpu], attribution: Attribution) -> tuple[PodEnergy, ...]:
        """Add what was used since the previous update; pods that left the GPU are dropped.

        An instance that only a part of a pod has left is kept: the pod's counter is a sum over instances, and one that
        falls looks like one that was reset.
        """
        used: dict[str, float] = {}
        for gpu in gpus:
            uuid, counter = gpu.identity.uuid, gpu.power.energy
            if counter is not None:
                # a smaller counter has restarted with the driver
                used[uuid] = max(0.0, counter - self._counters.get(uuid, counter))
                self._counters[uuid] = counter
        joules: dict[_Party, dict[EnergyMethod, float]] = {}
        workloads: dict[_Party, Workload] = {}
        for row in attribution.usage:
            pod = row.workload
            key = (row.gpu, row.gi, pod.namespace, pod.pod or pod.pod_uid, pod.container)
            spent = joules.setdefault(key, dict(self._joules.get(key, {})))
            spent[row.energy_method] = spent.get(row.energy_method, 0.0) + row.energy_share * used.get(row.gpu, 0.0)
            workloads[key] = pod
        here = {(gpu, namespace, pod, container) for gpu, _, namespace, pod, container in joules}
        for key, before in self._joules.items():
            if key not in joules and (key[0], *key[2:]) in here:
                joules[key], workloads[key] = before, self._workloads[key]
        self._joules, self._workloads = joules, workloads
        return tuple(
            PodEnergy(gpu=key[0], gi=key[1], method=method, workload=workloads[key], joules=spent)
            for key, methods in joules.items()
            for method, spent in methods.items()
        )


class SourceHealth:
    """One row per source, replaced as a whole, so that any thread may read it."""

    def __init__(self, name: str, clock: Clock, off: str | None = None) -> None:
        self._clock = clock
        self.status = SourceStatus(name=name, up=None, reason=off or "not asked yet")

    def switch_off(self, reason: str) -> None:
        """Mark the source as off: it does not exist here, which is no failure."""
        before = self.status
        self.status = SourceStatus(
            name=before.name, up=None, reason=reason, last_success=before.last_success, failures=before.failures
        )

    @contextmanager
    def asking(self, *failures: type[Exception]) -> Iterator[None]:
        """Time one use of the source; the named failures are counted and kept, not raised."""
        start, before = time.perf_counter(), self.status
        try:
            yield
        except failures as error:
            self.status = SourceStatus(
                name=before.name,
                up=False,
                reason=str(error),
                duration_seconds=time.perf_counter() - start,
                last_success=before.last_success,
                failures=before.failures + 1,
            )
        else:
            self.status = SourceStatus(
                name=before.name,
                up=True,
                duration_seconds=time.perf_counter() - start,
                last_success=self._clock.time(),
                failures=before.failures,
            )
