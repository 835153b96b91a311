"""The Views of a scenario on simulated time: a day of a node in seconds, without processes, sockets or waiting.

What the agent does in four processes is done here in one loop, by the same reading, judging and joining code.
"""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from gpuwatch import __version__
from gpuwatch.collect.kernel_log.grammar import read_message
from gpuwatch.collect.nvml.gpu import GpuReader, register
from gpuwatch.collect.nvml.library import Failure, NvmlFailure, ask
from gpuwatch.collect.reader.driver import versions
from gpuwatch.config import Config
from gpuwatch.health.judge import Judge
from gpuwatch.health.xid.ledger import XidLedger
from gpuwatch.model.snapshot import Gpu, GpuState, GpuStatus, Host, Identity, Snapshot, SourceStatus
from gpuwatch.model.view import AgentStatus, View
from gpuwatch.model.workload import Allocation, ProcessOwner
from gpuwatch.model.xid import KernelEvent
from gpuwatch.sim.node.cluster import allocations, pods, processes
from gpuwatch.sim.node.node import Node
from gpuwatch.sim.node.scenario import Scenario
from gpuwatch.sim.nvml import SimNvml
from gpuwatch.workloads.attribution import attribute

CLOSE = 2.0
"""Seconds between looks while something goes on,"""

AFAR = 60.0
"""and otherwise."""

BUSY = 60.0
"""Seconds for which something goes on after it happened."""

GRID = 40.0
"""Speed that makes the node's physics go in steps of two seconds."""


class _Keeper:
    """The time of the playback, where a running node has a real clock."""

    ended = False

    def __init__(self, node: Node, started: float) -> None:
        self.node, self.started, self.now = node, started, 0.0

    def update(self) -> Node:
        """The node at this moment."""
        self.node.advance(self.now)
        return self.node

    def wall_time(self, t: float) -> float:
        """Unix time of a simulated second."""
        return self.started + t


def views(
    scenario: Scenario,
    config: Config,
    started: float,
    duration: float,
    seed: int = 1,
    *,
    node: str = "node",
    close: float = CLOSE,
    afar: float = AFAR,
    with_gpm: bool = False,
) -> Iterator[View]:
    """What the agent of such a node would have published in `duration` seconds from unix time `started`.

    `close`: seconds between looks while something goes on. There is a look at every multiple of `afar`, whatever
    happens.
    """
    playback = _Playback(scenario, config, started, seed, node, close, afar, with_gpm)
    at = 0.0
    while at <= duration:
        yield playback.look(at)
        at = playback.next(at)


