"""A driver with knobs, made by hand, below the real NvmlControl; and settings that a tuner could have made."""

import threading
from collections.abc import Callable
from typing import Any

import pynvml

from gpuwatch.tuning.model.setting import Setting
from tests.waiting import BOUND_SECONDS, until

BOOT, DRIVER = "boot-1", "580.95.05"


CLOCKS_MHZ = tuple(range(1980, 209, -15))
"""Of an H100, as NVML lists them."""


class Knobs:
    """As much of pynvml as the control asks, for GPUs with a limit of 200 to 700 W and clocks of 210 to 1980 MHz.

    `calls` has each setter that came in, `sets` those that had an effect, with its value (None: unlocked).
    `errors`: function -> nvmlReturn_t. `deaf`: setters succeed and change nothing. `hanging`: GPUs whose calls wait.
    `running`: SM clocks, MHz.
    `sessions`: how many are open. `before`: called with the name of each function and its arguments.
    """

    def __init__(self, *uuids: str) -> None:
        self.limits = dict.fromkeys(uuids, 700_000)
        self.locked: dict[str, int] = {}
        self.running: dict[str, int] = {}
        self.most = self.default = 700_000
        self.driver = DRIVER
        self.calls: list[tuple[str, str]] = []
        self.errors: dict[str, int] = {}
        self.sets: list[tuple[str, str, int | None]] = []
        self.before: Callable[[str, tuple[Any, ...]], None] = lambda name, args: None
        self.sessions = 0
        self.deaf = False
        self.hanging: set[str] = set()
        self.released = threading.Event()

    def release(self) -> None:
        """Every call returns, and what waited for it has ended: else it would meet the next test, its folder gone."""
        self.hanging.clear()
        self.released.set()
        until(lambda: not any(thread.name.startswith("GPU ") for thread in threading.enumerate()))  # or not yet started

    def __getattr__(self, name: str) -> Any:
        if name.startswith("NVML"):
            return getattr(pynvml, name)
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def call(*args: Any) -> Any:
            self.before(name, args)
            if name in self.errors:
                raise pynvml.NVMLError(self.errors[name])
            return getattr(self, "_" + name.removeprefix("nvml"))(*args)

        return call

    def _Init(self) -> None:
        self.sessions += 1

    def _Shutdown(self) -> None:
        self.sessions -= 1

    def _SystemGetDriverVersion(self) -> str:
        return self.driver

    def _DeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid in self.hanging:
            self.released.wait(BOUND_SECONDS)
        if uuid not in self.limits:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return uuid

    def _DeviceGetPowerManagementLimit(self, gpu: str) -> int:
        return self.limits[gpu]

    def _DeviceGetPowerManagementLimitConstraints(self, gpu: str) -> list[int]:
        return [200_000, self.most]

    def _DeviceGetPowerManagementDefaultLimit(self, gpu: str) -> int:
        return self.default

    def _DeviceGetClockInfo(self, gpu: str, domain: int) -> int:
        return self.running.get(gpu, min(345, self.locked.get(gpu, 345)))

    def _DeviceSetPowerManagementLimit(self, gpu: str, milliwatts: int) -> None:
        self.calls.append(("power_limit", gpu))
        if not 200_000 <= milliwatts <= self.most:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        if not self.deaf:
            self.limits[gpu] = milliwatts
            self.sets.append(("power_limit", gpu, milliwatts))

    def _DeviceGetSupportedMemoryClocks(self, gpu: str) -> list[int]:
        return [2619, 1593]

    def _DeviceGetSupportedGraphicsClocks(self, gpu: str, memory_mhz: int) -> list[int]:
        return list(CLOCKS_MHZ) if memory_mhz == 2619 else [345]

    def _DeviceSetGpuLockedClocks(self, gpu: str, lowest_mhz: int, highest_mhz: int) -> None:
        self.calls.append(("locked_clocks", gpu))
        if not CLOCKS_MHZ[-1] <= lowest_mhz <= highest_mhz <= CLOCKS_MHZ[0]:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        self.locked[gpu] = highest_mhz
        self.sets.append(("locked_clocks", gpu, highest_mhz))

    def _DeviceResetGpuLockedClocks(self, gpu: str) -> None:
        self.calls.append(("locked_clocks", gpu))
        self.locked.pop(gpu, None)
        self.sets.append(("locked_clocks", gpu, None))


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
