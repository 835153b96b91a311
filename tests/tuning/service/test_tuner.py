"""The tuner: beats each cycle, judges what it sees, says what it cannot know, and loads nothing that sets a GPU."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.agent.client import AgentClient, AgentViews
from gpuwatch.config import Config, TuningConfig
from gpuwatch.http.server import HttpStats, Request
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.errors import UsageError
from gpuwatch.process.signals import ConfigWatch
from gpuwatch.tuning.actuation.heartbeat import HeartbeatFile
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.tuning.model.status import ObstacleReason, TunerState, TuningState
from gpuwatch.tuning.service.metrics import PAGES
from gpuwatch.tuning.service.process import ANSWER_SECONDS, VIEW_WAIT_SECONDS, TunerService
from gpuwatch.tuning.service.state_dir import TunerFolder
from gpuwatch.tuning.service.tuner import FRESH_SECONDS, Tuner, checked
from tests.cpu_clock import unhindered
from tests.remediation.model.remediating import FakeClock, Views, fatal, uuid
from tests.tuning.service.tuning import limit


class Bench:
    """A tuner in mode observe over four GPUs of which each has a pod."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.views, self.record, self.heartbeat = Views(self.clock), SettingsRecord(folder), HeartbeatFile(folder)
        self.tuner = Tuner(TuningConfig(), self.views, TunerFolder.at(folder), clock=self.clock)

    def ready(self) -> int:
        found = PAGES.routes(lambda: self.tuner.state, HttpStats)["/-/ready"](Request(method="GET", path="/-/ready"))
        return found.status


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def reasons(state: TunerState) -> list[ObstacleReason | None]:
    return [gpu.reason for gpu in state.gpus]


def test_at_its_end_nobody_is_quoted_any_more(bench: Bench, tmp_path: Path) -> None:
    status = TunerFolder.at(tmp_path).status
    bench.tuner.step()
    assert status.read() is not None
    bench.tuner.end()
    assert status.read() is None


def test_a_refused_configuration_is_in_the_status_that_other_commands_read(bench: Bench, tmp_path: Path) -> None:
    watch, status = ConfigWatch(Config(), None, Config, role="tuner"), TunerFolder.at(tmp_path).status
    watch.refuse("gpuwatch.yaml, line 3: tuning.mode: unknown value")

    class OnePoll(AgentViews):
        def poll(self, wait: float = 0.0) -> bool:
            service.stopping.set()  # this cycle is the last
            bench.views.poll()
            return True

    views = OnePoll(AgentClient("/nowhere"), bench.clock)
    service = TunerService(bench.tuner, views, "", watch=watch)
    service.work()
    state = status.read()
    assert state is not None
    assert state.config_error == watch.error


def test_each_cycle_beats(bench: Bench) -> None:
    stamps = set()
    for _ in range(3):
        bench.tuner.step()
        seen = bench.heartbeat.latest()
        assert seen is not None
        assert seen.beat is not None
        assert (seen.beat.mode, seen.beat.at) == ("observe", bench.clock.time())
        stamps.add(seen.stamp)
        bench.clock.go(2)
    assert len(stamps) == 3


def test_a_fault_refuses_its_gpu_and_no_other(bench: Bench) -> None:
    bench.views.findings = (fatal(),)
    bench.views.poll()
    # this hand-made node says nothing of processes, and who is on a GPU has to be known
    assert reasons(bench.tuner.step()) == [ObstacleReason.FAULT, *[ObstacleReason.OWNERS_UNKNOWN] * 3]


def test_without_a_fresh_view_every_gpu_is_refused_and_it_is_not_ready(bench: Bench) -> None:
    assert bench.ready() == 503
    bench.tuner.step()
    assert bench.ready() == 200
    bench.clock.go(60)
    bench.views.trouble = "the agent is gone"
    state = bench.tuner.step()
    assert {gpu.state for gpu in state.gpus} == {TuningState.REFUSED}
    assert set(reasons(state)) == {ObstacleReason.STALE_VIEW}
    assert state.trouble == "the agent is gone"
    assert bench.ready() == 503


def test_off_judges_nothing_and_is_ready(bench: Bench) -> None:
    bench.tuner.reconfigure(TuningConfig(mode="off"))
    state = bench.tuner.step()
    assert (state.mode, state.gpus, bench.ready()) == ("off", (), 200)


def test_what_an_earlier_life_left_behind_is_reported_and_not_touched(bench: Bench) -> None:
    bench.record.add(limit(uuid(0)))
    before = bench.record.path.read_bytes()
    state = bench.tuner.step()
    assert state.trouble is not None
    assert "gpuwatch tune restore" in state.trouble
    assert state.actuation is not None
    assert [setting.uuid for setting in state.actuation.settings] == [uuid(0)]
    assert bench.record.path.read_bytes() == before


def test_a_record_that_cannot_be_understood_is_not_taken_for_an_empty_one(bench: Bench) -> None:
    bench.record.path.parent.mkdir(exist_ok=True)
    bench.record.path.write_text("{")
    state = bench.tuner.step()
    assert state.actuation is None
    assert state.trouble is not None
    assert str(bench.record.path) in state.trouble


def test_a_folder_that_cannot_be_written_is_reported_and_the_gpus_are_judged(tmp_path: Path) -> None:
    state = Bench(tmp_path / "missing").tuner.step()
    assert state.trouble is not None
    assert "tuner.heartbeat" in state.trouble
    assert len(state.gpus) == 4


def test_s12_a_tuner_that_was_started_to_observe_cannot_begin_to_enforce() -> None:
    enforce = Config(tuning=TuningConfig(mode="enforce"))
    with pytest.raises(UsageError, match=r"started to observe.*restart the tuner") as raised:
        checked(enforce, enforcing=False)
    assert raised.value.exit_code == 2
    assert checked(Config(), enforcing=False).tuning.mode == "observe"
    assert checked(enforce, enforcing=True) is enforce


def test_s12_a_tuner_that_observes_cannot_construct_what_sets_gpus() -> None:
    program = "import sys, gpuwatch.tuning.service.process, gpuwatch.cli.tuner; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "gpuwatch.tuning.service.tuner" in loaded
    assert not {"gpuwatch.tuning.actuation.driver", "gpuwatch.tuning.actuation.restore", "pynvml"} & set(loaded)


def test_an_agent_that_hangs_keeps_no_tuner_from_seeing_that_its_view_is_old(tmp_path: Path, bench: Bench) -> None:
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        views = AgentViews(AgentClient(str(path), ANSWER_SECONDS), SystemClock())
        views.view = bench.views.view  # so that it waits for the next one
        began = unhindered()
        assert not views.poll(VIEW_WAIT_SECONDS)
    assert unhindered() - began < FRESH_SECONDS + 0.5
