"""The simulated driver in one process, and the types that its answers share."""

import ctypes
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn

import pynvml

from gpuwatch.collect.nvml.numbers import lacks
from gpuwatch.sim.directory import POLL_SECONDS, NodeReplica
from gpuwatch.sim.node.actions import AnyAction
from gpuwatch.sim.node.gpu import SimGpu, Unit
from gpuwatch.sim.node.node import SimNode
from gpuwatch.sim.node.physics import Physics

MIB = 1 << 20
NO_INSTANCE = 0xFFFFFFFF


class Handle(NamedTuple):
    """The result of nvmlDeviceGetHandleBy...: a GPU by its index in the node, or one of its MIG devices by uuid."""

    gpu: int
    mig: str | None = None


class ResolvedDevice(NamedTuple):
    """A handle resolved at this moment: the first argument of every function of a device."""

    nvml: "SimDriver"
    node: SimNode
    gpu: SimGpu
    physics: Physics
    unit: Unit | None  # the MIG device, None for the GPU itself
    t: float

    @property
    def works(self) -> bool:
        """Whether a process holds the GPU: clocks are then up."""
        return any(unit.processes for unit in self.gpu.units)


class SimDriver:
    """Initialization, hangs, delays and losses. Thread-safe: hold `lock` around `enter`, `device` and their use."""

    def __init__(self, replica: NodeReplica) -> None:
        self.replica = replica
        self.lock = threading.Lock()
        self.generation: int | None = None  # of the driver that this process has initialized

    def enter(self, gpu: int | None = None) -> SimNode:
        """The node at this moment, once the driver lets the call through.

        Raises:
            pynvml.NVMLError: not initialized, or another driver is loaded by now.
        """
        node = self.replica.update()
        while node.driver_hung or (gpu is not None and node.gpus[gpu].faults.hung):
            if self.replica.ended:
                refuse(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
            self._wait(POLL_SECONDS)
            node = self.replica.update()
        if gpu is not None and (delay := node.gpus[gpu].faults.delay):
            self._wait(delay)
            node = self.replica.update()
        if self.generation is None:
            refuse(pynvml.NVML_ERROR_UNINITIALIZED)
        if self.generation != node.generation:
            refuse(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
        return node

    def device(self, handle: Handle, name: str = "") -> ResolvedDevice:
        """The device behind a handle.

        Raises:
            pynvml.NVMLError: as `enter`, the GPU is gone, or the driver is too old for the function.
        """
        node = self.enter(handle.gpu)
        if lacks(name, node.driver):
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
        """Carry out an action in every process that follows the node, and wait for it.

        Raises:
            pynvml.NVMLError: the node belongs to another user, or has ended meanwhile.
        """
        try:
            due = self.replica.act(action)
        except PermissionError:
            refuse(pynvml.NVML_ERROR_NO_PERMISSION)
        except OSError:
            refuse(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        while self.replica.now < due:
            if self.replica.ended:
                refuse(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
            self._wait(self.replica.until(due))
        self.replica.update()

    def _wait(self, seconds: float) -> None:
        """Wait without the lock, so that only this call hangs."""
        self.lock.release()
        try:
            threading.Event().wait(seconds)
        finally:
            self.lock.acquire()


Answer = Callable[..., Any]
"""A function of a resolved device, or of the whole driver, and the call's arguments."""


def answers(table: dict[str, Answer], *names: str, where: Callable[[ResolvedDevice], Any] | None = None) -> Answer:
    """Decorator: puts the function into a table under the names of NVML; `where`: only models that have it offer it."""

    def register(function: Answer) -> Answer:
        table.update(dict.fromkeys(names, function if where is None else only_where(where, function)))
        return function

    return register


def only_where(condition: Callable[[ResolvedDevice], Any], answer: Answer) -> Answer:
    """Offered only by models that have it."""
    return lambda d, *args: answer(d, *args) if condition(d) else refuse()


def dedicated_only(answer: Answer) -> Answer:
    """Not offered by a GPU that shares the memory of its host."""
    return only_where(lambda d: not d.gpu.model.unified, answer)


def whole_only(answer: Answer) -> Answer:
    """Not offered while the GPU is cut into MIG instances."""
    return only_where(lambda d: not d.gpu.mig_enabled, answer)


def refuse(code: int = pynvml.NVML_ERROR_NOT_SUPPORTED) -> NoReturn:
    """Fail as the driver does. Raises pynvml.NVMLError."""
    raise pynvml.NVMLError(code)


def struct(**members: Any) -> SimpleNamespace:
    """An answer struct: the same attributes as pynvml's ctypes ones."""
    return SimpleNamespace(**members)


def value(number: float) -> SimpleNamespace:
    """An nvmlValue_t union: every member holds the number."""
    whole = int(number)
    members: dict[str, Any] = dict.fromkeys(("uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal"), whole)
    return SimpleNamespace(dVal=float(number), **members)


def fill(pointer: Any, **members: Any) -> int:
    """Write into a struct handed in by pointer; returns NVML_SUCCESS."""
    contents = pointer.contents if isinstance(pointer, ctypes._Pointer) else pointer
    for name, member in members.items():
        setattr(contents, name, member)
    return int(pynvml.NVML_SUCCESS)
