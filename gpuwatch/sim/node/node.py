"""A simulated node: a deterministic function of scenario, seed, speed and what was injected, stepped over a fixed grid.

Two processes that step it, the one that serves the kubelet and the kernel log and the one that answers for the
driver, see the same node without talking to each other.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from gpuwatch.model.pci import PciAddress
from gpuwatch.sim.node import noise
from gpuwatch.sim.node.actions import Action, AnyAction, Gpus, KubeletState, Workload
from gpuwatch.sim.node.effects import apply
from gpuwatch.sim.node.gpu import Process, SimGpu, Unit
from gpuwatch.sim.node.physics import Physics
from gpuwatch.sim.node.profiles import MODELS
from gpuwatch.sim.node.scenario import Scenario

STEP = 0.5
STEPS_PER_SECOND = 20
"""Steps of real time: however fast the node runs, it costs no more than this."""

BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)
"""Where an 8-GPU HGX board shows its GPUs."""


class Line(NamedTuple):
    """A kernel log line at a simulated second."""

    t: float
    text: str
    facility: int = 0


class Event(NamedTuple):
    """A driver event; `number` counts from the node's start."""

    number: int
    t: float
    gpu: int
    type: int
    data: int
    gi: int | None = None
    ci: int | None = None


class Node:
    """Everything about the machine at `time`. Not thread-safe. `physical` False leaves out watts and degrees."""

    def __init__(self, scenario: Scenario, seed: int = 1, speed: float = 1.0, physical: bool = True) -> None:
        spec = scenario.node
        self.scenario, self.seed, self.physical = scenario, seed, physical
        self.step = max(STEP, speed / STEPS_PER_SECOND)
        self.model = MODELS[spec.model]
        self.time = 0.0
        self.gpus = [SimGpu(self.model, i, seed, _address(i)) for i in range(spec.gpus)]
        self.physics = [Physics(gpu) for gpu in self.gpus]
        self.workloads: dict[str, Workload] = {}
        self.driver = spec.driver or self.model.driver
        self.driver_up, self.driver_hung, self.generation = True, False, 1
        self.init_error = ""  # NVML_ERROR_* with which nvmlInit fails
        self.kubelet: KubeletState = "ok"
        self.lines: deque[Line] = deque(maxlen=10_000)
        self.events: deque[Event] = deque(maxlen=10_000)
        self.event_count = 0
        self.changes = 0  # grows whenever something other than physics happened
        self._steps = 0
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, AnyAction]] = []
        for index, profiles in spec.mig.items():
            if index < len(self.gpus):
                self.gpus[index].cut(profiles)
        for workload in scenario.workloads:
            self.start(workload)
        for action in scenario.timeline:
            self.schedule(action)
        self._decide()
        for physics in self.physics:
            physics.settle()

    @property
    def next_action(self) -> float | None:
        """The simulated second of the next thing on the timeline."""
        return self._due[0][0] if self._due else None

    def schedule(self, action: AnyAction) -> None:
        """Put an action on the timeline; one in the past happens at the next step."""
        heapq.heappush(self._due, (action.at, next(self._numbers), action))

    def advance(self, t: float) -> None:
        """Run to `t`: actions at their very moments, physics on the grid."""
        while True:
            grid = (self._steps + 1) * self.step if self.physical else float("inf")
            due = self._due[0][0] if self._due else float("inf")
            if min(grid, due) > t:
                break
            if due < grid:
                self._act(heapq.heappop(self._due)[2])
            else:
                self._steps += 1
                self._move(grid)
        self.time = max(self.time, t)

    def select(self, gpus: Gpus) -> Iterator[SimGpu]:
        """The GPUs an action means; indexes that the node lacks mean none."""
        wanted = range(len(self.gpus)) if gpus == "all" else (gpus,) if isinstance(gpus, int) else gpus
        return (self.gpus[index] for index in wanted if 0 <= index < len(self.gpus))

    def start(self, workload: Workload) -> None:
        """Let work begin on every device it names that exists."""
        self.stop(workload.name)
        self.workloads[workload.name] = workload
        for number, device in enumerate(workload.gpus):
            unit = self.unit(device)
            if unit is None or workload.process == "" or device in workload.spare:
                continue
            stream = noise.key(self.seed, workload.name, number)
            pid = 2000 + stream % 4_000_000
            unit.processes.append(Process(pid=pid, workload=workload, stream=stream))

    def stop(self, name: str) -> None:
        """End the work of that name."""
        self.workloads.pop(name, None)
        for gpu in self.gpus:
            for unit in gpu.units:
                unit.processes = [process for process in unit.processes if process.workload.name != name]

    def unit(self, device: int | str) -> Unit | None:
        """The device a workload names: `3`, `3:0` (MIG instance 0) or `3::1` (a slot); None when there is none."""
        gpu_part, colon, rest = str(device).partition(":")
        gpu = self.gpus[int(gpu_part)] if gpu_part.isdecimal() and int(gpu_part) < len(self.gpus) else None
        index = int(rest) if colon and rest.isdecimal() else 0
        return gpu.units[index] if gpu and index < len(gpu.units) else None

    def log(self, text: str, facility: int = 0) -> None:
        """Write a kernel log line."""
        self.lines.append(Line(self.time, text, facility))

    def happen(self, gpu: SimGpu, kind: int, data: int = 0, gi: int | None = None, ci: int | None = None) -> None:
        """Raise a driver event."""
        self.event_count += 1
        self.events.append(Event(self.event_count, self.time, gpu.index, kind, data, gi, ci))

    def _act(self, action: AnyAction) -> None:
        self.time = max(self.time, action.at)
        self._advance_physics(self.time)
        self.changes += 1
        apply(self, action)
        left = None if action.times is None else action.times - 1
        if action.every and left != 0:
            again: Action = msgspec.structs.replace(action, at=action.at + action.every, times=left)
            self.schedule(again)  # type: ignore[arg-type]
        self._decide()

    def _move(self, t: float) -> None:
        self.time = t
        self._advance_physics(t)
        self._decide()

    def _advance_physics(self, t: float) -> None:
        if self.physical:
            for physics in self.physics:
                physics.advance(t)

    def _decide(self) -> None:
        if self.physical:
            for physics in self.physics:
                physics.decide()


def _address(index: int) -> PciAddress:
    return PciAddress(index // len(BUSES), BUSES[index % len(BUSES)], 0)
