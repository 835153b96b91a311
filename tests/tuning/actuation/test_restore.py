"""Giving back: asked, set, read back, and forgotten only then; what is not known stays recorded."""

import threading
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gpuwatch.model.event import Result
from gpuwatch.storage.audit import Audit
from gpuwatch.tuning.actuation.driver import NvmlControl
from gpuwatch.tuning.actuation.interface import PerGpuExecutor
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.tuning.actuation.restore import RestoreOutcome, Restorer
from gpuwatch.tuning.model.setting import Setting, Trigger
from tests.remediation.model.remediating import FakeClock, Ledger
from tests.tuning.service.tuning import BOOT, Knobs, clocks, limit
from tests.waiting import BOUND_SECONDS, until

GPU, OTHER = "GPU-0", "GPU-1"


class Bench:
    """A restorer on a driver by hand."""

    def __init__(self, folder: Path, *settings: Setting, **options: Any) -> None:
        self.knobs, self.ledger = Knobs(GPU, OTHER), Ledger()
        self.record = SettingsRecord(folder)
        for setting in settings:
            self.record.add(setting)
            if setting.knob == "power_limit":
                self.knobs.limits[setting.uuid] = round(setting.applied[0] * 1e3)
            else:
                self.knobs.locked[setting.uuid] = 1200
        clock = FakeClock()
        self.restorer = Restorer(
            self.record,
            lambda: NvmlControl(self.knobs),
            **{"boot_id": BOOT, "trigger": Trigger.GUARD, "audit": Audit(self.ledger, clock, actor="guard")} | options,
            clock=clock,
        )

    def restore(self) -> list[RestoreOutcome]:
        return [each.outcome for each in self.restorer.restore()]

    def left(self) -> list[str]:
        return [setting.uuid for setting in self.record.read().settings]


def test_everything_goes_back_to_what_it_was_and_is_forgotten_and_counted(tmp_path: Path) -> None:
    bench = Bench(tmp_path, limit(GPU), clocks(GPU), limit(OTHER, 300.0))
    assert bench.restore() == [RestoreOutcome.RESTORED] * 3
    assert set(bench.knobs.limits.values()) == {700_000}
    assert not bench.knobs.locked
    assert not bench.left()
    assert bench.record.read().restores == {Trigger.GUARD: 3}
    assert [(each.action, each.result, each.actor) for each in bench.ledger.actions] == [
        ("restore", Result.DONE, "guard")
    ] * 3
    said = {(each.before, each.after) for each in bench.ledger.actions}
    assert said == {("500 W", "700 W"), ("1200 MHz", ""), ("300 W", "700 W")}


@pytest.mark.parametrize(
    "changed", [{"boot_id": "boot-0"}, {"driver": "570.1"}, {"boot_id": "boot-0", "driver": "570.1"}]
)
def test_s5_settings_of_another_boot_or_driver_are_dropped_not_restored(
    tmp_path: Path, changed: dict[str, str]
) -> None:
    bench = Bench(tmp_path, limit(GPU, **changed), clocks(OTHER, **changed))
    assert bench.restore() == [RestoreOutcome.DROPPED] * 2
    assert not bench.knobs.calls
    assert not bench.left()
    assert bench.record.read().restores == {Trigger.GUARD: 0}


def test_another_boots_settings_are_dropped_without_a_driver(tmp_path: Path) -> None:
    bench = Bench(tmp_path, limit(GPU, boot_id="boot-0"))
    bench.knobs.errors["nvmlInit"] = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
    assert bench.restore() == [RestoreOutcome.DROPPED]


def test_s6_while_the_boot_is_unknown_nothing_is_written(tmp_path: Path) -> None:
    """Clocks may be locked by somebody else since; only a record of this very boot says that they are ours."""
    bench = Bench(tmp_path, limit(GPU), clocks(OTHER), boot_id=None)
    found = bench.restorer.restore()
    assert {each.outcome for each in found} == {RestoreOutcome.KEPT}
    assert all("which boot this is" in each.message for each in found)
    assert not bench.knobs.calls
    assert bench.left() == [GPU, OTHER]


@pytest.mark.parametrize(
    "function",
    [
        "nvmlInit",
        "nvmlSystemGetDriverVersion",
        "nvmlDeviceGetHandleByUUID",
        "nvmlDeviceGetPowerManagementLimit",
        "nvmlDeviceGetPowerManagementLimitConstraints",
    ],
)
def test_s6_what_cannot_be_read_is_not_written_and_stays_recorded(tmp_path: Path, function: str) -> None:
    bench = Bench(tmp_path, limit(GPU))
    bench.knobs.errors[function] = pynvml.NVML_ERROR_UNKNOWN
    assert bench.restore() == [RestoreOutcome.KEPT]
    assert not bench.knobs.calls
    assert bench.left() == [GPU]
    bench.knobs.errors.clear()
    assert bench.restore() == [RestoreOutcome.RESTORED]


def test_s6_what_cannot_be_verified_stays_recorded_until_it_can(tmp_path: Path) -> None:
    bench = Bench(tmp_path, limit(GPU))
    bench.knobs.deaf = True
    assert bench.restore() == [RestoreOutcome.KEPT]
    assert bench.left() == [GPU]
    bench.knobs.deaf = False
    assert bench.restore() == [RestoreOutcome.RESTORED]
    assert not bench.left()


def test_without_the_right_it_stays_recorded_and_the_right_is_named(tmp_path: Path) -> None:
    bench = Bench(tmp_path, limit(GPU), clocks(OTHER))
    for name in ("nvmlDeviceSetPowerManagementLimit", "nvmlDeviceResetGpuLockedClocks"):
        bench.knobs.errors[name] = pynvml.NVML_ERROR_NO_PERMISSION
    found = bench.restorer.restore()
    assert {each.outcome for each in found} == {RestoreOutcome.KEPT}
    assert all("CAP_SYS_ADMIN" in each.message and each.error.exit_code == 6 for each in found if each.error)
    assert bench.left() == [GPU, OTHER]


