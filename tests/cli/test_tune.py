"""`gpuwatch tune` and the refusals of `gpuwatch tuner`: what is said of each GPU, and how it ends."""

import json
from pathlib import Path

import pytest

from gpuwatch.model.tuner_state import Reason
from gpuwatch.sinks.settings_record import SettingsRecord
from tests.cli import views
from tests.cli.conftest import ask, run
from tests.roles.tuning import limit


def told(view, *args: str) -> dict[int, dict]:
    found = ask(view, "tune", "status", "-o", "json", *args)
    assert found.exit_code == 0, found.stderr
    return {item["gpu"]: item for item in json.loads(found.stdout)["items"]}


def test_every_gpu_is_told_with_its_reason(tmp_path: Path):
    place = ("--state-dir", str(tmp_path))
    assert Reason.MIG in [item["reason"] for item in told(views.mig(), *place).values()]
    lost = told(views.failing(), *place)[2]
    assert (lost["state"], lost["reason"], lost["obstacles"][0]["reason"]) == ("refused", Reason.LOST, Reason.LOST)


def test_only_the_gpus_that_were_asked_for(tmp_path: Path):
    assert set(told(views.healthy(), "--gpu", "1", "--state-dir", str(tmp_path))) == {1}


def test_what_is_set_is_shown_in_base_units(tmp_path: Path):
    SettingsRecord(tmp_path).add(limit(views.uuid(0), 500.0))
    (found,) = told(views.healthy(), "--state-dir", str(tmp_path))[0]["settings"]
    assert (found["knob"], found["original"], found["applied"]) == ("power_limit", 700.0, 500.0)
    assert "500 W" in ask(views.healthy(), "tune", "status", "--state-dir", str(tmp_path)).stdout


def test_a_record_that_cannot_be_understood_is_3_and_the_gpus_are_told(tmp_path: Path):
    SettingsRecord(tmp_path).path.write_text("{")
    found = ask(views.healthy(), "tune", "status", "--state-dir", str(tmp_path))
    assert found.exit_code == 3
    assert "what gpuwatch has set is not known" in found.stderr
    assert len(found.stdout.splitlines()) > 1


def test_restoring_nothing_needs_no_driver(tmp_path: Path):
    found = run("--nvml-library", "/nowhere.so", "tune", "restore", "--state-dir", str(tmp_path))
    assert (found.exit_code, found.stdout) == (0, "")
    assert "Nothing is set" in found.stderr


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("tuner", "--mode", "enforce"), 2, "enforce is not possible yet"),
        (("tuner", "--mode", "tune"), 2, "tuning.mode"),
        (("tuner", "--state-dir", ""), 2, "name it with --state-dir"),
        (("--source", "sim", "tuner", "--guard"), 2, "leave it out"),
        (("--nvml-library", "/nowhere.so", "tuner", "--guard"), 5, "cannot load the NVML library"),
    ],
)
def test_what_a_tuner_or_guard_cannot_do_is_said_at_once(words, code, says):
    found = run(*words)
    assert (found.exit_code, found.stdout) == (code, "")
    assert says in found.stderr.splitlines()[-1]


def test_restoring_touches_the_driver_of_this_machine_or_none(tmp_path: Path):
    SettingsRecord(tmp_path).add(limit(views.uuid(0)))
    place = ("--state-dir", str(tmp_path))
    assert run("--source", "sim", "tune", "restore", *place).exit_code == 2
    assert run("--nvml-library", "/nowhere.so", "tune", "restore", *place).exit_code == 5
    assert len(SettingsRecord(tmp_path).read().settings) == 1
