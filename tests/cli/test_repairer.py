"""`gpuwatch repairer` as a command: off by default, alone, and what it prints."""

import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.repair.reset import record_file
from tests.cli.commands import run, serving
from tests.model import views


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o750)
    return folder


def test_it_is_off_by_default(state: Path) -> None:
    result = run("repairer", "--state-dir", str(state))
    assert result.exit_code == 0
    assert "repair.mode is off" in result.stderr
    assert list(state.iterdir()) == []


def test_a_second_repairer_ends_at_once(state: Path) -> None:
    with record_file(state).lock(0.0) as alone, serving(views.healthy()) as agent:
        assert alone
        command = ("--mode", "enforce", "--once", "--state-dir", str(state), "--agent", str(agent))
        result = run("repairer", *command)
    assert result.exit_code == 1
    assert f"another repairer runs; it holds {state}/repair.lock, or that cannot be opened" in result.stderr


def test_it_prints_why_a_gpu_is_not_reset(state: Path, tmp_path: Path) -> None:
    view = views.failing()
    finding = replace(view.judgement.findings[0], check="xid_fatal")
    host = replace(view.snapshot.host, boot_id="boot-1")
    view = replace(
        view,
        snapshot=replace(view.snapshot, host=host),
        judgement=replace(view.judgement, findings=(finding,)),
    )
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("boot-1\n")
    config = tmp_path / "gpuwatch.yaml"
    config.write_text(f"sources: {{proc: {tmp_path}/proc}}\nstate_dir: {state}\n")
    with serving(replace(view, snapshot=replace(view.snapshot, at=time.time()))) as agent:
        command = ("repairer", "--mode", "observe", "--once", "--agent", str(agent))
        result = run("--config", str(config), *command)
    assert result.exit_code == 0, result.stderr
    assert "GPU 1: waiting: the remediator does not hold this node's quarantine" in result.stdout
