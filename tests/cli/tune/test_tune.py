"""`gpuwatch tune`: what a tuner that answers is quoted with, what is judged where none does, and how each ends."""

import json
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.consents.file import ConsentsFile
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.tuning.model.status import ObstacleReason, TunerState
from gpuwatch.tuning.service.state_dir import FRESH_SECONDS, TunerStatus
from tests.cli.commands import ask, run
from tests.cli.tune import tuner_states
from tests.model import views
from tests.tuning.service.tuning import limit


def reported(place: Path, state: TunerState, ago: float = 0.0) -> tuple[str, str]:
    """A tuner has said it; the options that lead there."""
    TunerStatus(place).write(replace(state, at=time.time() - ago))
    return "--state-dir", str(place)


def status(view, *args: str, code: int = 0) -> dict:
    found = ask(view, "tune", "status", "-o", "json", *args)
    assert found.exit_code == code, found.stderr
    return json.loads(found.stdout)


def items(view, *args: str) -> dict[int, dict]:
    return {item["gpu"]: item for item in status(view, *args)["items"]}


def test_every_gpu_is_judged_with_its_reason_where_no_tuner_answers(tmp_path: Path):
    place = ("--state-dir", str(tmp_path))
    assert ObstacleReason.MIG in [item["reason"] for item in items(views.mig(), *place).values()]
    lost = items(views.failing(), *place)[2]
    assert (lost["state"], lost["reason"], lost["obstacles"][0]["reason"]) == (
        "refused",
        ObstacleReason.LOST,
        ObstacleReason.LOST,
    )
    found = ask(views.failing(), "tune", "status", *place)
    assert "no tuner answers here" in found.stderr
    assert status(views.failing(), *place)["tuner"] is False


def test_nobody_who_has_not_agreed_would_be_tuned_where_no_tuner_answers(tmp_path: Path):
    ConsentsFile(tmp_path).write(tuner_states.consents())
    train, chat, free = status(tuner_states.tunable(), "--state-dir", str(tmp_path))["items"]
    assert (train["state"], train["slowdown_bound"], train["note"]) == ("eligible", 0.03, "")
    assert (chat["state"], chat["reason"]) == ("refused", ObstacleReason.OPTED_OUT)
    assert free["state"] == "idle"


def test_what_a_tuner_says_is_reported_in_base_units(tmp_path: Path):
    found = status(views.healthy(), *reported(tmp_path, tuner_states.enforcing()))
    held, tried, idle = found["items"]
    assert (found["tuner"], found["mode"], found["guard"], found["stopped"]) == (True, "enforce", True, None)
    assert found["budget"]["limits"] == 1795.0
    assert (held["clock_cap"], held["slowdown"], held["slowdown_upper"]) == (1.41e9, 0.031, 0.0462)
    assert (held["slowdown_bound"], held["saved"], held["joules_saved"]) == (0.05, 0.112, 43_560.0)
    assert (tried["state"], tried["slowdown"], tried["users"]) == ("searching", None, [tuner_states.CHAT])
    assert (idle["state"], idle["clock_cap"]) == ("idle", None)


@pytest.mark.parametrize("ago", [FRESH_SECONDS + 5, 86_400.0])
def test_a_tuner_that_has_been_silent_is_not_quoted(tmp_path: Path, ago: float):
    place = reported(tmp_path, tuner_states.enforcing(), ago)
    found = ask(views.healthy(), "tune", "status", "-o", "json", *place)
    assert "the tuner's last state is from" in found.stderr
    assert {item["clock_cap"] for item in json.loads(found.stdout)["items"]} == {None}


def test_the_state_of_another_node_is_not_this_ones(tmp_path: Path):
    state = tuner_states.enforcing()
    foreign = replace(state, gpus=tuple(replace(gpu, uuid=f"{gpu.uuid}-x") for gpu in state.gpus))
    assert status(views.healthy(), *reported(tmp_path, foreign))["tuner"] is False


def test_a_tuner_is_quoted_though_no_agent_answers(tmp_path: Path):
    place = reported(tmp_path, tuner_states.enforcing())
    found = run("--source", "agent:/nowhere.sock", "tune", "status", *place)
    assert found.exit_code == 0
    assert "1410 MHz" in found.stdout
    assert "this is the tuner's own state" in found.stderr
    assert run("--source", "agent:/nowhere.sock", "tune", "status", "--gpu", "0", *place).exit_code == 1


