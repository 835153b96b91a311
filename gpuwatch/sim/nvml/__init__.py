"""A module shaped like pynvml whose driver is a simulated node; the reader process opens it in place of pynvml.

Functions are looked up in tables; constants, structs and exceptions are pynvml's own. Every function comes in through
`SimNvml.enter`, where a reloaded, hung, slow or lost driver makes itself felt.
"""

import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pynvml

from gpuwatch.model.clock import Clock
from gpuwatch.sim.directory import POLL_SECONDS, NodeReplica, attach
from gpuwatch.sim.node.actions import AnyAction
from gpuwatch.sim.node.gpu import SimGpu, Unit
from gpuwatch.sim.node.node import SimNode
from gpuwatch.sim.node.physics import Physics
from gpuwatch.sim.nvml.answers import Handle, refuse
from gpuwatch.sim.nvml.device import DEVICE, MIG_DEVICE
from gpuwatch.sim.nvml.events import EVENTS
from gpuwatch.sim.nvml.gpm import GPM, MetricsGet
from gpuwatch.sim.nvml.since import SINCE
from gpuwatch.sim.nvml.system import SYSTEM

DRIVER: dict[str, Callable[..., Any]] = {**SYSTEM, **EVENTS, **GPM}
"""Functions that get the whole driver first; those of DEVICE and MIG_DEVICE get a resolved handle."""

CALLS = tuple("nvml" + part for part in ("Device", "System", "Vgpu", "Gpm", "Event", "Gpu", "Unit", "Init", "Shut"))
"""How the names of pynvml's driver calls begin, unlike those of its helpers."""


class ResolvedDevice(NamedTuple):
    """A handle resolved at this moment: what every function of a device gets first."""

    nvml: "SimNvml"
    node: SimNode
    gpu: SimGpu
    physics: Physics
    unit: Unit | None  # the MIG device, None for the GPU itself
    t: float


class SimNvml:
    """One process' view of the driver. Thread-safe."""

    c_nvmlGpmMetricsGet_t = MetricsGet

    def __init__(self, keeper: NodeReplica) -> None:
        self.keeper = keeper
        self.lock = threading.Lock()
        self.generation: int | None = None  # of the driver that this process has initialized

    def __getattr__(self, name: str) -> Any:
        if name in DRIVER:
            bound: Any = functools.partial(DRIVER[name], self)
        elif name in DEVICE or name in MIG_DEVICE:
            bound = functools.partial(self._ask, name)
        else:
            bound = getattr(pynvml, name)
            if name.startswith(CALLS) and callable(bound) and not isinstance(bound, type):
                bound = functools.partial(self._unknown, name)
        self.__dict__[name] = bound
        return bound

    def enter(self, gpu: int | None = None) -> SimNode:
        """The node at this moment, once the driver lets the call through; hold `lock` around it and its use.

        Raises:
            pynvml.NVMLError: not initialized, or another driver is loaded by now.
        """
        node = self.keeper.update()
        while node.driver_hung or (gpu is not None and node.gpus[gpu].faults.hung):
            if self.keeper.ended:
                refuse(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
            self._wait(POLL_SECONDS)
            node = self.keeper.update()
        if gpu is not None and (delay := node.gpus[gpu].faults.delay):
            self._wait(delay)
            node = self.keeper.update()
        if self.generation is None:
            refuse(pynvml.NVML_ERROR_UNINITIALIZED)
        if self.generation != node.generation:
            refuse(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
        return node

    def device(self, handle: Handle, name: str = "") -> ResolvedDevice:
        """The device behind a handle; `lock` must be held.

        Raises:
            pynvml.NVMLError: as `enter`, the GPU is gone, or the driver is too old for the function.
        """
        node = self.enter(handle.gpu)
        if SINCE.get(name, 0) > int(node.driver.split(".")[0]):
            refuse(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        gpu = node.gpus[handle.gpu]
        if gpu.faults.lost or not gpu.attached:
            refuse(pynvml.NVML_ERROR_GPU_IS_LOST)
        unit = None
        if handle.mig is not None:
            unit = next((unit for unit in gpu.units if unit.uuid == handle.mig), None)
            if unit is None:
                refuse(pynvml.NVML_ERROR_NOT_FOUND)
        return ResolvedDevice(self, node, gpu, node.physics[gpu.index], unit, node.time)

    def act(self, action: AnyAction) -> None:
        """Let it happen to the node, and wait until it has; `lock` must be held.

        Raises:
            pynvml.NVMLError: the node is somebody else's, or has ended meanwhile.
        """
        try:
            due = self.keeper.act(action)
        except PermissionError:
            refuse(pynvml.NVML_ERROR_NO_PERMISSION)
        except OSError:
            refuse(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        while self.keeper.now < due:
            if self.keeper.ended:
                refuse(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
            self._wait(self.keeper.until(due))
        self.keeper.update()

    def _ask(self, name: str, handle: Handle, *args: Any) -> Any:
        with self.lock:
            device = self.device(handle, name)
            function = (DEVICE if device.unit is None else MIG_DEVICE).get(name)
            return refuse() if function is None else function(device, *args)

    def _unknown(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """A call that no simulated GPU offers."""
        with self.lock:
            self.enter(args[0].gpu if args and isinstance(args[0], Handle) else None)
        return refuse()

    def _wait(self, seconds: float) -> None:
        """Let other calls in meanwhile: only this one hangs."""
        self.lock.release()
        try:
            threading.Event().wait(seconds)
        finally:
            self.lock.acquire()


def open_node(target: str, clock: Clock | None = None) -> Any:
    """The node that runs in the directory `target`, as a pynvml-shaped object. Does not call nvmlInit.

    Raises:
        NoGpuStack: nothing runs there.
    """
    return SimNvml(attach(Path(target), clock))


def open_knobs(target: str) -> Any:
    """As `open_node`, for somebody who sets and does not measure: it knows no watts, degrees or counters.

    It can be opened for each use: it need not catch up with all that has been drawn and done since the node began.
    """
    return SimNvml(attach(Path(target), physical=False))
