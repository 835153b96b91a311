"""The one file that turns the driver's knobs; whoever only observes does not load it. Power in watts.

NVML tells the power limit that is set, so that can be read back. It does not tell whether clocks are locked: there the
driver's word that it unlocked them is all that can be had.
"""

import contextlib
from types import TracebackType
from typing import Any, NoReturn, Self

from gpuwatch.model.errors import GpuwatchError, NoGpuStack, PermissionMissing

Nvml = Any
"""A pynvml-shaped module, its library loaded."""


class NvmlControl:
    """A session with the driver. Use it as a context manager, and open it anew each time: drivers get reloaded.

    Every method raises GpuwatchError where the driver refuses; PermissionMissing where it wants more rights.
    """

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml

    def __enter__(self) -> Self:
        """Raises NoGpuStack: there is no driver."""
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise NoGpuStack(
                "cannot reach the NVIDIA driver", str(error), "is it loaded, and its library here?"
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with contextlib.suppress(self._nvml.NVMLError):  # what was done stays done
            self._nvml.nvmlShutdown()

    def driver_version(self) -> str:
        """Such as 580.95.05."""
        return str(self._ask("nvmlSystemGetDriverVersion"))

    def power_limits(self, uuid: str) -> tuple[float, float]:
        """Configured now, and the most that may be."""
        gpu = self._gpu(uuid)
        configured = self._ask("nvmlDeviceGetPowerManagementLimit", gpu)
        _, most = self._ask("nvmlDeviceGetPowerManagementLimitConstraints", gpu)
        return configured / 1e3, most / 1e3

    def set_power_limit(self, uuid: str, watts: float) -> None:
        """Until the next boot or driver load."""
        self._ask("nvmlDeviceSetPowerManagementLimit", self._gpu(uuid), round(watts * 1e3))

    def reset_locked_clocks(self, uuid: str) -> None:
        """Unlock the SM clock, whoever locked it."""
        self._ask("nvmlDeviceResetGpuLockedClocks", self._gpu(uuid))

    def _gpu(self, uuid: str) -> Any:
        return self._ask("nvmlDeviceGetHandleByUUID", uuid)

    def _ask(self, name: str, *args: Any) -> Any:
        try:
            return getattr(self._nvml, name)(*args)
        except self._nvml.NVMLError as error:
            self._refuse(name, error)

    def _refuse(self, name: str, error: Any) -> NoReturn:
        if error.value == self._nvml.NVML_ERROR_NO_PERMISSION:
            raise PermissionMissing(f"{name} is not allowed", str(error), "run as root with CAP_SYS_ADMIN") from error
        raise GpuwatchError(f"{name} failed", str(error)) from error
