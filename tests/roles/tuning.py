"""A driver with knobs, made by hand, below the real NvmlControl; and settings that a tuner could have made."""

import threading
from typing import Any

import pynvml

from gpuwatch.model.setting import Setting

BOOT, DRIVER = "boot-1", "580.95.05"


class Knobs:
    """As much of pynvml as the control asks, for GPUs with a limit of 700 W. `calls` has each setter that came in.

    `errors`: function -> nvmlReturn_t. `deaf`: setters succeed and change nothing. `hanging`: GPUs whose calls wait.
    """

    NVMLError = pynvml.NVMLError
    NVML_ERROR_NO_PERMISSION = pynvml.NVML_ERROR_NO_PERMISSION

    def __init__(self, *uuids: str) -> None:
        self.limits = dict.fromkeys(uuids, 700_000)
        self.locked: dict[str, int] = {}
        self.most = 700_000
        self.driver = DRIVER
        self.calls: list[tuple[str, str]] = []
        self.errors: dict[str, int] = {}
        self.deaf = False
        self.hanging: set[str] = set()
        self.released = threading.Event()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*args: Any) -> Any:
            if name in self.errors:
                raise pynvml.NVMLError(self.errors[name])
            return getattr(self, "_" + name.removeprefix("nvml"))(*args)

        return call

    def _Init(self) -> None: ...

    def _Shutdown(self) -> None: ...

    def _SystemGetDriverVersion(self) -> str:
        return self.driver

    def _DeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid in self.hanging:
            self.released.wait(30)
        if uuid not in self.limits:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return uuid

    def _DeviceGetPowerManagementLimit(self, gpu: str) -> int:
        return self.limits[gpu]

    def _DeviceGetPowerManagementLimitConstraints(self, gpu: str) -> list[int]:
        return [200_000, self.most]

    def _DeviceSetPowerManagementLimit(self, gpu: str, milliwatts: int) -> None:
        self.calls.append(("power_limit", gpu))
        if not self.deaf:
            self.limits[gpu] = milliwatts

    def _DeviceResetGpuLockedClocks(self, gpu: str) -> None:
        self.calls.append(("locked_clocks", gpu))
        self.locked.pop(gpu, None)


def limit(uuid: str, watts: float = 500.0, **more: Any) -> Setting:
    """A power limit that was lowered from 700 W."""
    return Setting(
        **{"uuid": uuid, "knob": "power_limit", "original": 700.0, "applied": (watts,), "at": 1.79e9}
        | {"boot_id": BOOT, "driver": DRIVER}
        | more
    )


def clocks(uuid: str, **more: Any) -> Setting:
    """A locked clock."""
    return limit(uuid, 1.2e9, knob="locked_clocks", original=None, **more)
