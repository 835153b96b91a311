"""What the hand gives back and what it leaves alone: at its end, after a reboot, beside a guard and other people."""

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from gpuwatch.tuning.actuation.interface import PerGpuExecutor
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.tuning.actuation.restore import ANSWER_SECONDS
from gpuwatch.tuning.actuation.restore import RestoreOutcome as Restored
from gpuwatch.tuning.model.setting import OrderOutcome, Trigger
from tests.tuning.actuation.actuator_bench import DEADLINE, GPU, OTHER, Bench
from tests.tuning.service.tuning import BOOT, DRIVER, clocks, limit


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.knobs.release()


# ---- S3: given back on the way out ----


def test_s3_everything_is_restored_in_time_though_one_gpu_hangs(bench: Bench) -> None:
    for uuid in (GPU, OTHER):
        assert bench.limit(500.0, uuid).outcome is OrderOutcome.DONE
    bench.knobs.hanging.add(GPU)
    start = time.monotonic()
    (kept,) = bench.actuator.restore(Trigger.EXIT)
    bench.actuator.close()  # what the guard will have to do is not waited for twice
    assert time.monotonic() - start < 2 * ANSWER_SECONDS
    assert kept == f"power_limit of {GPU}: the driver does not answer"
    assert bench.knobs.limits == {GPU: 500_000, OTHER: 700_000}
    assert [each.uuid for each in bench.recorded()] == [GPU]


def test_s3_an_actuator_that_is_closed_has_restored_and_sets_nothing_any_more(bench: Bench) -> None:
    bench.limit(500.0)
    bench.cap(1200)
    bench.actuator.close()
    assert (bench.knobs.limits[GPU], bench.knobs.locked, bench.recorded()) == (700_000, {}, [])
    assert bench.record.read().restores == {Trigger.EXIT: 2}
    assert bench.limit(400.0).outcome is OrderOutcome.REFUSED
    assert bench.knobs.limits[GPU] == 700_000


@pytest.fixture
def quick_turns() -> Iterator[None]:
    """Threads take turns far more often than usual."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def test_s3_an_order_under_way_is_restored_too(bench: Bench) -> None:
    """The hand ends while a GPU is slow: what comes of the order is known before it is given back."""
    closing = threading.Thread(target=bench.actuator.close)
    bench.once_at("nvmlDeviceSetPowerManagementLimit", closing.start)
    bench.limit(500.0)
    closing.join(DEADLINE)
    assert (bench.knobs.limits[GPU], bench.recorded()) == (700_000, [])


def test_s3_a_job_that_begins_is_not_waited_for_by_who_waits_for_the_one_before(quick_turns: None) -> None:
    """An order ends, and what gives it back begins on that GPU, while the order's own caller still waits."""
    for _ in range(300):
        executor, given_back = PerGpuExecutor(), threading.Event()
        closing = threading.Thread(
            target=executor.run, args=({GPU: given_back.set}, DEADLINE), kwargs={"wait_busy": True}
        )
        executor.run({GPU: closing.start}, DEADLINE)
        closing.join()
        assert given_back.is_set()


def test_one_gpu_alone_is_restored(bench: Bench) -> None:
    for uuid in (GPU, OTHER):
        bench.limit(500.0, uuid)
    assert bench.actuator.restore(Trigger.TUNER, [OTHER]) == ()
    assert bench.knobs.limits == {GPU: 500_000, OTHER: 700_000}


def test_a_knob_that_is_spared_stays_in_force_and_recorded(bench: Bench) -> None:
    bench.limit(500.0)
    bench.cap(1200)
    before = len(bench.knobs.sets)
    assert bench.actuator.restore(Trigger.START, kept_knobs=("power_limit",)) == ()
    assert bench.knobs.sets[before:] == [("locked_clocks", GPU, None)]
    assert bench.applied() == {"power_limit": (500.0,)}
    assert bench.record.read().restores == {Trigger.START: 1}


# ---- S5: another boot, another driver ----


@pytest.mark.parametrize("changed", [{"boot_id": "boot-0"}, {"driver": "570.1"}])
def test_s5_what_another_boot_or_driver_left_is_dropped_though_it_is_spared(
    bench: Bench, changed: dict[str, str]
) -> None:
    bench.record.add(limit(GPU, **changed))
    bench.record.add(limit(OTHER))
    bench.knobs.limits[OTHER] = 500_000
    assert bench.actuator.restore(Trigger.START, kept_knobs=("power_limit",)) == ()
    assert [each.uuid for each in bench.recorded()] == [OTHER]
    assert not bench.knobs.calls


@pytest.mark.parametrize("changed", [{"boot_id": "boot-0"}, {"driver": "570.1"}])
def test_s5_a_record_of_another_boot_or_driver_is_dropped_and_the_original_read_again(
    bench: Bench, changed: dict[str, str]
) -> None:
    bench.record.add(limit(GPU, **changed))
    bench.record.add(clocks(OTHER, **changed))
    bench.knobs.limits[GPU] = 650_000
    assert bench.limit(660.0).outcome is OrderOutcome.REFUSED
    assert bench.limit(400.0).outcome is OrderOutcome.DONE
    (own,) = [each for each in bench.recorded() if each.uuid == GPU]
    assert (own.original, own.applied, own.boot_id, own.driver) == (650.0, (400.0,), BOOT, DRIVER)
    assert bench.cap(None, OTHER).outcome is OrderOutcome.DONE
    assert [(knob, uuid) for knob, uuid, _ in bench.knobs.sets] == [("power_limit", GPU)]
    assert [each.uuid for each in bench.recorded()] == [GPU]


