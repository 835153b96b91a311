"""A tuner that enforces, end to end: agent, tuner and guard as processes on a fake driver whose GPUs obey their knobs.

Its steps share one node. Each begins by waiting for a cap that is in force; the first wait is a whole search.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.tuning.actuation.heartbeat import HeartbeatFile
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.tuning.model.setting import Setting
from gpuwatch.tuning.model.status import GpuTuning, ObstacleReason, TunerState, TuningState
from gpuwatch.tuning.service.state_dir import StopRequest, TunerMemory, TunerStatus, TunerStopFile
from tests.drills.agent_process import AgentProcess
from tests.drills.fast_tuner import FAST
from tests.drills.test_tuner_dies import GUARD, environment
from tests.e2e.processes import ROOT
from tests.fakes.libnvml import FakeDriver, FakeProcess
from tests.waiting import BOUND_SECONDS, until

TOP_MHZ = 1980


class Node:
    """Four GPUs, of which the first two work for one user; agent and guard; and a tuner, once it is started."""

    def __init__(self, folder: Path, driver: FakeDriver) -> None:
        self.folder, self.driver, self.state = folder, driver, folder / "tuner"
        self.state.mkdir()
        self.config = folder / "tuner.json"
        self.running: list[subprocess.Popen[bytes]] = []
        self.work()
        self.guard = self.run("-c", GUARD, str(self.state))
        self.tuner = self.start()

    def run(self, *message: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"log-{len(self.running)}").open("wb") as log:
            command = [sys.executable, *message]
            self.running.append(subprocess.Popen(command, env=environment(self.driver), stderr=log, cwd=ROOT))
        return self.running[-1]

    def work(self) -> None:
        """New processes take the place of those there are."""
        for gpu in (0, 1):
            worker = self.run("-c", "import time; time.sleep(600)")
            self.driver.set_processes(gpu, [FakeProcess(pid=worker.pid, memory=1 << 30)])
            self.driver.couple(gpu, clock_bound=0.2)

    def configure(self, mode: str) -> None:
        """Write the file that the tuner follows."""
        partial = self.config.with_suffix(".partial")
        config = {
            "agent": {"socket": str(self.folder / "agent.sock")},
            "sources": {"nvml_library": str(self.driver.library)},
            "state_dir": str(self.state),
            "tuning": {"mode": mode, "work_class": "batch", "listen": "127.0.0.1:0"},
        }
        partial.write_text(json.dumps(config))
        partial.replace(self.config)

    def start(self) -> subprocess.Popen[bytes]:
        """The tuner."""
        self.configure("enforce")
        return self.run("-m", "tests.drills.fast_tuner", str(self.config))

    def restart(self) -> float:
        """End the tuner as a service manager does, and start another; seconds that the end took."""
        self.tuner.send_signal(signal.SIGTERM)
        began = time.monotonic()
        assert self.tuner.wait(BOUND_SECONDS) == 0
        took = time.monotonic() - began
        assert self.is_free()
        self.tuner = self.start()
        return took

    @property
    def tuner_state(self) -> TunerState | None:
        return TunerStatus(self.state).read()

    def gpu(self, index: int) -> GpuTuning:
        gpus = self.tuner_state.gpus if self.tuner_state else ()
        unknown = GpuTuning(index=index, uuid="", state=TuningState.IDLE)
        return next((each for each in gpus if each.index == index), unknown)

    def caps(self) -> list[int | None]:
        """What is in force, MHz."""
        return [self.driver.get(gpu, "locked_max_mhz") for gpu in range(4)]

    def recorded(self) -> tuple[Setting, ...]:
        return SettingsRecord(self.state).read().settings

    def is_free(self) -> bool:
        return self.caps() == [None] * 4 and not self.recorded()

    def capped(self) -> None:
        """Wait until a cap is in force on both GPUs that work."""
        until(lambda: None not in self.caps()[:2], "a cap is in force", seconds=300.0)  # it searches anew

    def freed(self, what: str) -> float:
        """Wait until nothing is in force or recorded; seconds."""
        began = time.monotonic()
        until(self.is_free, what)
        return time.monotonic() - began

    def log(self, process: subprocess.Popen[bytes]) -> str:
        return (self.folder / f"log-{self.running.index(process)}").read_text()

    def end(self) -> None:
        self.driver.clear()
        for process in self.running:
            process.kill()
            process.wait(BOUND_SECONDS)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    folder = tmp_path
    with (
        FakeDriver(folder / "driver", gpus=4) as driver,
        AgentProcess(folder, driver, interval=1 / FAST) as agent,
    ):
        agent.wait_complete(4)
        node = Node(folder, driver)
        try:
            yield node
        finally:
            node.end()


def a_cap_is_found_and_held_within_the_bound(node: Node) -> None:
    until(lambda: node.gpu(0).state is TuningState.HOLDING, "a cap is held")
    until(lambda: node.gpu(1).joules_saved > 0, "joules are counted")
    held = node.gpu(0)
    cap = held.clock_cap
    assert cap is not None
    assert node.caps() == [round(cap / 1e6)] * 2 + [None] * 2
    true = 1 - 1 / (0.8 + 0.2 * TOP_MHZ * 1e6 / cap)
    assert held.slowdown == pytest.approx(true, abs=0.003)
    assert 0.03 < true <= held.bound
    # Not within the bound: a busy machine makes this clock's windows uneven, and the measurement says so.
    assert true <= held.slowdown_upper
    assert {each.uuid for each in node.recorded()} == {node.gpu(0).uuid, node.gpu(1).uuid}
    assert '"action":"tune"' in node.log(node.tuner)


def s1_nothing_was_ever_set_above_the_highest_clock_or_below_half_of_it(node: Node) -> None:
    node.capped()
    values = [each.value for each in node.driver.sets() if each.knob == "locked_clocks" and each.value is not None]
    assert values
    assert TOP_MHZ / 2 <= min(values) <= max(values) < TOP_MHZ
    assert {each.gpu for each in node.driver.sets()} == {0, 1}


def a_person_stops_it_and_lets_it_go_on(node: Node) -> None:
    node.capped()
    TunerStopFile(node.state).put(StopRequest(by="somebody", why="a benchmark"))
    print(f"given back {node.freed('all is given back'):.2f} s after it was stopped")
    until(lambda: node.gpu(0).reason is ObstacleReason.STOPPED, "it says so")
    assert "a benchmark" in node.gpu(0).message
    TunerStopFile(node.state).clear()
    until(lambda: node.gpu(0).state is TuningState.VERIFYING, "what was held is looked at again, not searched")
    node.capped()


def s4_without_a_guard_nothing_stays_set(node: Node) -> None:
    node.capped()
    node.guard.kill()
    node.freed("all is given back")
    until(lambda: node.gpu(0).reason is ObstacleReason.NO_GUARD, "it says why")
    node.guard = node.run("-c", GUARD, str(node.state))
    node.capped()


def s3_it_gives_back_at_its_end_and_the_next_one_goes_on_where_it_was(node: Node) -> None:
    node.capped()
    assert TunerMemory(node.state).read()
    assert node.restart() < 5
    node.capped()
    assert node.gpu(0).state is TuningState.VERIFYING


def s5_what_a_killed_tuner_left_is_given_back_before_the_next_one_begins(node: Node) -> None:
    node.capped()
    os.kill(node.tuner.pid, signal.SIGKILL)
    node.tuner.wait(BOUND_SECONDS)
    node.driver.reset_calls()
    node.tuner = node.start()
    until(lambda: SettingsRecord(node.state).read().restores.get("start"), "the new one has given back")
    first = next(each for each in node.driver.sets())
    assert first.value is None
    node.capped()


def a_driver_that_hangs_silences_neither_the_heartbeat_nor_the_other_gpu(node: Node) -> None:
    node.capped()
    node.driver.hang("nvmlDeviceResetGpuLockedClocks", gpu=0)
    TunerStopFile(node.state).put(StopRequest())
    until(lambda: node.caps()[1] is None, "the other GPU is free")
    beats = set()
    until(lambda: beats.add(HeartbeatFile(node.state).latest().stamp) or len(beats) > 3, "it beats on", step=0.1)
    assert [each.uuid for each in node.recorded()] == [node.gpu(0).uuid]
    # cleared before its patience ends, the call would be a late success, and nothing to be careful about
    until(lambda: any(each.reason is ObstacleReason.NOT_SET for each in node.gpu(0).obstacles), "the order has failed")
    node.driver.clear()
    node.freed("what hung is given back, too")
    TunerStopFile(node.state).clear()
    until(lambda: node.gpu(0).reason is ObstacleReason.NOT_SET, "a driver that has hung is left alone for a while")
    node.restart()


def s7_other_work_does_not_inherit_a_cap(node: Node) -> None:
    node.capped()
    node.driver.reset_calls()
    node.work()
    print(f"given back {node.freed('other work runs free'):.2f} s after it came")
    until(lambda: node.gpu(0).state is TuningState.OBSERVING, "it is looked at anew")
    assert not [each for each in node.driver.sets() if each.value is not None]


def a_reload_to_observe_sets_nothing_more(node: Node) -> None:
    node.configure("observe")
    until(lambda: node.tuner_state is not None and node.tuner_state.mode == "observe", "it observes")
    node.freed("all is given back")
    node.driver.reset_calls()
    until(lambda: node.gpu(0).state is TuningState.ELIGIBLE, "it says what it would do")
    assert "would search from 1590 MHz; steady, DRAM 50 %" in node.gpu(0).note
    assert not node.driver.sets()


STEPS = (
    a_cap_is_found_and_held_within_the_bound,
    s1_nothing_was_ever_set_above_the_highest_clock_or_below_half_of_it,
    a_person_stops_it_and_lets_it_go_on,
    s4_without_a_guard_nothing_stays_set,
    s3_it_gives_back_at_its_end_and_the_next_one_goes_on_where_it_was,
    s5_what_a_killed_tuner_left_is_given_back_before_the_next_one_begins,
    a_driver_that_hangs_silences_neither_the_heartbeat_nor_the_other_gpu,
    s7_other_work_does_not_inherit_a_cap,
    a_reload_to_observe_sets_nothing_more,
)


@pytest.mark.slow  # minutes of its time; tests/tuning/service/test_tuner_enforcing.py has the same on a turned clock
def test_a_tuner_that_enforces_keeps_each_of_its_promises_in_one_life(node: Node) -> None:
    for step in STEPS:
        print(step.__name__)
        step(node)
