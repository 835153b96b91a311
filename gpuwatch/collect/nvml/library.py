"""The edge to libnvidia-ml: loads it, asks it, and turns its errors into five kinds that the readers act on.

All callers of this file use a pynvml-shaped module, so the simulator and recorded captures take its place unchanged.
"""

import ctypes
from collections.abc import Callable
from enum import StrEnum
from functools import cache
from typing import Any

import pynvml

from gpuwatch.model.errors import NoGpuStack

Nvml = Any
"""A pynvml-shaped module: `pynvml` itself, the simulator's, or a replayed capture."""


class Failure(StrEnum):
    """What a failed call means for the reader."""

    UNSUPPORTED = "not supported"  # this GPU, mode or driver does not offer it: remember, do not ask again
    PERMISSION = "no permission"
    LOST = "GPU is lost"
    DRIVER_GONE = "driver is gone"  # only a new process can talk to the driver again
    TRANSIENT = "failed"  # ask again next time


KINDS = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: Failure.UNSUPPORTED,
    pynvml.NVML_ERROR_INVALID_ARGUMENT: Failure.UNSUPPORTED,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: Failure.UNSUPPORTED,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: Failure.UNSUPPORTED,
    pynvml.NVML_ERROR_DEPRECATED: Failure.UNSUPPORTED,
    pynvml.NVML_ERROR_VGPU_ECC_NOT_SUPPORTED: Failure.UNSUPPORTED,
    pynvml.NVML_ERROR_NO_PERMISSION: Failure.PERMISSION,
    pynvml.NVML_ERROR_GPU_IS_LOST: Failure.LOST,
    pynvml.NVML_ERROR_RESET_REQUIRED: Failure.LOST,
    pynvml.NVML_ERROR_GPU_NOT_FOUND: Failure.LOST,
    pynvml.NVML_ERROR_UNINITIALIZED: Failure.DRIVER_GONE,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: Failure.DRIVER_GONE,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: Failure.DRIVER_GONE,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: Failure.DRIVER_GONE,
}


class NvmlFailure(Exception):
    """One NVML call failed. A type of its own: pynvml's is unhashable in some releases."""

    def __init__(self, kind: Failure, code: int, text: str) -> None:
        self.kind, self.code = kind, code
        super().__init__(text)

    @property
    def is_gone(self) -> bool:
        """Whether the GPU or the driver is gone, so that no other call can succeed: readers do not catch it."""
        return self.kind in (Failure.LOST, Failure.DRIVER_GONE)


def failure(code: int) -> NvmlFailure:
    """The failure that an nvmlReturn other than NVML_SUCCESS means."""
    return NvmlFailure(KINDS.get(code, Failure.TRANSIENT), code, error_text(code))


@cache
def error_text(code: int) -> str:
    """pynvml's own words for an nvmlReturn, else those of its constant's name; they need no loaded library."""
    if words := pynvml.NVMLError._errcode_to_string.get(code):
        return str(words)
    names = (name for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_") and value == code)
    name = next(names, None)
    return name.removeprefix("NVML_ERROR_").replace("_", " ").capitalize() if name else f"NVML error {code}"


def ask(nvml: Nvml, name: str, *args: Any) -> Any:
    """Call one NVML function.

    Raises:
        NvmlFailure: the call did not succeed, the symbol is missing, or pynvml has no such function.
    """
    function = getattr(nvml, name, None)
    if function is None:
        raise failure(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    try:
        return OUT_STRUCTS[name](nvml, function, *args) if name in OUT_STRUCTS else function(*args)
    except pynvml.NVMLError as error:
        raise failure(error.value) from None
    except pynvml.NVMLLibraryMismatchError:  # a plain Exception: raised where a process list lacks its _v3 symbol
        raise failure(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) from None


def ask_optional(nvml: Nvml, name: str, *args: Any) -> Any | None:
    """As `ask`, None where the call failed.

    Raises:
        NvmlFailure: the GPU or the driver is gone.
    """
    try:
        return ask(nvml, name, *args)
    except NvmlFailure as error:
        if error.is_gone:
            raise
        return None


def _filled(struct_name: str) -> Callable[..., Any]:
    """Adapter for calls that fill a struct handed in by pointer and return only the status."""

    def call(nvml: Nvml, function: Callable[..., Any], *args: Any) -> Any:
        layout = getattr(nvml, struct_name, None)
        if layout is None:  # an older release of the bindings
            raise failure(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        struct = layout()
        function(*args, ctypes.pointer(struct))
        return struct

    return call


OUT_STRUCTS: dict[str, Callable[..., Any]] = {
    "nvmlDeviceGetSramEccErrorStatus": _filled("c_nvmlEccSramErrorStatus_v1_t"),
    "nvmlDeviceGetGpuFabricInfoV": _filled("c_nvmlGpuFabricInfo_v2_t"),
    "nvmlDeviceGetGpuFabricInfo": _filled("c_nvmlGpuFabricInfo_t"),
    "nvmlDeviceGetPlatformInfo": _filled("c_nvmlPlatformInfo_v2_t"),
    "nvmlDeviceGetRemappedRows_v2": _filled("c_nvmlRemappedRowsInfo_v2_t"),
}


def text(value: Any) -> str | None:
    """An NVML string; bytes (GSP firmware version, structs) are decoded, empty and `N/A` are unknown."""
    decoded = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return decoded if decoded and decoded != "N/A" else None


def open_library(path: str = "") -> Nvml:
    """pynvml with its library loaded: the system's, or `path` for drivers in odd roots. Does not call nvmlInit.

    Raises:
        NoGpuStack: the file is not a loadable libnvidia-ml.
    """
    if path:
        try:
            pynvml.nvmlLib = ctypes.CDLL(path)
        except OSError as error:
            raise NoGpuStack(
                f"cannot load the NVML library {path}", str(error), "give the path of libnvidia-ml.so.1"
            ) from None
    return pynvml
