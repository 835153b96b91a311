"""`gpuwatch describe gpu`: a GPU that gpuwatch's own tuner slows down says so, before anybody seeks another cause."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.model.view import GpuRepair, RepairerStatus
from gpuwatch.tuning.actuation.record import SettingsRecord
from tests.cli.commands import ask, run
from tests.model import views
from tests.tuning.service.tuning import clocks, limit

CAPTURE = Path(__file__).parents[2] / "captures/h100__590.48.01.txt"


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        (clocks(views.uuid(0)), "clock at most 1200 MHz; `gpuwatch tune status` shows why"),
        (limit(views.uuid(0)), "power limit 500 W, before 700 W"),
    ],
)
def test_what_the_tuner_has_set_is_reported_of_the_gpu_it_is_set_on(tmp_path: Path, setting, says: str):
    SettingsRecord(tmp_path).add(setting)
    place = ("--state-dir", str(tmp_path))
    line = next(
        line for line in ask(views.healthy(), "describe", "gpu", "0", *place).stdout.splitlines() if says in line
    )
    assert line.startswith("  Set by gpuwatch's tuner ")
    assert "tuner" not in ask(views.healthy(), "describe", "gpu", "1", *place).stdout
    items = json.loads(ask(views.healthy(), "describe", "gpu", "0", "-o", "json", *place).stdout)["items"]
    assert [each["applied"] for each in items[0]["settings"]] == [setting.applied[0]]


def test_what_the_repairer_reports_is_reported_of_its_gpu(tmp_path: Path):
    waits = GpuRepair(gpu=views.uuid(0), state="waiting", message="allocated to ml/serve-0")
    view = replace(views.healthy(), repairer=RepairerStatus(at=views.AT, mode="enforce", gpus=(waits,)))
    place = ("--state-dir", str(tmp_path))
    lines = ask(view, "describe", "gpu", "0", *place).stdout.splitlines()
    assert next(line.split(maxsplit=1)[1] for line in lines if "Repairer" in line) == "waiting: allocated to ml/serve-0"
    assert "Repairer" not in ask(view, "describe", "gpu", "1", *place).stdout
    items = json.loads(ask(view, "describe", "gpu", "0", "-o", "json", *place).stdout)["items"]
    assert items[0]["repair"]["state"] == "waiting"


def test_a_record_that_cannot_be_read_is_reported_and_the_gpu_is_reported(tmp_path: Path):
    (tmp_path / "tuner").mkdir()
    (tmp_path / "tuner/actuation.json").write_text("{")
    found = ask(views.healthy(), "describe", "gpu", "0", "--state-dir", str(tmp_path))
    assert found.exit_code == 0
    assert "the settings made by gpuwatch are not known" in found.stderr


def test_a_reading_that_the_driver_does_not_give_shows_why(tmp_path: Path):
    view = views.healthy()
    why = {"clock_events.seconds.hw_thermal_slowdown": "its number is not known", "ecc.tpc_repair_pending": "too old"}
    gpus = tuple(replace(gpu, unsupported=tuple(why), why_absent=why) for gpu in view.snapshot.gpus)
    view = replace(view, snapshot=replace(view.snapshot, gpus=gpus))
    lines = ask(view, "describe", "gpu", "0", "--state-dir", str(tmp_path)).stdout.splitlines()
    found = {line[2:32].strip(): line[32:] for line in lines if line.startswith("  ")}
    assert found["TPC repair pending"] == "too old"
    assert found["hw_thermal_slowdown"].endswith("its number is not known")


def test_a_recording_is_not_held_against_what_is_set_now(tmp_path: Path):
    (tmp_path / "tuner").mkdir()
    (tmp_path / "tuner/actuation.json").write_text("{")
    found = run("--source", f"capture:{CAPTURE}", "describe", "gpu", "0", "--state-dir", str(tmp_path))
    assert (found.exit_code, found.stderr) == (0, "")
