"""The tuner in mode enforce, on the real hand over a driver made by hand: what it does besides deciding."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pynvml
import pytest

from gpuwatch.model.event import Result
from gpuwatch.model.view import View
from gpuwatch.storage.audit import Audit
from gpuwatch.tuning.actuation.actuator import NvmlActuator
from gpuwatch.tuning.actuation.driver import NvmlControl
from gpuwatch.tuning.model.setting import Setting, Trigger
from gpuwatch.tuning.model.status import GpuTuning, ObstacleReason, TuningState
from gpuwatch.tuning.service.process import TunerService
from gpuwatch.tuning.service.state_dir import StopRequest, TunerFolder
from gpuwatch.tuning.service.tuner import Tuner
from tests.cpu_clock import unhindered
from tests.remediation.model.remediating import Ledger
from tests.tuning.cycle.tuning_world import UUIDS, World
from tests.tuning.service.tuning import BOOT, Knobs, clocks, limit
from tests.waiting import BOUND_SECONDS, until

DEADLINE = BOUND_SECONDS


class Bench:
    """A world whose clocks are those of a driver that a real hand turns. It is the tuner's clock and its source of
    Views, too; `broken` makes every look at the View fail, as a bug in a cycle would, and `blocked` hang.
    """

    trouble: str | None = None
    broken = False
    blocked: threading.Event | None = None

    def __init__(self, folder: Path, timeout: float = DEADLINE) -> None:
        self.timeout = timeout
        self.world, self.knobs, self.ledger = World(), Knobs(*UUIDS), Ledger()
        self.files = TunerFolder.at(folder)
        (folder / "consents").mkdir(exist_ok=True)
        self.guarded = True
        self.tuner = self.started()

    def started(self) -> Tuner:
        """Another process."""
        audit = Audit(self.ledger, self, actor="tuner")
        actuator = NvmlActuator(
            self.files.record,
            lambda: NvmlControl(self.knobs),
            boot_id=BOOT,
            audit=audit,
            clock=self,
            timeout=self.timeout,
        )
        return Tuner(self.world.config, self, self.files, clock=self, actuator=actuator, audit=audit)

    def time(self) -> float:
        return self.world.at

    def monotonic(self) -> float:
        return self.world.now

    @property
    def view(self) -> View | None:
        if self.broken:
            raise ZeroDivisionError
        if self.blocked is not None:
            self.blocked.wait(DEADLINE)
        return self.world.view

    @property
    def age(self) -> float:
        return self.world.at - self.world.view.snapshot.at

    def poll(self, wait: float = 0.0) -> bool:
        """A second goes by, in no time."""
        self.world.now += 1.0
        for uuid, work in self.world.works.items():
            megahertz = self.knobs.locked.get(uuid)
            self.world.clocks[uuid] = None if megahertz is None else megahertz * 1e6
            self.world.limits[uuid] = self.knobs.limits[uuid] / 1e3
            self.world.energy[uuid] += self.world._watts(uuid, work)
        self.world.view = self.world._new_view()
        self.files.consents.write(self.world._consents())
        if self.guarded:
            self.files.guard.beat("guard", self.world.at)
        return True

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.poll()
            self.tuner.step()

    def until(self, holds: Callable[[], Any], seconds: int = 900) -> None:
        for _ in range(seconds):
            self.run(1)
            if holds():
                return
        raise AssertionError(f"not in {seconds} s: {self.tuner.state.gpus} {self.tuner.state.trouble}")

    def capped(self) -> None:
        """Wait for a cap in force."""
        self.until(lambda: self.knobs.locked)

    def gpu(self, index: int) -> GpuTuning:
        return self.tuner.state.gpus[index]

    def recorded(self) -> tuple[Setting, ...]:
        return self.files.record.read().settings

    def budgeted(self, watts: float | None, **more: Any) -> None:
        """Have the next process find a budget."""
        self.world.config = msgspec.structs.replace(self.world.config, node_budget_watts=watts, **more)

    def total(self) -> float:
        """Watts, of all power limits."""
        return sum(self.knobs.limits.values()) / 1e3

    def is_free(self) -> bool:
        return not self.knobs.locked and not self.recorded() and set(self.knobs.limits.values()) == {700_000}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.knobs.release()


def test_what_an_earlier_tuner_left_is_restored_before_anything_else(bench: Bench) -> None:
    bench.files.record.add(limit("GPU-1"))
    bench.files.record.add(clocks("GPU-2"))
    bench.knobs.limits["GPU-1"], bench.knobs.locked["GPU-2"] = 500_000, 1200
    bench.run(1)
    assert bench.is_free()
    assert bench.files.record.read().restores == {Trigger.START: 2}


BUDGET = 2_400.0
"""For four GPUs of 700 W, of which three draw 500 W."""


@pytest.fixture
def limited(bench: Bench) -> Bench:
    """A tuner was killed while it kept a budget, and a clock was capped; another one is about to begin."""
    bench.budgeted(BUDGET)
    bench.tuner = bench.started()
    bench.until(lambda: bench.total() <= BUDGET)
    bench.capped()
    bench.tuner = bench.started()
    bench.knobs.sets.clear()
    return bench


def highest(bench: Bench, limits: dict[str, int]) -> float:
    """Watts that all limits were together at most, from these on."""
    limits, totals = dict(limits), [sum(limits.values())]
    for knob, uuid, milliwatts in bench.knobs.sets:
        if knob == "power_limit" and milliwatts is not None:
            limits[uuid] = milliwatts
            totals.append(sum(limits.values()))
    assert limits == bench.knobs.limits
    return max(totals) / 1e3


def test_a_budget_is_kept_through_a_death_at_every_instant(limited: Bench) -> None:
    before = dict(limited.knobs.limits)
    limited.run(1)
    assert not limited.knobs.locked
    assert limited.tuner.state.budget is not None
    assert limited.tuner.state.budget.how == "waiting"
    limited.run(120)
    assert highest(limited, before) <= BUDGET
    assert limited.tuner.state.budget.how == "roomy"
    assert {each.original for each in limited.recorded() if each.knob == "power_limit"} == {700.0}
    assert limited.files.record.read().restores[Trigger.START] >= 1
    limited.tuner.end()
    assert limited.is_free()


@pytest.mark.parametrize(
    "config", [{"watts": None}, {"watts": BUDGET, "mode": "observe"}, {"watts": BUDGET, "mode": "off"}]
)
def test_limits_of_a_budget_that_is_kept_no_more_are_restored_at_the_start(
    limited: Bench, config: dict[str, Any]
) -> None:
    limited.budgeted(**config)
    limited.tuner = limited.started()
    limited.run(1)
    assert limited.is_free()
    assert limited.files.record.read().restores[Trigger.START] >= 4


def test_limits_that_are_found_are_restored_at_once_once_tuning_is_stopped(limited: Bench) -> None:
    limited.files.stop.put(StopRequest(by="ada"))
    limited.run(1)
    assert limited.is_free()


def test_s4_limits_that_are_found_are_restored_when_there_is_surely_no_guard(limited: Bench) -> None:
    limited.guarded = False
    limited.run(30)
    assert limited.total() <= BUDGET
    assert [knob for knob, _, _ in limited.knobs.sets] == ["locked_clocks"] * len(limited.knobs.sets)
    limited.run(2)
    assert limited.is_free()


def test_limits_of_another_boot_are_nobodys_budget(limited: Bench) -> None:
    for uuid in limited.knobs.limits:
        limited.files.record.add(limit(uuid, 300.0, boot_id="boot-0"))
        limited.knobs.limits[uuid] = 700_000
    limited.run(1)
    assert limited.recorded() == ()


def test_s13_every_decision_leaves_a_line_with_before_after_and_why(bench: Bench) -> None:
    bench.until(lambda: bench.gpu(2).state is TuningState.HOLDING)
    mine = [each for each in bench.ledger.actions if each.target == "gpu/GPU-2"]
    assert [(each.action, each.result) for each in mine] == [("tune", Result.DONE)] * len(mine)
    assert mine[0].after == "1590 MHz"
    assert "5 % at most" in mine[0].why
    assert "less energy" in mine[-1].why
    bench.files.stop.put(StopRequest(by="ada"))
    bench.run(1)
    last = [each for each in bench.ledger.actions if each.target == "gpu/GPU-2"][-1]
    assert (last.action, last.before, last.after, last.why) == ("restore", mine[-1].after, "", "stopped by ada")
    assert bench.tuner.state.actions["locked_clocks", "done"] > len(mine)


def test_s10_the_actuator_is_asked_for_no_more_than_the_loop_allows(bench: Bench) -> None:
    bench.tuner.reconfigure(msgspec.structs.replace(bench.world.config, max_actions_per_hour=1, max_slowdown=0.03))
    bench.until(lambda: bench.gpu(2).reason is ObstacleReason.RATE_LIMIT)
    assert len({value for knob, gpu, value in bench.knobs.sets if gpu == "GPU-2" and value}) == 1
    assert bench.is_free()


@pytest.mark.parametrize("mode", ["off", "observe"])
def test_another_mode_restores_everything_and_enforce_starts_over(bench: Bench, mode: str) -> None:
    bench.capped()
    bench.tuner.reconfigure(msgspec.structs.replace(bench.world.config, mode=mode))
    bench.run(1)
    assert bench.is_free()
    seen = bench.files.heartbeat.latest()
    assert seen is not None
    assert seen.beat is not None
    assert seen.beat.mode == mode
    sets = len(bench.knobs.sets)
    bench.run(120)
    assert len(bench.knobs.sets) == sets
    bench.tuner.reconfigure(bench.world.config)
    bench.capped()


def test_s4_without_a_guard_nothing_is_set_and_what_was_set_is_restored(bench: Bench) -> None:
    bench.guarded = False
    bench.run(120)
    assert bench.gpu(0).reason is ObstacleReason.NO_GUARD
    assert not bench.knobs.sets
    assert bench.tuner.state.guard is False
    bench.guarded = True
    bench.capped()
    bench.guarded = False
    bench.run(29)
    assert bench.recorded()
    bench.run(2)
    assert bench.is_free()


def test_a_guard_that_beats_is_waited_for_without_a_word(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "gpuwatch.tuning.service.tuner")
    bench.run(1)
    assert bench.gpu(0).message == "waiting for the guard: nothing would restore what a dead tuner has set"
    assert not bench.knobs.sets
    bench.run(1)
    assert bench.gpu(0).state is TuningState.OBSERVING
    assert "guard" not in caplog.text


def test_that_no_guard_comes_is_reported_after_two_seconds_and_again_when_it_is_sure(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gpuwatch.tuning.service.tuner")
    bench.guarded = False
    said = []
    for _ in range(60):
        bench.run(1)
        said.append(len(caplog.records))
    assert said[1] == 0
    assert [text.split(":")[1].split("; ")[1] for text in caplog.messages if "GPU 0" in text] == [
        "waiting for the guard",
        "no guard runs",
    ]
    assert said[5] == said[20] < said[40] == said[-1]
    assert not bench.knobs.sets


def test_the_heartbeat_of_a_guard_long_dead_is_not_taken_for_one(bench: Bench) -> None:
    bench.guarded = False
    bench.files.guard.beat("guard", bench.time())
    bench.run(3)
    assert bench.gpu(0).reason is ObstacleReason.NO_GUARD


def test_a_driver_that_needs_more_rights_is_reported_in_its_words(bench: Bench) -> None:
    bench.knobs.errors["nvmlDeviceSetGpuLockedClocks"] = pynvml.NVML_ERROR_NO_PERMISSION
    bench.until(lambda: bench.gpu(2).reason is ObstacleReason.NOT_SET)
    assert "run as root with CAP_SYS_ADMIN" in bench.gpu(2).message
    assert not bench.recorded()
    bench.run(60)
    assert bench.gpu(2).reason is ObstacleReason.NOT_SET


def test_where_clocks_cannot_be_locked_after_all_the_power_limit_is_next(bench: Bench) -> None:
    bench.knobs.errors["nvmlDeviceSetGpuLockedClocks"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    bench.until(lambda: bench.gpu(2).reason is ObstacleReason.NOT_SET)
    bench.until(lambda: ("power_limit", "GPU-2") in bench.knobs.calls, seconds=1200)
    assert all(watts is None or watts <= 700_000 for knob, _, watts in bench.knobs.sets if knob == "power_limit")


def test_a_hanging_gpu_holds_up_neither_the_heartbeat_nor_the_others(tmp_path: Path) -> None:
    timeout = 3.0
    bench = Bench(tmp_path, timeout=timeout)
    bench.until(lambda: bench.gpu(2).state is TuningState.HOLDING)
    bench.knobs.hanging.add("GPU-2")
    bench.files.stop.put(StopRequest())
    began, stamps = time.monotonic(), set()
    for _ in range(3):
        bench.run(1)
        seen = bench.files.heartbeat.latest()
        assert seen is not None
        stamps.add(seen.stamp)
    assert time.monotonic() - began < 3 * timeout, "only the first cycle waits"
    assert len(stamps) == 3
    assert list(bench.knobs.locked) == ["GPU-2"]
    assert [each.uuid for each in bench.recorded()] == ["GPU-2"]
    bench.knobs.release()
    assert "GPU-2" not in bench.knobs.locked, "the driver has answered"
    bench.until(bench.is_free, 5)


def test_after_a_cycle_that_fails_everything_is_restored_and_the_next_starts_over(bench: Bench) -> None:
    bench.capped()
    bench.broken = True
    with pytest.raises(ZeroDivisionError):
        bench.tuner.step()
    bench.tuner.reset()
    assert bench.is_free()
    bench.broken = False
    bench.run(2)
    assert bench.gpu(2).state in (TuningState.OBSERVING, TuningState.VERIFYING)
    bench.capped()


def test_giving_up_forgets_neither_what_was_saved_nor_how_often_a_gpu_was_tried(bench: Bench) -> None:
    bench.until(lambda: bench.gpu(2).joules_saved > 0)
    saved = bench.gpu(2).joules_saved
    bench.tuner.reset()
    sets = len(bench.knobs.sets)
    bench.tuner.reconfigure(msgspec.structs.replace(bench.world.config, max_actions_per_hour=1))
    bench.run(1)
    assert bench.gpu(2).joules_saved >= saved
    bench.until(lambda: bench.gpu(2).reason is ObstacleReason.RATE_LIMIT)
    assert "GPU-2" not in {gpu for _, gpu, _ in bench.knobs.sets[sets:]}


def test_s3_at_the_end_all_is_restored_nothing_is_set_any_more_and_the_next_one_knows(bench: Bench) -> None:
    bench.until(lambda: bench.gpu(2).state is TuningState.HOLDING)
    held = bench.knobs.locked["GPU-2"]
    bench.tuner.end()
    assert bench.is_free()
    sets = len(bench.knobs.sets)
    bench.run(5)
    assert len(bench.knobs.sets) == sets
    bench.tuner = bench.started()
    bench.until(lambda: bench.gpu(2).state is TuningState.VERIFYING, 12)
    bench.until(lambda: bench.gpu(2).state is TuningState.HOLDING, 300)
    assert bench.knobs.locked["GPU-2"] == held


@pytest.mark.parametrize(
    "text", ["", "{", '{"schema": 2, "content": {}}', '{"schema": 1, "content": {"x": {"phase": 7}}}']
)
def test_a_past_that_cannot_be_read_is_forgotten(bench: Bench, text: str) -> None:
    bench.files.memory.path.parent.mkdir(exist_ok=True)
    bench.files.memory.path.write_text(text)
    bench.tuner = bench.started()
    bench.run(5)
    assert bench.gpu(2).state is TuningState.OBSERVING


def test_a_record_that_cannot_be_understood_stops_everything(bench: Bench) -> None:
    bench.files.record.path.parent.mkdir(exist_ok=True)
    bench.files.record.path.write_text("{")
    bench.run(120)
    assert bench.gpu(0).reason is ObstacleReason.NOT_SET
    assert bench.tuner.state.trouble is not None
    assert str(bench.files.record.path) in bench.tuner.state.trouble
    assert not bench.knobs.sets


def test_consents_that_are_not_to_be_trusted_are_reported_and_nobodys(bench: Bench) -> None:
    bench.capped()
    bench.poll()
    bench.files.consents.path.write_text("{")
    bench.tuner.step()
    assert bench.gpu(0).reason is ObstacleReason.NO_CONSENT
    assert bench.tuner.state.trouble is not None
    assert "cannot use" in bench.tuner.state.trouble
    assert bench.is_free()


def test_other_processes_can_read_what_it_is_about(bench: Bench) -> None:
    bench.capped()
    told = bench.files.status.read()
    assert told == bench.tuner.state
    assert told.guard is True
    assert told.consents_at == bench.time()


def test_what_may_be_set_is_asked_once_and_again_when_something_was_not_set(bench: Bench) -> None:
    bench.run(2)
    asked: list[str] = []
    bench.knobs.before = lambda name, args: asked.append(name)
    bench.run(2)
    assert "nvmlDeviceGetSupportedMemoryClocks" not in asked
    bench.knobs.errors["nvmlDeviceSetGpuLockedClocks"] = pynvml.NVML_ERROR_UNKNOWN
    bench.until(lambda: "nvmlDeviceSetGpuLockedClocks" in asked)
    asked.clear()
    bench.run(8)  # the other owner's turn comes a few seconds later, as windows differ in length
    assert "nvmlDeviceGetSupportedMemoryClocks" in asked
    asked.clear()
    bench.run(2)
    assert "nvmlDeviceGetSupportedMemoryClocks" not in asked


def test_s3_a_cycle_that_hangs_keeps_nobody_from_restoring_at_the_end(bench: Bench) -> None:
    bench.capped()
    bench.blocked = threading.Event()
    stepping = threading.Thread(target=bench.tuner.step, daemon=True)
    stepping.start()
    began = unhindered()
    bench.tuner.end()
    assert unhindered() - began < 5
    assert bench.is_free()
    bench.blocked.set()
    stepping.join(DEADLINE)
    assert bench.is_free()


def test_a_service_survives_a_bug_and_restores_when_it_is_stopped(bench: Bench) -> None:
    service = TunerService(bench.tuner, bench, "127.0.0.1:0")  # type: ignore[arg-type]
    service.start()
    until(lambda: bench.knobs.locked)
    bench.broken = True
    until(bench.is_free)
    bench.broken = False
    until(lambda: bench.knobs.locked)
    began = unhindered()
    service.stop()
    assert unhindered() - began < 5
    assert bench.is_free()
    assert math.isfinite(service.state().at)
