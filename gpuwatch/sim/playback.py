"""The Views of a scenario on simulated time: a node's day takes seconds, without processes, sockets or waits.

One loop stands in for the agent's processes. It makes the messages that a reader process would send and gives them to
the agent's own NodeState, XidLedger and ViewJoin, so that a scenario is judged exactly as a node is.
"""

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from gpuwatch import __version__
from gpuwatch.agent.node_state import NodeState
from gpuwatch.agent.view_builder import SlowSources, ViewInputs, ViewJoin
from gpuwatch.collect.kernel_log.lines import read_message
from gpuwatch.collect.nvml.gpu import GpuReader, register
from gpuwatch.collect.nvml.library import Failure, NvmlFailure, ask
from gpuwatch.collect.reader.driver import versions
from gpuwatch.collect.reader.messages import (
    AnyMessage,
    DriverOpened,
    GpuFound,
    GpuRefused,
    GpuSample,
    GpuTrouble,
    ReaderFailed,
    ReaderHeartbeat,
    ReadUnderWay,
)
from gpuwatch.config import Config
from gpuwatch.health.judge import Judge
from gpuwatch.health.xid.ledger import XidLedger
from gpuwatch.model.snapshot import Host
from gpuwatch.model.view import AgentStatus, View
from gpuwatch.model.workload import ProcessOwner
from gpuwatch.model.xid import KernelEvent
from gpuwatch.sim.node.gpu import SimGpu
from gpuwatch.sim.node.node import SimNode
from gpuwatch.sim.node.pods import allocatable, allocations, pods, processes
from gpuwatch.sim.node.scenario import Scenario
from gpuwatch.sim.nvml import SimNvml

SHORT_STEP = 2.0
"""Seconds between samples for BUSY seconds after an action of the scenario."""

LONG_STEP = 60.0
"""Seconds between samples at other times."""

BUSY = 60.0

GRID = 40.0
"""Speed at which the node's physics has steps of two seconds."""

BOOT_ID = "playback"
UPTIME = 3600.0
"""Seconds since boot when the scenario begins: the judge's grace after a boot is over."""


