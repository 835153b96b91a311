"""`gpuwatch tune stop`, `resume` and `restore`: what a person orders holds, and what is left of it is said."""

import threading
import time
from pathlib import Path

import pytest

from gpuwatch.tuning.actuation.heartbeat import HeartbeatFile
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.tuning.model.setting import Trigger
from gpuwatch.tuning.service.state_dir import StopRequest, TunerStopFile
from tests.cli.commands import run
from tests.model import views
from tests.tuning.service.tuning import limit
from tests.waiting import until


def order(place: Path, *message: str):
    return run("tune", *message, "--state-dir", str(place))


def test_stop_says_who_when_and_why_until_resume(tmp_path: Path):
    before = time.time()
    assert order(tmp_path, "stop", "--reason", "benchmark until noon").exit_code == 0
    found = TunerStopFile(tmp_path).read()
    assert found is not None
    assert found.by
    assert found.why == "benchmark until noon"
    assert found.at is not None
    assert before <= found.at <= time.time()
    resumed = order(tmp_path, "resume")
    assert (resumed.exit_code, TunerStopFile(tmp_path).read()) == (0, None)
    assert "benchmark until noon" in resumed.stdout


def test_a_second_stop_keeps_the_reason_of_the_first_unless_it_brings_its_own(tmp_path: Path):
    order(tmp_path, "stop", "--reason", "benchmark until noon")
    again = order(tmp_path, "stop")
    assert again.exit_code == 0
    assert "already (stopped by " in again.stdout
    assert "benchmark until noon" in again.stdout
    assert "benchmark until noon" in TunerStopFile(tmp_path).read().message
    order(tmp_path, "stop", "--reason", "until tomorrow")
    assert TunerStopFile(tmp_path).read().why == "until tomorrow"


def test_resume_where_nothing_was_stopped_reports_it(tmp_path: Path):
    found = order(tmp_path, "resume")
    assert (found.exit_code, found.stdout, found.stderr.strip()) == (0, "", "It was not stopped.")


@pytest.mark.parametrize("body", [b"", b"\xff", b"[1]", b'{"why": 7}'])
def test_whatever_the_file_says_it_stops(tmp_path: Path, body: bytes):
    stop = TunerStopFile(tmp_path)
    stop.path.parent.mkdir(exist_ok=True)
    stop.path.write_bytes(body)
    found = stop.read()
    assert found is not None
    assert found.message == "stopped by an unknown user"


def test_stop_where_it_cannot_be_written_is_an_error_with_a_next_step(tmp_path: Path):
    found = order(tmp_path / "missing", "stop")
    assert found.exit_code == 1
    assert "cannot write" in found.stderr
    assert "--state-dir" in found.stderr
    assert run("tune", "stop", "--state-dir", "").exit_code == 2


def test_stop_with_settings_and_no_tuner_leads_to_restore(tmp_path: Path):
    SettingsRecord(tmp_path).add(limit(views.uuid(0)))
    found = order(tmp_path, "stop")
    assert found.exit_code == 3
    assert "run gpuwatch tune restore" in found.stderr
    assert "--all" not in found.stderr


def test_stop_waits_until_a_living_tuner_has_restored(tmp_path: Path):
    record = SettingsRecord(tmp_path)
    record.add(limit(views.uuid(0)))
    HeartbeatFile(tmp_path).beat("enforce", time.time())

    def give_back() -> None:
        until(lambda: TunerStopFile(tmp_path).read() is not None)
        record.settle(record.read().settings, 1, Trigger.TUNER)

    tuner = threading.Thread(target=give_back)
    tuner.start()
    found = order(tmp_path, "stop", "--wait", "60")
    tuner.join()
    assert (found.exit_code, record.read().settings) == (0, ())
    assert "Restored: 1 setting" in found.stdout


def test_what_a_tuner_restores_before_the_command_reads_again_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    record = SettingsRecord(tmp_path)
    record.add(limit(views.uuid(0)))
    HeartbeatFile(tmp_path).beat("enforce", time.time())
    put = TunerStopFile.put

    def put_and_obey(stop: TunerStopFile, request: StopRequest) -> None:
        put(stop, request)
        record.settle(record.read().settings, 1, Trigger.TUNER)

    monkeypatch.setattr(TunerStopFile, "put", put_and_obey)
    assert "Restored: 1 setting." in order(tmp_path, "stop").stdout


def test_a_tuner_that_does_not_restore_is_reported(tmp_path: Path):
    SettingsRecord(tmp_path).add(limit(views.uuid(0)))
    HeartbeatFile(tmp_path).beat("enforce", time.time())
    found = order(tmp_path, "stop", "--wait", "0")
    assert found.exit_code == 3
    assert "run gpuwatch tune restore --all" in found.stderr


def test_restoring_nothing_needs_no_driver(tmp_path: Path):
    found = run("--nvml-library", "/nowhere.so", "tune", "restore", "--state-dir", str(tmp_path))
    assert (found.exit_code, found.stdout) == (0, "")
    assert f"Nothing is set: {tmp_path / 'tuner/actuation.json'} is not there" in found.stderr


def test_restoring_touches_the_driver_of_this_machine_or_none(tmp_path: Path):
    SettingsRecord(tmp_path).add(limit(views.uuid(0)))
    place = ("--state-dir", str(tmp_path))
    assert run("--nvml-library", "/nowhere.so", "tune", "restore", *place).exit_code == 5
    assert len(SettingsRecord(tmp_path).read().settings) == 1


def test_restoring_under_a_living_tuner_leads_to_stop(tmp_path: Path):
    SettingsRecord(tmp_path).add(limit(views.uuid(0)))
    HeartbeatFile(tmp_path).beat("enforce", time.time())
    found = order(tmp_path, "restore")
    assert found.exit_code == 2
    assert "run gpuwatch tune stop" in found.stderr
    assert len(SettingsRecord(tmp_path).read().settings) == 1
