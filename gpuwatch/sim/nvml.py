"""A module shaped like pynvml whose driver is a simulated node; the reader process opens it in place of pynvml.

Functions that the simulator has are looked up in tables; constants, structs and exceptions are pynvml's own. Every
call goes through `SimNvml.call`, where a lost, hung, slow or reloaded driver makes itself felt.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pynvml

from gpuwatch.model.clock import Clock
from gpuwatch.sim.directory import POLL_SECONDS, Timekeeper, attach
from gpuwatch.sim.gpu import SimGpu, Unit
from gpuwatch.sim.node import Node
from gpuwatch.sim.nvml_device import DEVICE, MIG_DEVICE
from gpuwatch.sim.nvml_events import EVENTS
from gpuwatch.sim.nvml_gpm import GPM, MetricsGet
from gpuwatch.sim.nvml_since import SINCE
from gpuwatch.sim.physics import Physics


class Handle(NamedTuple):
    """What nvmlDeviceGetHandleBy... gives: a GPU by its place in the node, or one of its MIG devices by uuid."""

    gpu: int
    mig: str | None = None


class Device(NamedTuple):
    """A handle resolved at this moment: what every function of the tables gets first."""

    nvml: "SimNvml"
    node: Node
    gpu: SimGpu
    physics: Physics
    unit: Unit | None  # the MIG device, None for the GPU itself
    t: float


class SimNvml:
    """One process' view of the driver. Thread-safe."""

    c_nvmlGpmMetricsGet_t = MetricsGet

    def __init__(self, keeper: Timekeeper) -> None:
        self.keeper = keeper
        self.lock = threading.RLock()
        self._node = keeper.update()
        self._generation: int | None = None
        self._system: dict[str, Callable[..., Any]] = {
            "nvmlInit": self._init,
            "nvmlInitWithFlags": lambda flags: self._init(),
            "nvmlShutdown": lambda: None,
            "nvmlSystemGetDriverVersion": lambda: self._node.driver,
            "nvmlSystemGetNVMLVersion": lambda: "13." + self._node.driver,
            "nvmlSystemGetCudaDriverVersion": lambda: self._node.model.cuda,
            "nvmlSystemGetCudaDriverVersion_v2": lambda: self._node.model.cuda,
            "nvmlDeviceGetCount": lambda: len(self._attached()),
            "nvmlDeviceGetHandleByIndex": self._by_index,
            "nvmlDeviceGetHandleByUUID": self._by_uuid,
            "nvmlDeviceGetHandleByPciBusId": self._by_address,
        }

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in self._system or name in DEVICE or name in EVENTS or name in GPM:
            bound: Any = lambda *args: self.call(name, *args)  # noqa: E731
        elif callable(value := getattr(pynvml, name)) and name.startswith("nvml") and not isinstance(value, type):
            bound = _unsupported
        else:
            return value
        self.__dict__[name] = bound
        return bound

    def call(self, name: str, *args: Any) -> Any:
        """One driver call.

        Raises:
            pynvml.NVMLError: as the real driver would.
        """
        if name in EVENTS:
            return EVENTS[name](self, *args)
        if name in GPM:
            return GPM[name](self, *args)
        with self.lock:
            node = self._node = self.keeper.update()
            if name not in ("nvmlInit", "nvmlInitWithFlags", "nvmlShutdown"):
                self.check(node)
            if name in self._system:
                wait = node.driver_hung
                if not wait:
                    return self._system[name](*args)
        if name in self._system:
            self._wait_while(lambda: self.keeper.node.driver_hung)
            return self.call(name, *args)
        device = self.device(args[0], name)
        table = DEVICE if device.unit is None else MIG_DEVICE
        function = table.get(name)
        if function is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        with self.lock:
            return function(device, *args[1:])

    def device(self, handle: Handle, name: str = "") -> Device:
        """The device behind a handle; waits while it hangs.

        Raises:
            pynvml.NVMLError: the driver or the GPU is gone, or the driver is too old for the function.
        """
        with self.lock:
            node = self._node = self.keeper.update()
            self.check(node)
            gpu = node.gpus[handle.gpu]
            faults = gpu.faults
            if SINCE.get(name, 0) > int(node.driver.split(".")[0]):
                raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        if faults.delay:
            threading.Event().wait(faults.delay)
        if faults.hung or node.driver_hung:
            self._wait_while(lambda: gpu.faults.hung or node.driver_hung)
        with self.lock:
            self.check(node)
            if gpu.faults.lost or not gpu.attached:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
            unit = None
            if handle.mig is not None:
                unit = next((unit for unit in gpu.units if unit.uuid == handle.mig), None)
                if unit is None:
                    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
            return Device(self, node, gpu, node.physics[gpu.index], unit, node.time)

    def check(self, node: Node) -> None:
        """Whether this process may still talk to the driver at all. Raises pynvml.NVMLError."""
        if self._generation is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
        if self._generation != node.generation:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)

    def _init(self) -> None:
        node = self._node
        if not node.driver_up:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        if self._generation is None:
            self._generation = node.generation
        self.check(node)

    def _wait_while(self, hanging: Callable[[], bool]) -> None:
        pause = threading.Event()
        while True:
            with self.lock:
                self.keeper.update()
                if not hanging():
                    return
            pause.wait(POLL_SECONDS)

    def _attached(self) -> list[SimGpu]:
        return [gpu for gpu in self._node.gpus if gpu.attached]

    def _by_index(self, index: int) -> Handle:
        gpus = self._attached()
        if not 0 <= index < len(gpus):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        if gpus[index].faults.lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return Handle(gpus[index].index)

    def _by_uuid(self, uuid: str | bytes) -> Handle:
        wanted = uuid.decode() if isinstance(uuid, bytes) else uuid
        for gpu in self._attached():
            if gpu.uuid == wanted:
                return Handle(gpu.index)
            if any(unit.uuid == wanted for unit in gpu.units):
                return Handle(gpu.index, wanted)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def _by_address(self, address: str | bytes) -> Handle:
        wanted = address.decode() if isinstance(address, bytes) else address
        for gpu in self._attached():
            if wanted.lower() in (gpu.address.nvml.lower(), str(gpu.address)):
                return Handle(gpu.index)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)


def _unsupported(*args: Any, **kwargs: Any) -> Any:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def open_node(target: str, clock: Clock | None = None) -> Any:
    """The node that runs in the directory `target`, as a pynvml-shaped object. Does not call nvmlInit.

    Raises:
        NoGpuStack: nothing runs there.
    """
    return SimNvml(attach(Path(target), clock))