def test_s9_what_another_program_has_set_since_is_left_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, limit(GPU))
    bench.knobs.limits[GPU] = 600_000
    assert bench.restore() == [RestoreOutcome.DROPPED]
    assert bench.knobs.limits[GPU] == 600_000
    assert not bench.knobs.calls


def test_a_lost_gpu_keeps_no_other_from_being_restored(tmp_path: Path) -> None:
    bench = Bench(tmp_path, limit(GPU), limit(OTHER))
    del bench.knobs.limits[GPU]
    assert dict(zip(bench.left(), bench.restore(), strict=True)) == {
        GPU: RestoreOutcome.KEPT,
        OTHER: RestoreOutcome.RESTORED,
    }
    assert bench.left() == [GPU]


def test_a_gpu_whose_driver_call_hangs_keeps_no_other_waiting_and_is_not_asked_again(tmp_path: Path) -> None:
    executor, asked = PerGpuExecutor(), list[str]()
    bench = Bench(tmp_path, limit(GPU), limit(OTHER), timeout=BOUND_SECONDS, executor=executor)
    hurried = Bench(tmp_path, timeout=0.2, executor=executor)  # of the same process
    bench.knobs.hanging.add(GPU)
    bench.knobs.before = lambda name, args: asked.extend(args[:1]) if name.endswith("ByUUID") else None
    found: list[RestoreOutcome] = []
    restoring = threading.Thread(target=lambda: found.extend(bench.restore()))
    restoring.start()
    try:
        until(lambda: GPU in asked and bench.left() == [GPU], "one is asked, and the other restored meanwhile")
        assert hurried.restore() == [RestoreOutcome.KEPT]
        assert asked.count(GPU) == 1
    finally:
        bench.knobs.release()
        restoring.join()
    assert found == [RestoreOutcome.RESTORED] * 2  # late
    assert not bench.left()
    assert bench.knobs.calls.count(("power_limit", OTHER)) == 1


def test_while_another_process_holds_the_record_gpus_are_restored_and_nothing_is_forgotten(tmp_path: Path) -> None:
    bench = Bench(tmp_path, limit(GPU))
    with SettingsRecord(tmp_path).lock(0.0) as held:
        assert held
        assert bench.restore() == [RestoreOutcome.RESTORED]
    assert bench.knobs.limits[GPU] == 700_000
    assert bench.left() == [GPU]


def test_a_gpu_that_another_process_is_at_is_restored_and_not_forgotten_and_the_others_are(tmp_path: Path) -> None:
    bench = Bench(tmp_path, limit(GPU), limit(OTHER))
    with SettingsRecord(tmp_path).lock_gpu(GPU, 0.0) as held:
        assert held
        assert bench.restore() == [RestoreOutcome.RESTORED] * 2
    assert set(bench.knobs.limits.values()) == {700_000}
    assert bench.left() == [GPU]
    assert bench.restore() == [RestoreOutcome.DROPPED]
    assert not bench.left()


def test_a_disk_that_takes_no_record_keeps_nothing_from_being_restored(tmp_path: Path) -> None:
    bench = Bench(tmp_path, limit(GPU))
    full = tmp_path / "tuner/actuation.json.partial"
    full.mkdir()
    (kept,) = bench.restorer.restore()
    assert kept.outcome is RestoreOutcome.KEPT
    assert kept.message.startswith("the power limit is 700 W again; cannot write")
    assert bench.knobs.limits[GPU] == 700_000
    assert bench.left() == [GPU]
    full.rmdir()
    assert bench.restore() == [RestoreOutcome.DROPPED]
    assert not bench.left()


def test_what_was_restored_late_is_forgotten_too(tmp_path: Path) -> None:
    bench = Bench(tmp_path, limit(GPU), timeout=0.2)
    bench.knobs.hanging.add(GPU)
    assert bench.restore() == [RestoreOutcome.KEPT]
    bench.knobs.release()
    assert not bench.left()
    assert bench.record.read().restores == {Trigger.GUARD: 1}


def test_a_driver_that_was_loaded_again_is_met_by_a_second_session(tmp_path: Path) -> None:
    bench = Bench(tmp_path, limit(GPU))
    bench.knobs.errors["nvmlDeviceGetPowerManagementLimit"] = pynvml.NVML_ERROR_UNINITIALIZED

    def before(name: str, args: tuple[Any, ...]) -> None:
        if name == "nvmlShutdown":
            bench.knobs.errors.clear()

    bench.knobs.before = before
    assert bench.restore() == [RestoreOutcome.RESTORED]


def test_the_same_failure_is_reported_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, limit(GPU))
    bench.knobs.deaf = True
    for _ in range(3):
        bench.restore()
    assert [each.result for each in bench.ledger.actions] == [Result.FAILED]


def test_a_limit_goes_back_to_no_more_than_the_default(tmp_path: Path) -> None:
    bench = Bench(tmp_path, limit(GPU))
    bench.knobs.default = 600_000
    assert bench.restore() == [RestoreOutcome.RESTORED]
    assert bench.knobs.limits[GPU] == 600_000


def test_clocks_that_run_above_our_lock_are_left_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, clocks(GPU))
    bench.knobs.locked[GPU] = bench.knobs.running[GPU] = 1500
    assert bench.restore() == [RestoreOutcome.DROPPED]
    assert bench.knobs.locked[GPU] == 1500
    assert not bench.left()
