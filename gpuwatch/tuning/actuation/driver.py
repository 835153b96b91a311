"""The only file that changes the driver's settings; a process that observes does not load it. Units: watts and hertz.

NVML reports the power limit that is set, so a write can be checked. It does not report whether clocks are locked: the
only evidence is that the call to lock or unlock them succeeded, and a clock above a cap shows that this cap is not in
force.
"""

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, Self

from gpuwatch.model.errors import GpuwatchError, NoGpuStack, PermissionMissing, Unsupported
from gpuwatch.tuning.model.setting import GpuCapabilities

Nvml = Any
"""A module with pynvml's functions, its library loaded."""


KINDS: Mapping[str, type[GpuwatchError]] = {
    "UNINITIALIZED": NoGpuStack,
    "DRIVER_NOT_LOADED": NoGpuStack,
    "LIB_RM_VERSION_MISMATCH": NoGpuStack,
    "INVALID_ARGUMENT": Unsupported,
    "NOT_SUPPORTED": Unsupported,
    "FUNCTION_NOT_FOUND": Unsupported,
}
"""NVML_ERROR_*, where it means more than that the call failed."""


class NvmlControl:
    """A session with the driver. Use it as a context manager, and open a new one each time: drivers get reloaded.

    Every method raises GpuwatchError where the driver refuses: PermissionMissing where it needs more rights,
    Unsupported where the GPU has no such knob or value, NoGpuStack where the driver was unloaded meanwhile.
    """

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml

    def __enter__(self) -> Self:
        """Raises NoGpuStack: there is no driver."""
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            other = error.value == self._nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
            step = "restart this process, the driver is another one now" if other else "is it loaded, its library here?"
            raise NoGpuStack("cannot reach the NVIDIA driver", str(error), step) from error
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(self._nvml.NVMLError):  # what was done stays done
            self._nvml.nvmlShutdown()

    def driver_version(self) -> str:
        """Such as 580.95.05."""
        return str(self._call("nvmlSystemGetDriverVersion"))

    def power_limits(self, uuid: str) -> tuple[float, float]:
        """The configured one, and the most that may be restored: the GPU's default, and never above what can be set."""
        gpu = self._handle(uuid)
        configured = self._call("nvmlDeviceGetPowerManagementLimit", gpu)
        _, most = self._call("nvmlDeviceGetPowerManagementLimitConstraints", gpu)
        return configured / 1e3, min(most, self._call("nvmlDeviceGetPowerManagementDefaultLimit", gpu)) / 1e3

    def sm_clock(self, uuid: str) -> float:
        """The SM clock now."""
        return float(self._call("nvmlDeviceGetClockInfo", self._handle(uuid), self._nvml.NVML_CLOCK_SM) * 1e6)

    def capabilities(self, uuid: str) -> GpuCapabilities:
        """What may be set; a value that the driver does not support on this GPU is left out."""
        gpu = self._handle(uuid)
        low, high = self._call_if_supported("nvmlDeviceGetPowerManagementLimitConstraints", gpu) or (None, None)
        clocks: Iterable[int] = ()
        if memory := self._call_if_supported(
            "nvmlDeviceGetSupportedMemoryClocks", gpu
        ):  # a GPU at work uses the highest
            clocks = self._call_if_supported("nvmlDeviceGetSupportedGraphicsClocks", gpu, max(memory)) or ()
        return GpuCapabilities(
            uuid=uuid,
            clocks=tuple(mhz * 1e6 for mhz in sorted(set(clocks), reverse=True)),
            limit=_watts(self._call_if_supported("nvmlDeviceGetPowerManagementLimit", gpu)),
            limit_default=_watts(self._call_if_supported("nvmlDeviceGetPowerManagementDefaultLimit", gpu)),
            limit_min=_watts(low),
            limit_max=_watts(high),
        )

    def set_power_limit(self, uuid: str, watts: float) -> None:
        """Set the power limit, until the next boot or driver load."""
        self._call("nvmlDeviceSetPowerManagementLimit", self._handle(uuid), round(watts * 1e3))

    def set_locked_clocks(self, uuid: str, lowest: float, highest: float) -> None:
        """Keep the SM clock between the two, until the next boot or driver load."""
        self._call("nvmlDeviceSetGpuLockedClocks", self._handle(uuid), round(lowest / 1e6), round(highest / 1e6))

    def reset_locked_clocks(self, uuid: str) -> None:
        """Unlock the SM clock, also if another process locked it."""
        self._call("nvmlDeviceResetGpuLockedClocks", self._handle(uuid))

    def _handle(self, uuid: str) -> Any:
        return self._call("nvmlDeviceGetHandleByUUID", uuid)

    def _call(self, name: str, *args: Any) -> Any:
        try:
            return getattr(self._nvml, name)(*args)
        except self._nvml.NVMLError as error:
            if error.value == self._nvml.NVML_ERROR_NO_PERMISSION:
                step = "run as root with CAP_SYS_ADMIN"
                raise PermissionMissing(f"{name} is not allowed", str(error), step) from error
            kinds = (kind for code, kind in KINDS.items() if error.value == getattr(self._nvml, f"NVML_ERROR_{code}"))
            kind = next(kinds, GpuwatchError)
            raise kind(f"{name} failed", str(error)) from error

    def _call_if_supported(self, name: str, *args: Any) -> Any:
        try:
            return self._call(name, *args)
        except Unsupported:
            return None


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1e3
