"""A hand on a driver made by hand, and a guard beside it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpuwatch.storage.audit import Audit
from gpuwatch.tuning.actuation.actuator import NvmlActuator
from gpuwatch.tuning.actuation.driver import NvmlControl
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.tuning.actuation.restore import Restorer
from gpuwatch.tuning.model.setting import ApplyResult, Setting, SettingOrder, Trigger
from tests.remediation.model.remediating import FakeClock, Ledger
from tests.tuning.service.tuning import BOOT, Knobs
from tests.waiting import BOUND_SECONDS

GPU, OTHER = "GPU-0", "GPU-1"
DEADLINE = BOUND_SECONDS
"""Of a driver that answers; where one hangs, tests say how long it is waited for."""
SETTERS = {"nvmlDeviceSetPowerManagementLimit", "nvmlDeviceSetGpuLockedClocks"}


class Bench:
    """A hand on a driver by hand, and a guard beside it."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.knobs, self.record = Knobs(GPU, OTHER), SettingsRecord(folder)
        common = {"boot_id": BOOT, "clock": FakeClock()}
        audit = Audit(Ledger(), FakeClock(), actor="tuner")
        self.actuator = NvmlActuator(
            self.record, self.connect, **common | {"audit": audit, "timeout": DEADLINE} | options
        )
        self.guard = Restorer(
            SettingsRecord(folder), self.connect, **common, audit=Audit(Ledger(), FakeClock()), trigger=Trigger.GUARD
        )

    def connect(self) -> NvmlControl:
        return NvmlControl(self.knobs)

    def limit(self, watts: float | None, uuid: str = GPU, **more: Any) -> ApplyResult:
        return self.apply(SettingOrder(uuid=uuid, knob="power_limit", value=watts, **more))

    def cap(self, megahertz: float | None, uuid: str = GPU, **more: Any) -> ApplyResult:
        value = None if megahertz is None else megahertz * 1e6
        return self.apply(SettingOrder(uuid=uuid, knob="locked_clocks", value=value, **more))

    def apply(self, order: SettingOrder) -> ApplyResult:
        (results,) = self.actuator.apply([order])
        return results

    def recorded(self) -> list[Setting]:
        return list(self.record.read().settings)

    def applied(self) -> dict[str, tuple[float, ...]]:
        return {each.knob: each.applied for each in self.recorded()}

    def once_at(self, function: str, act: Callable[[], object]) -> None:
        """Let something happen the next time that function is about to be called."""

        def before(name: str, args: tuple[Any, ...]) -> None:
            if name == function:
                self.knobs.before = lambda name, args: None
                act()

        self.knobs.before = before
