"""Small shapes that NVML's answers share."""

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import pynvml

if TYPE_CHECKING:
    from gpuwatch.sim.nvml import ResolvedDevice

MIB = 1 << 20

Answer = Callable[..., Any]
"""A function of a resolved device and the call's arguments."""


class Handle(NamedTuple):
    """What nvmlDeviceGetHandleBy... gives: a GPU by its place in the node, or one of its MIG devices by uuid."""

    gpu: int
    mig: str | None = None


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


def whole_only(answer: Answer) -> Answer:
    """Not offered while the GPU is cut into MIG instances."""
    return lambda d, *args: refuse() if d.gpu.mig_enabled else answer(d, *args)


def where(condition: Callable[["ResolvedDevice"], Any], answer: Answer) -> Answer:
    """Offered only by models that have it."""
    return lambda d, *args: answer(d, *args) if condition(d) else refuse()


def works(d: "ResolvedDevice") -> bool:
    """Whether clocks are up."""
    return any(unit.processes for unit in d.gpu.units)
