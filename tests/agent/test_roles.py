"""The agent shows what remediator and tuner wrote about themselves, and nothing of one that is gone."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.agent.page import live
from gpuwatch.agent.roles import FRESH_SECONDS, REMEDIATOR_STATE, role_reports
from gpuwatch.model.recent import Recent
from gpuwatch.model.view import RoleReport
from gpuwatch.remediation.service.status import RemediatorStatusFile, RunningRemediator
from gpuwatch.tuning.model.status import GpuTuning, TunerState, TuningState
from gpuwatch.tuning.service.state_dir import TunerStatus
from tests.model import views


def tuning(index: int, **held: float) -> GpuTuning:
    return GpuTuning(index=index, uuid=f"GPU-{index}", state=TuningState.OBSERVING, **held)


@pytest.fixture
def state_dir(tmp_path: Path) -> str:
    running = RunningRemediator(node="n", mode="enforce", at=1000.0, quarantined=True)
    RemediatorStatusFile(str(tmp_path)).write(running)
    gpus = (tuning(0), tuning(1, clock_cap=1.2e9), tuning(2, power_limit=300.0))
    TunerStatus(tmp_path).write(TunerState(mode="observe", at=1030.0, gpus=gpus))
    return str(tmp_path)


def test_what_they_wrote_is_read_while_it_is_fresh(state_dir: str) -> None:
    remediator = RoleReport(role="remediator", mode="enforce", at=1000.0, summary="the node is quarantined")
    tuner = RoleReport(role="tuner", mode="observe", at=1030.0, summary="caps on GPU 1, 2")
    assert role_reports(state_dir, 1040.0) == (remediator, tuner)
    assert role_reports(state_dir, 1001.0 + FRESH_SECONDS) == (tuner,)
    assert role_reports(state_dir, 1031.0 + FRESH_SECONDS) == ()
    assert role_reports("", 1040.0) == ()


def test_who_stopped_the_tuner_is_reported(tmp_path: Path) -> None:
    TunerStatus(tmp_path).write(TunerState(mode="enforce", at=1.0, stopped="ann: maintenance"))
    assert [each.summary for each in role_reports(str(tmp_path), 1.0)] == ["stopped: ann: maintenance"]


def test_a_file_that_is_damaged_says_nothing_and_hides_no_other(state_dir: str) -> None:
    (Path(state_dir) / REMEDIATOR_STATE).write_text('{"schema": 1, "content": {"mode": 7}}')
    assert [each.role for each in role_reports(state_dir, 1040.0)] == ["tuner"]


def test_the_page_names_them(state_dir: str) -> None:
    told = live(replace(views.healthy(), roles=role_reports(state_dir, 1040.0)), Recent())
    assert "remediator: enforce (the node is quarantined), tuner: observe (caps on GPU 1, 2)" in told