def test_s6_while_the_boot_is_unknown_nothing_is_written(tmp_path: Path) -> None:
    bench = Bench(tmp_path, boot_id=None)
    bench.record.add(limit(GPU))
    assert [bench.limit(400.0).outcome, bench.limit(None).outcome] == [OrderOutcome.REFUSED] * 2
    assert bench.actuator.restore(Trigger.EXIT) == (f"power_limit of {GPU}: which boot this is cannot be read",)
    assert not bench.knobs.calls
    assert bench.applied() == {"power_limit": (500.0,)}


# ---- S6: what is not known is not written ----


@pytest.mark.parametrize(
    "function",
    [
        "nvmlInit",
        "nvmlSystemGetDriverVersion",
        "nvmlDeviceGetHandleByUUID",
        "nvmlDeviceGetPowerManagementLimit",
        "nvmlDeviceGetPowerManagementLimitConstraints",
        "nvmlDeviceGetSupportedGraphicsClocks",
    ],
)
def test_s6_what_cannot_be_read_is_not_written_and_stays_recorded(bench: Bench, function: str) -> None:
    bench.limit(500.0)
    before = bench.recorded(), list(bench.knobs.calls)
    bench.knobs.errors[function] = pynvml.NVML_ERROR_UNKNOWN
    assert bench.limit(400.0).outcome is OrderOutcome.FAILED
    assert (bench.recorded(), bench.knobs.calls) == before
    bench.knobs.errors.clear()
    assert bench.limit(400.0).outcome is OrderOutcome.DONE


def test_s6_what_cannot_be_verified_failed_and_stays_recorded(bench: Bench) -> None:
    bench.limit(500.0)
    bench.knobs.deaf = True
    results = bench.limit(400.0)
    assert (results.outcome, results.in_force) == (OrderOutcome.FAILED, None)
    assert "the driver reports 500 W" in results.message
    assert bench.applied() == {"power_limit": (400.0, 500.0)}
    assert bench.limit(None).outcome is OrderOutcome.FAILED
    assert bench.applied() == {"power_limit": (400.0, 500.0)}
    bench.knobs.deaf = False
    assert bench.limit(None).outcome is OrderOutcome.DONE
    assert not bench.recorded()


# ---- S9: somebody else ----


def test_s9_a_limit_that_another_program_has_set_since_is_left_alone(bench: Bench) -> None:
    bench.limit(500.0)
    bench.knobs.limits[GPU] = 450_000
    assert bench.limit(400.0).outcome is OrderOutcome.FOREIGN
    lifted = bench.limit(None)
    assert lifted.outcome is OrderOutcome.FOREIGN
    assert "the limit is 450 W" in lifted.message
    assert bench.knobs.limits[GPU] == 450_000
    assert not bench.recorded()


def test_s9_a_limit_that_another_program_has_put_back_is_nobodys(bench: Bench) -> None:
    bench.limit(500.0)
    bench.knobs.limits[GPU] = 700_000
    assert bench.limit(400.0).outcome is OrderOutcome.DONE
    assert bench.limit(None).outcome is OrderOutcome.DONE


# ---- the hand and the guard at once ----


def test_a_guard_that_comes_between_record_and_driver_forgets_nothing(bench: Bench) -> None:
    """The tuner was stopped before its call, and sets after all: the guard has it in the record at its next try."""
    found: list[Restored] = []
    bench.once_at(
        "nvmlDeviceSetPowerManagementLimit", lambda: found.extend(each.outcome for each in bench.guard.restore())
    )
    assert bench.limit(500.0).outcome is OrderOutcome.DONE
    assert found == [Restored.DROPPED]
    assert bench.applied() == {"power_limit": (500.0,)}
    assert [each.outcome for each in bench.guard.restore()] == [Restored.RESTORED]
    assert (bench.knobs.limits[GPU], bench.recorded()) == (700_000, [])


def test_a_guard_that_unlocks_between_driver_and_answer_forgets_nothing(bench: Bench) -> None:
    bench.cap(1500)
    bench.once_at("nvmlDeviceSetGpuLockedClocks", bench.guard.restore)
    bench.cap(1200)
    assert bench.knobs.locked == {GPU: 1200}
    assert bench.applied() == {"locked_clocks": (1.2e9,)}


def test_after_a_guard_the_original_is_what_the_driver_says_now(bench: Bench) -> None:
    bench.limit(500.0)
    bench.guard.restore()
    bench.knobs.limits[GPU] = 450_000  # by an admin, while the tuner was stopped
    assert bench.limit(500.0).message == "500 W is above the original 450 W"
    assert bench.limit(400.0).outcome is OrderOutcome.DONE
    assert bench.recorded()[0].original == 450.0
    bench.limit(None)
    assert bench.knobs.limits[GPU] == 450_000


def test_while_another_process_is_at_a_gpu_it_is_not_set_and_the_others_are(bench: Bench, tmp_path: Path) -> None:
    with SettingsRecord(tmp_path).lock_gpu(GPU, 0.0) as held:
        assert held
        results = bench.limit(500.0)
        assert bench.limit(500.0, OTHER).outcome is OrderOutcome.DONE
    assert (results.outcome, results.message) == (OrderOutcome.REFUSED, "another process holds the lock of this GPU")
    assert [uuid for _, uuid in bench.knobs.calls] == [OTHER]
    assert bench.limit(500.0).outcome is OrderOutcome.DONE