def views(
    scenario: Scenario,
    config: Config,
    started: float,
    duration: float,
    seed: int = 1,
    *,
    node: str = "node",
    short_step: float = SHORT_STEP,
    long_step: float = LONG_STEP,
    with_gpm: bool = False,
) -> Iterator[View]:
    """The Views that the agent of such a node would publish in `duration` seconds from unix time `started`.

    `short_step`: seconds between samples after an action. There is a sample at every multiple of `long_step`.
    """
    playback = Playback(scenario, config, started, seed, node, with_gpm)
    at = busy_since = 0.0
    changes = playback.node.changes
    while at <= duration:
        yield playback.view(at)
        if playback.node.changes != changes:
            changes, busy_since = playback.node.changes, at
        grid = long_step * (at // long_step + 1)
        due = playback.node.next_action
        following = min(at + short_step, grid) if at - busy_since < BUSY else grid
        at = following if due is None or due <= at else min(following, due + 0.5)


class Playback:
    """A node on simulated time and an agent's state of it. For `SimNvml` it replaces the node's replica."""

    ended = False

    def __init__(
        self, scenario: Scenario, config: Config, started: float, seed: int, name: str, with_gpm: bool
    ) -> None:
        self.node = SimNode(scenario, seed, GRID)
        self.now = 0.0
        self._started, self._with_gpm = started, with_gpm
        self._state = NodeState(config.agent.interval, self.now)
        self._ledger = XidLedger()
        self._join = ViewJoin(config, Judge(config.checks, uptime=UPTIME), name, Host(boot_id=BOOT_ID))
        self._nvml: Any = None
        self._attached: list[SimGpu] = []
        self._readers: dict[int, GpuReader] = {}  # by NVML index
        self._sampled: dict[str, float] = {}
        self._lines = 0

    def update(self) -> SimNode:
        """The node at this moment."""
        self.node.advance(self.now)
        return self.node

    def wall_time(self, t: float) -> float:
        """Unix time of a simulated second."""
        return self._started + t

    def view(self, at: float) -> View:
        """Read the GPUs and the kernel log at a simulated second, and join them."""
        self.now = at
        node, state, ledger = self.update(), self._state, self._ledger
        for message in self._messages():
            state.handle(message, at)
            if isinstance(message, GpuFound):
                ledger.know({message.identity.pci_bus_id: message.identity.uuid})
        for number, line in enumerate(tuple(node.lines)[self._lines :], self._lines):
            if line.facility == 0:  # any user may write the others
                at_line = self.wall_time(line.t)
                ledger.observe(KernelEvent(at=at_line, line=read_message(line.text), boot_id=BOOT_ID, sequence=number))
        self._lines = len(node.lines)
        unix = self.wall_time(at)
        inputs = ViewInputs(
            at=unix,
            reading=state.reading(at, unix),
            sources=(),
            agent=AgentStatus(version=__version__, started=self._started, unknown_xids=ledger.unknown),
            xids=ledger.xids(),
            sxids=ledger.sxids(),
            news=ledger.news(),
        )
        bus = tuple(str(gpu.address) for gpu in node.gpus if not gpu.faults.off_bus)
        # The kubelet's answer, with the uids of the pods, which the agent learns from their log folders.
        uids = {(pod.namespace, pod.pod): pod.pod_uid for pod in pods(node)}
        works = [(each, each.workload) for each in allocations(node)]
        allocated = tuple(
            replace(each, workload=replace(work, pod_uid=uids.get((work.namespace, work.pod)))) for each, work in works
        )
        return self._join.view(inputs, SlowSources((), bus, allocated, tuple(allocatable(node)), _owners(node)))

    def _messages(self) -> Iterator[AnyMessage]:
        """The messages that a reader process would send now."""
        node, at = self.node, self.now
        hung = {gpu.uuid for gpu in node.gpus if node.driver_hung or gpu.faults.hung}
        waits = {uuid: at - self._sampled.get(uuid, at) for uuid in hung}
        yield ReaderHeartbeat(reads={uuid: ReadUnderWay("a driver call", wait, wait) for uuid, wait in waits.items()})
        attached = [gpu for gpu in node.gpus if gpu.attached]
        if node.driver_hung:
            return
        try:
            if self._nvml is None or attached != self._attached:  # a GPU that came back needs a newly opened driver
                self._nvml, self._attached, self._readers = SimNvml(self), attached, {}  # type: ignore[arg-type]
                ask(self._nvml, "nvmlInit")
                yield DriverOpened(driver=versions(self._nvml), count=len(attached))
            for index, gpu in enumerate(attached):
                if gpu.uuid not in hung:
                    yield from self._sample(index, gpu.uuid)
        except NvmlFailure as error:
            self._nvml = None
            yield ReaderFailed(reason=str(error), kind=error.kind, code=error.code)

    def _sample(self, index: int, uuid: str) -> Iterator[AnyMessage]:
        """The messages about one GPU. Raises NvmlFailure when the driver is gone."""
        reader = self._readers.get(index)
        try:
            if reader is None:
                handle, identity = register(self._nvml, index)
                reader = GpuReader(self._nvml, handle, identity, with_gpm=self._with_gpm, buffers=False)
                self._readers[index] = reader
                yield GpuFound(identity=identity)
            yield GpuSample(gpu=reader.read(self.wall_time(self.now), self.now))
            self._sampled[uuid] = self.now
        except NvmlFailure as error:
            if error.kind is Failure.DRIVER_GONE:
                raise
            lost = error.kind is Failure.LOST
            if reader is None:
                yield GpuRefused(index=index, lost=lost, reason=str(error))
            else:
                yield GpuTrouble(uuid=uuid, lost=lost, reason=str(error))


def _owners(node: SimNode) -> dict[int, ProcessOwner]:
    """By pid, as the agent reads them from /proc."""
    return {
        process.pid: ProcessOwner(
            pid=process.pid,
            start_time=process.start_time,
            name=process.name,
            uid=process.uid,
            pod_uid=process.workload.pod_uid if process.workload else None,
            workload=process.workload,
            slurm_job=process.slurm_job,
            container=process.container,
        )
        for process in processes(node)
    }
