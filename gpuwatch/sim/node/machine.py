"""The state of a simulated machine: GPUs, driver, workloads, its log lines, and its pending actions.

Effects change it, `SimNode` advances its time.
"""

import heapq
import itertools
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from gpuwatch.model.pci import PciAddress
from gpuwatch.sim.node import noise
from gpuwatch.sim.node.actions import AnyAction, Gpus, KubeletState, SimWorkload
from gpuwatch.sim.node.gpu import GpuClient, SimGpu, Unit
from gpuwatch.sim.node.physics import Physics
from gpuwatch.sim.node.profiles import MODELS
from gpuwatch.sim.node.scenario import Scenario

BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)
"""PCI buses of the GPUs on an 8-GPU HGX board."""


class LogLine(NamedTuple):
    """A kernel log line at a simulated second."""

    t: float
    text: str
    facility: int = 0


class SimEvent(NamedTuple):
    """A driver event; `number` counts from the node's start."""

    number: int
    t: float
    gpu: int
    type: int
    data: int
    gi: int | None = None
    ci: int | None = None


class Machine:
    """`time` is in simulated seconds. Not thread-safe."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        spec = scenario.node
        self.scenario, self.seed = scenario, seed
        self.model = MODELS[spec.model]
        self.time = 0.0
        places = [PciAddress(index // len(BUSES), BUSES[index % len(BUSES)], 0) for index in range(spec.gpus)]
        self.gpus = [SimGpu(self.model, index, seed, address) for index, address in enumerate(places)]
        self.physics = [Physics(gpu) for gpu in self.gpus]
        self.workloads: dict[str, SimWorkload] = {}
        self.driver = spec.driver or self.model.driver
        self.driver_up, self.driver_hung, self.generation = True, False, 1
        self.init_error = ""  # NVML_ERROR_* with which nvmlInit fails
        self.kubelet: KubeletState = "ok"
        self.withdrawn: tuple[int, ...] = ()  # GPUs that the device plugin reports unhealthy
        self.lines: deque[LogLine] = deque(maxlen=10_000)
        self.events: deque[SimEvent] = deque(maxlen=10_000)
        self.event_count = 0
        self.changes = 0  # grows whenever something other than physics happened
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, AnyAction]] = []

    @property
    def next_action(self) -> float | None:
        """The simulated second of the next action that is due."""
        return self._due[0][0] if self._due else None

    def schedule(self, action: AnyAction) -> None:
        """Put an action on the timeline; one in the past happens at the next step."""
        heapq.heappush(self._due, (action.at, next(self._numbers), action))

    def select(self, gpus: Gpus) -> Iterator[SimGpu]:
        """The GPUs that an action names; indexes that the machine lacks are left out."""
        wanted = range(len(self.gpus)) if gpus == "all" else (gpus,) if isinstance(gpus, int) else gpus
        return (self.gpus[index] for index in wanted if 0 <= index < len(self.gpus))

    def start(self, workload: SimWorkload) -> None:
        """Begin the work on each of its devices that exists."""
        self.stop(workload.name)
        self.workloads[workload.name] = workload
        for number, device in enumerate(workload.gpus):
            unit = self.unit(device)
            if unit is None or workload.process == "" or device in workload.spare:
                continue
            stream = noise.key(self.seed, workload.name, number)
            unit.processes.append(GpuClient(pid=2000 + stream % 4_000_000, workload=workload, stream=stream))

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

    def log(self, *texts: str, facility: int = 0) -> None:
        """Write kernel log lines."""
        self.lines.extend(LogLine(self.time, text, facility) for text in texts)

    def raise_event(self, gpu: SimGpu, kind: int, data: int = 0, gi: int | None = None, ci: int | None = None) -> None:
        """Raise a driver event."""
        self.event_count += 1
        self.events.append(SimEvent(self.event_count, self.time, gpu.index, kind, data, gi, ci))
