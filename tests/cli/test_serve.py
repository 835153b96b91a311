"""`gpuwatch serve`: the pages of a recording, from another machine than this one."""

import sys
from pathlib import Path

import pytest

from tests.cli.commands import run
from tests.e2e.processes import ROOT, fetch, running
from tests.ports import free_port
from tests.waiting import until

CAPTURE = ROOT / "tests/captures/h100__590.48.01.txt"
OPENS = """
import os, sys
log = open(os.environ["OPENED"], "a", buffering=1)
NAMES = ("open", "os.listdir", "os.scandir")
sys.addaudithook(lambda name, args: log.write(f"{args[0]}\\n") if name in NAMES else None)
"""
OF_THIS_MACHINE = (
    "/proc/driver",
    "/sys/",
    "/etc/machine-id",
    "/proc/sys/kernel/random",
    "/dev/kmsg",
    "/dev/nvidia",
    "/var/lib",
    "/run/gpuwatch",
)


@pytest.mark.parametrize("source", [(), ("--source", "nvml"), ("--source", "agent")])
def test_without_a_recording_it_says_what_else_to_do(source):
    shown = run(*source, "serve")
    assert shown.exit_code == 2
    assert "serve shows recordings only; " in shown.stderr
    assert "--source capture:FILE" in shown.stderr


def test_a_file_that_is_no_recording_is_refused(tmp_path: Path):
    file = tmp_path / "notes.txt"
    file.write_text("no recording")
    shown = run("--source", f"capture:{file}", "serve")
    assert shown.exit_code == 2
    assert str(file) in shown.stderr


@pytest.mark.slow  # two processes; the tests above hold what it refuses, tests/agent/test_live_page.py the page
def test_its_page_is_the_recordings_and_no_file_that_reports_this_machine_is_opened(tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(OPENS)
    opened, port = tmp_path / "opened", free_port()
    env = {"PYTHONPATH": str(tmp_path), "OPENED": str(opened), "NODE_NAME": "this-machine"}
    config = tmp_path / "gpuwatch.yaml"
    config.write_text("agent: {hosts: [proxy.example]}\n")
    command = [sys.executable, "-m", "gpuwatch", "--config", str(config), "--source", f"capture:{CAPTURE}", "serve"]
    with running([*command, "--listen", f"127.0.0.1:{port}"], tmp_path / "log", env):
        page = until(lambda: fetch(f"http://127.0.0.1:{port}/"))
        metrics = fetch(f"http://127.0.0.1:{port}/metrics")
        assert fetch(f"http://127.0.0.1:{port}/", {"Host": "proxy.example"}), (
            "`agent.hosts` counts, as a refusal advises"
        )
        assert fetch(f"http://127.0.0.1:{port}/", {"Host": "other.example"}) is None
        events = fetch(f"http://127.0.0.1:{port}/api/v1/events")
    assert CAPTURE.name in page.decode()
    assert b"this-machine" not in page
    assert b'model="NVIDIA H100 80GB HBM3"' in metrics
    assert events is not None
    names = opened.read_text().splitlines()
    assert str(CAPTURE) in names, "the hook works, also in the reader"
    assert [name for name in names if name.startswith(OF_THIS_MACHINE)] == []