class _Playback:
    def __init__(
        self,
        scenario: Scenario,
        config: Config,
        started: float,
        seed: int,
        name: str,
        close: float,
        afar: float,
        with_gpm: bool,
    ) -> None:
        self._name, self._close, self._afar, self._with_gpm = name, close, afar, with_gpm
        self._node = Node(scenario, seed, GRID)
        self._keeper = _Keeper(self._node, started)
        self._config, self._started = config, started
        self._judge = Judge(config.checks, uptime=3600.0)
        self._ledger = XidLedger()
        self._readers: dict[int, tuple[Identity, GpuReader]] = {}
        self._known: dict[str, GpuStatus] = {}
        self._last: dict[str, Gpu] = {}
        self._nvml: Any = None
        self._lines = 0
        self._changes, self._changed = self._node.changes, 0.0

    def next(self, at: float) -> float:
        """When to look again: soon while something goes on, and always right after something happens."""
        if self._node.changes != self._changes:
            self._changes, self._changed = self._node.changes, at
        grid = self._afar * (at // self._afar + 1)
        soon = min(at + self._close, grid) if at - self._changed < BUSY else grid
        due = self._node.next_action
        return soon if due is None or due <= at else min(soon, due + 0.5)

    def look(self, at: float) -> View:
        """One View."""
        self._keeper.now = at
        node, unix = self._keeper.update(), self._started + at
        gpus = tuple(gpu for index in range(len(node.gpus)) if (gpu := self._read(index, unix, at)) is not None)
        self._last |= {gpu.identity.uuid: gpu for gpu in gpus}
        self._hear(node)
        fresh = {gpu.identity.uuid for gpu in gpus}
        unseen = tuple(gpu for uuid, gpu in self._last.items() if uuid not in fresh)
        owners = _owners(node)
        attribution = attribute((*gpus, *unseen), _allocations(node), owners)
        up = node.driver_up and not node.driver_hung
        snapshot = Snapshot(
            at=unix,
            interval=CLOSE,
            driver=versions(self._nvml) if self._nvml is not None and up else None,
            gpus=gpus,
            statuses=tuple(self._known.values()),
            sources=(SourceStatus(name="nvml", up=up, reason="" if up else "the driver does not answer"),),
            bus=tuple(str(gpu.address) for gpu in node.gpus if not gpu.faults.off_bus) if up else None,
            node=self._name,
            host=Host(boot_id="playback"),
        )
        judgement = self._judge.judge(snapshot, self._ledger.news(), attribution)
        return View(
            snapshot=snapshot,
            agent=AgentStatus(version=__version__, started=self._started),
            attribution=attribution,
            owners=tuple(owners.values()),
            xids=self._ledger.xids(),
            sxids=self._ledger.sxids(),
            judgement=judgement,
        )

    def _read(self, index: int, unix: float, at: float) -> Gpu | None:
        """The GPU's sample, None where it gives none; its state is kept either way."""
        if self._node.driver_hung or self._node.gpus[index].faults.hung:
            self._note(index, GpuState.UNRESPONSIVE, "a driver call does not return", unix)
            return None
        try:
            gpu = self._reader(index).read(unix, at)
        except NvmlFailure as error:
            lost = error.kind is Failure.LOST
            if not lost:
                self._nvml, self._readers = None, {}
            self._note(index, GpuState.LOST if lost else GpuState.UNKNOWN, str(error), unix)
            return None
        self._known[gpu.identity.uuid] = GpuStatus(identity=gpu.identity, state=GpuState.FRESH)
        return gpu

    def _note(self, index: int, state: GpuState, detail: str, unix: float) -> None:
        uuid = self._node.gpus[index].uuid
        known = self._known.get(uuid)
        if known is not None and known.state is not state:
            self._known[uuid] = GpuStatus(identity=known.identity, state=state, detail=detail, since=unix)

    def _reader(self, index: int) -> GpuReader:
        if self._nvml is None:
            self._nvml = SimNvml(self._keeper)  # type: ignore[arg-type]  # a keeper of another time
            ask(self._nvml, "nvmlInit")
        if index not in self._readers:
            handle, identity = register(self._nvml, index)
            self._ledger.know({identity.pci_bus_id: identity.uuid})
            reader = GpuReader(self._nvml, handle, identity, with_gpm=self._with_gpm, buffers=False)
            self._readers[index] = (identity, reader)
        return self._readers[index][1]

    def _hear(self, node: Node) -> None:
        """The kernel log since the last look; a line that any user may have written is none of the driver's."""
        for number, line in enumerate(tuple(node.lines)[self._lines :], self._lines):
            if line.facility == 0:
                read = read_message(line.text)
                event = KernelEvent(at=self._started + line.t, line=read, boot_id="playback", sequence=number)
                self._ledger.observe(event)
        self._lines = len(node.lines)


def _allocations(node: Node) -> tuple[Allocation, ...]:
    """What the kubelet gave to whom, with the uids of the pods, which the agent learns from their log folders."""
    known = {(pod.namespace, pod.pod): pod.pod_uid for pod in pods(node)}
    return tuple(
        replace(each, workload=replace(each.workload, pod_uid=known.get((each.workload.namespace, each.workload.pod))))
        for each in allocations(node)
    )


def _owners(node: Node) -> dict[int, ProcessOwner]:
    """Whose the processes are, by pid."""
    return {
        process.pid: ProcessOwner(
            pid=process.pid,
            start_time=process.start_time,
            name=process.name,
            uid=process.uid,
            pod_uid=process.workload.pod_uid if process.workload else None,
            workload=process.workload,
            slurm_job=process.slurm_job,
        )
        for process in processes(node)
    }