def test_trouble_is_reported_first_and_ends_in_3(tmp_path: Path):
    found = ask(views.healthy(), "tune", "status", *reported(tmp_path, tuner_states.troubled()))
    assert found.exit_code == 3
    marked = [line for line in found.stdout.splitlines() if line.startswith("! ")]
    for message in ("gpuwatch tune resume", "gpuwatch tuner --guard", "gpuwatch tuner --consents", "Permission denied"):
        assert any(message in line for line in marked), message


def test_a_configuration_that_the_tuner_refused_is_shown_and_ends_in_3(tmp_path: Path):
    refused = replace(tuner_states.enforcing(), config_error="gpuwatch.yaml, line 3: tuning.mode: unknown value")
    found = ask(views.healthy(), "tune", "status", *reported(tmp_path, refused))
    assert found.exit_code == 3
    assert "! configuration: gpuwatch.yaml, line 3: tuning.mode" in found.stdout


def test_a_silent_guard_matters_only_where_something_may_be_set(tmp_path: Path):
    quiet = replace(tuner_states.enforcing(), guard=False)
    status(views.healthy(), *reported(tmp_path, quiet), code=3)
    status(views.healthy(), *reported(tmp_path, replace(quiet, mode="observe")))


def test_settings_that_nobody_answers_for_end_in_3(tmp_path: Path):
    SettingsRecord(tmp_path).add(limit(views.uuid(0), 500.0))
    place = ("--state-dir", str(tmp_path))
    (found,) = status(views.healthy(), *place, code=3)["items"][0]["settings"]
    assert (found["knob"], found["original"], found["applied"]) == ("power_limit", 700.0, 500.0)
    assert "500 W" in ask(views.healthy(), "tune", "status", *place).stdout
    status(views.healthy(), *reported(tmp_path, tuner_states.enforcing()))


def test_only_the_gpus_that_were_asked_for(tmp_path: Path):
    assert set(items(views.healthy(), "--gpu", "1", "--state-dir", str(tmp_path))) == {1}
    assert set(items(views.healthy(), "--gpu", "1", *reported(tmp_path, tuner_states.enforcing()))) == {1}


def test_a_record_that_cannot_be_understood_is_3_and_the_gpus_are_reported(tmp_path: Path):
    record = SettingsRecord(tmp_path)
    record.path.parent.mkdir()
    record.path.write_text("{")
    found = ask(views.healthy(), "tune", "status", "--state-dir", str(tmp_path))
    assert found.exit_code == 3
    assert "what gpuwatch has set is not known" in found.stderr
    assert len(found.stdout.splitlines()) > 1


@pytest.mark.parametrize(
    ("message", "code", "reported"),
    [
        (("tuner", "--mode", "tune"), 2, "tuning.mode"),
        (("tuner", "--state-dir", ""), 2, "name it with --state-dir"),
        (("--source", "agent", "tuner", "--guard"), 2, "leave it out"),
        (("--source", "sim:/nowhere/node", "tuner", "--guard"), 5, "try `gpuwatch sim run`"),
        (("--source", "sim:/nowhere/node", "tuner"), 5, "try `gpuwatch sim run`"),
        (("--nvml-library", "/nowhere.so", "tuner", "--guard"), 5, "cannot load the NVML library"),
    ],
)
def test_what_a_tuner_or_guard_cannot_do_is_reported_at_once(message, code, reported):
    found = run(*message)
    assert (found.exit_code, found.stdout) == (code, "")
    assert reported in found.stderr.splitlines()[-1]


def test_one_reason_of_many_gpus_is_a_sentence_once(tmp_path: Path):
    """Whoever uses them: the names stand beside it."""
    place = ("--state-dir", str(tmp_path))
    screen = ask(views.healthy(), "tune", "status", *place, "-o", "wide").stdout
    reasons = [line for line in screen.splitlines() if "is not known" in line]
    assert len(reasons) == 1
    assert f"as GPU {reasons[0].split()[0]}" in screen
    answered = [item for item in items(views.healthy(), *place).values() if item["reason"] == "no_consent"]
    assert len(answered) > 1
    assert all("is not known" in item["obstacles"][0]["message"] for item in answered), "a program gets each"
