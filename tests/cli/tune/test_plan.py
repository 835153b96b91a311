"""`gpuwatch tune plan`: the tuner's own rules about a node of our making, whatever mode is configured."""

import json
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.consents.file import ConsentsFile
from gpuwatch.sim.world import World
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.tuning.model.setting import Setting
from gpuwatch.tuning.model.status import ObstacleReason
from gpuwatch.tuning.service.state_dir import StopRequest, TunerStatus, TunerStopFile
from tests.cli.commands import ask, run
from tests.cli.tune import tuner_states
from tests.model import views


def plan(place: Path, tuning: str = "{}", view=None, code: int = 0) -> dict:
    config = place / "gpuwatch.yaml"
    config.write_text(f"tuning: {tuning}")
    message = ("--config", str(config), "tune", "plan", "-o", "json", "--state-dir", str(place))
    found = ask(view or tuner_states.tunable(), *message)
    assert found.exit_code == code, found.stderr
    return json.loads(found.stdout)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    ConsentsFile(tmp_path).write(tuner_states.consents())
    return tmp_path


@pytest.mark.parametrize("mode", ["off", "observe", "enforce"])
def test_the_plan_is_that_of_enforce_whatever_is_configured(place: Path, mode: str):
    found = plan(place, f"{{mode: '{mode}'}}")
    assert found["mode"] == mode
    assert [item["would_tune"] for item in found["items"]] == [True, False, False]


def test_who_agrees_to_what_is_reported(place: Path):
    train, chat, free = plan(place)["items"]
    assert (train["mode"], train["bound"], train["work_class"]) == ("enforce", 0.03, "batch")
    assert "namespace ml-research" in train["decided_by"]
    assert (chat["mode"], chat["obstacles"][0]["reason"]) == ("off", ObstacleReason.OPTED_OUT)
    assert "pod serving/chat-0" in chat["decided_by"]
    assert (free["users"], free["obstacles"]) == ([], [])


def test_the_first_probe_is_a_clock_between_the_lowest_and_the_top(place: Path):
    train = plan(place)["items"][0]
    assert train["knob"] == "locked_clocks"
    assert train["top"] / 2 <= train["lowest"] <= train["first"] < train["top"] == 1.98e9
    assert plan(place, "{min_clock_fraction: 0.7}")["items"][0]["lowest"] >= 0.7 * 1.98e9


def test_nobody_who_was_not_asked_is_tuned(tmp_path: Path):
    found = plan(tmp_path, "{pods: enforce, work_class: batch}")
    assert not any(item["would_tune"] for item in found["items"])
    assert found["items"][0]["obstacles"][0]["reason"] == ObstacleReason.NO_CONSENT


def test_a_slow_agent_and_a_stop_stand_against_all(place: Path):
    TunerStopFile(place).put(StopRequest(by="ada", why="benchmark"))
    found = plan(place, view=tuner_states.tunable(interval=5.0))
    reasons = [{each["reason"] for each in item["obstacles"]} for item in found["items"]]
    assert all({ObstacleReason.STOPPED, ObstacleReason.SLOW_VIEW} <= each for each in reasons)


def test_what_stands_against_all_is_reported_once_above_and_no_consent_is_reported_as_a_reason(place: Path):
    message = ("tune", "plan", "--state-dir", str(place))
    found = ask(tuner_states.tunable(interval=5.0), *message, env={"COLUMNS": "160"}).stdout
    assert found.count("set agent.interval to 1") == 1
    train = next(line for line in found.splitlines() if line.lstrip().startswith("0"))
    assert train.endswith("nothing but the above")


def test_the_mode_is_that_of_a_tuner_that_answers_and_so_is_its_guard(place: Path):
    TunerStatus(place).write(replace(tuner_states.enforcing(), at=time.time(), guard=False))
    found = plan(place, "{mode: observe}")
    assert found["mode"] == "enforce"
    assert found["items"][0]["obstacles"][0]["reason"] == ObstacleReason.NO_GUARD


def test_the_interval_of_an_agent_is_not_guessed_where_none_was_asked(tmp_path: Path):
    with World("tuning", tmp_path / "node") as world:
        found = run("--source", f"sim:{world.directory}", "tune", "plan", "-o", "json")
    assert "no agent was read" in found.stderr
    reasons = {each["reason"] for item in json.loads(found.stdout)["items"] for each in item["obstacles"]}
    assert ObstacleReason.SLOW_VIEW not in reasons


def test_a_budget_is_shared_among_those_that_may_be_written(place: Path):
    found = plan(place, "{node_budget_watts: 1500}")
    assert found["budget"]["budget"] == 1500.0
    limits = [item["budget_limit"] for item in found["items"]]
    assert limits[1] is None, "who opts out keeps its limit"
    assert 200.0 <= sum(watts for watts in limits if watts) <= 1500.0 - 700.0
    assert plan(place)["budget"] is None


def test_where_a_tuner_answers_its_own_shares_are_reported(place: Path):
    state = tuner_states.enforcing()
    limited = tuple(replace(gpu, power_limit=600.0 - gpu.index) for gpu in state.gpus)
    TunerStatus(place).write(replace(state, at=time.time(), gpus=limited))
    found = plan(place, "{node_budget_watts: 1800}")
    assert [item["budget_limit"] for item in found["items"]] == [600.0, 599.0, 598.0]
    assert (found["budget"]["how"], found["budget"]["limits"]) == ("roomy", 1795.0)
    assert plan(place, "{node_budget_watts: 1500}")["budget"]["how"] != "roomy", "another budget is shared anew"


def test_limits_that_gpuwatch_has_set_are_not_taken_for_the_boards_own(place: Path):
    view = tuner_states.tunable()
    first, *others = view.snapshot.gpus
    held = replace(first, power=replace(first.power, limit_configured=250.0, limit_enforced=250.0))
    mine = Setting(
        uuid=views.uuid(0), knob="power_limit", original=700.0, applied=(250.0,), at=1.0, boot_id="b", driver="d"
    )
    SettingsRecord(place).add(mine)
    found = plan(
        place, "{node_budget_watts: 2050}", replace(view, snapshot=replace(view.snapshot, gpus=(held, *others)))
    )
    assert found["budget"]["how"] != "unlimited", "three boards of 700 W do not fit"
    assert found["items"][0]["budget_limit"] > 250.0


def test_a_gpu_that_does_not_say_what_it_may_have_shares_nothing(place: Path):
    view = tuner_states.tunable()
    first = view.snapshot.gpus[0]
    blind = replace(first, power=replace(first.power, limit_min=None))
    gpus = (blind, *view.snapshot.gpus[1:])
    found = plan(place, "{node_budget_watts: 1500}", replace(view, snapshot=replace(view.snapshot, gpus=gpus)))
    assert found["budget"]["how"] == "waiting"
    assert {item["budget_limit"] for item in found["items"]} == {None}


def test_a_lost_gpu_has_its_row_and_its_reason(place: Path):
    rows = {item["gpu"]: item for item in plan(place, view=views.failing())["items"]}
    assert ObstacleReason.LOST in [each["reason"] for each in rows[2]["obstacles"]]


def test_consents_that_cannot_be_read_are_reported(place: Path):
    ConsentsFile(place).path.write_text("{")
    found = ask(tuner_states.tunable(), "tune", "plan", "--state-dir", str(place))
    assert found.exit_code == 0
    assert "what pods consent to is not known" in found.stderr
