"""Small shapes that NVML's answers share."""

import ctypes
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn

import pynvml

MIB = 1 << 20


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
