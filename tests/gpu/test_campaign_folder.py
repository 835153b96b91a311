"""The whole campaign from the folder alone: packed, then run without the repository, a network or privileges."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.fakes.libcuda import FakeCuda
from tests.fakes.libnvml import FakeDriver, FakeProcess
from tests.gpu.campaign.__main__ import STAGES

ROOT = Path(__file__).resolve().parents[2]
DUMP = ROOT / "tests/captures/h100__590.48.01.txt"
DUMPED_GPU = "GPU-00000000-0000-0000-0000-000000000000"
GRAPHICS, SM, TENSOR, DRAM, FP32 = 1, 2, 5, 10, 12  # nvmlGpmMetricId_t
AT_REST = dict.fromkeys((GRAPHICS, SM, TENSOR, DRAM, FP32), 0.0)
BUSY: dict[str, dict[int, float]] = {
    "fp32": {GRAPHICS: 100, SM: 100, FP32: 92.7},
    "tensor": {GRAPHICS: 100, SM: 100, TENSOR: 85},
    "wgmma": {GRAPHICS: 100, SM: 100, TENSOR: 89.6},
    "copy": {GRAPHICS: 100, SM: 100, DRAM: 86.5},
}
"""GPM of an H100 at 1,755 MHz while each kernel runs, with the fake CUDA's times for them."""

ORDINARY = ("unshare", "--map-root-user", "--net", "sh", "-c",
            'ip link set lo up && exec unshare --user --map-user=1000 "$@"', "sh")  # fmt: skip
"""Runs a command without a network and without capabilities."""

HAS_NAMESPACES = (
    shutil.which("ip") and not subprocess.run([*ORDINARY, "true"], capture_output=True, check=False).returncode
)


class Machine:
    """A machine with one H100: the fake driver follows what the fake CUDA's programs do, as hardware would."""

    def __init__(self, place: Path, driver: FakeDriver, cuda: FakeCuda) -> None:
        self.driver, self._cuda, self._end = driver, cuda, threading.Event()
        self.uuid = str(driver.get(0, "uuid"))
        self.bin = place / "bin"
        self.bin.mkdir()
        (place / "dump").write_text(DUMP.read_text().replace(DUMPED_GPU, self.uuid))
        (self.bin / "nvidia-smi").write_text(f"#!/bin/sh\nexec cat {place / 'dump'}\n")
        (self.bin / "nvidia-smi").chmod(0o755)
        folders = f"{driver.library.parent}:{cuda.library.parent}"
        own = {
            **driver.env,
            **cuda.env,
            "LD_LIBRARY_PATH": folders,
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "HOME": "/",
            "TMPDIR": str(place),
        }
        self.env = {
            name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GPUWATCH"))
        } | own

    @contextmanager
    def follows(self) -> Iterator[None]:
        """The driver says what the running load means."""
        thread = threading.Thread(target=self._follow)
        thread.start()
        try:
            yield
        finally:
            self._end.set()
            thread.join()

    def _follow(self) -> None:
        """A machine with other work to do gives the kernels less time: GPM counts that in which one runs."""
        seen, history = "", deque([(time.monotonic(), 0.0)], maxlen=10)
        while not self._end.wait(0.1):
            pid, load = next(self._loads(), (0, ""))
            history.append((time.monotonic(), self._cuda.load_seconds()))
            if load:
                (start, before), (end, after) = history[0], history[-1]
                self._show(pid, load, min(1.0, (after - before) / max(end - start, 0.05)))
            elif seen:
                self._rest()
            if load != seen or history[-1][1] == history[0][1]:  # nothing ran: what comes is not averaged with it
                seen = load
                history = deque(list(history)[-1:], maxlen=10)

    def _loads(self) -> Iterator[tuple[int, str]]:
        for process in psutil.process_iter(["cmdline", "environ"]):
            command = process.info["cmdline"] or []
            ours = (process.info["environ"] or {}).get("CUDA_VISIBLE_DEVICES") == self.uuid
            if "tests.gpu.campaign.load" in command and ours:
                yield process.pid, " ".join(command[command.index("tests.gpu.campaign.load") + 1 :: 2])

    def _show(self, pid: int, load: str, busy: float) -> None:
        kernel, share = load.split()
        shares = {metric: busy * (1.0 if metric == GRAPHICS else float(share)) for metric in BUSY[kernel]}
        self.driver.set_gpm(0, AT_REST | {metric: value * shares[metric] for metric, value in BUSY[kernel].items()})
        watts = int(600_000 * float(share))
        self.driver.set(0, util_gpu=100, clock_mhz=(1755, 1755, 2619, 1500), power_mw=watts, memory_used=1 << 30)
        self.driver.set_processes(0, [FakeProcess(pid=pid, memory=600 << 20, sm=99)])

    def _rest(self) -> None:
        self.driver.set_gpm(0, AT_REST)
        self.driver.set(0, util_gpu=0, clock_mhz=(345, 345, 2619, 765), power_mw=70_000, memory_used=0)
        self.driver.set_processes(0, [])


@contextmanager
def machine(place: Path) -> Iterator[Machine]:
    """Driver, CUDA and nvidia-smi of one GPU."""
    with FakeDriver(place / "driver", gpus=1) as driver, FakeCuda(place / "cuda", [str(driver.get(0, "uuid"))]) as cuda:
        here = Machine(place, driver, cuda)
        with here.follows():
            yield here
        assert driver.sets() == (), "the campaign only reads"
        assert (cuda.misuses(), cuda.leaks()) == ([], [])


def differing(report: dict[str, Any], stages: set[str], within: float = 0.0) -> list[dict[str, Any]]:
    """Lines of these stages that differ, but for numbers no farther than `within` from their range."""
    lines = [line for stage in report["stages"] if stage["name"] in stages for line in stage["lines"]]
    return [line for line in lines if line["status"] == "differs" and _distance(line) > within]


def _distance(line: dict[str, Any]) -> float:
    low, separator, high = str(line["expected"]).partition(" to ")
    return max(float(low) - line["measured"], line["measured"] - float(high)) if separator else float("inf")


def test_quick_stages_report_what_the_fake_machine_says(tmp_path: Path) -> None:
    """The campaign's own runner, from the tree: machine, fields and nvidia-smi."""
    work, out = tmp_path / "work", tmp_path / "out"
    work.mkdir()
    out.mkdir()
    with machine(tmp_path) as here:
        env = here.env | {"GPUWATCH_CAMPAIGN_STAGES": "machine,fields,nvidia_smi", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "tests.gpu.campaign", str(out), str(work)]
        done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((out / "report.json").read_text())
    assert [(stage["name"], stage["outcome"]) for stage in report["stages"]] == [
        ("machine", "done"),
        ("fields", "done"),
        ("nvidia_smi", "done"),
        ("guard", "done"),
    ]
    assert differing(report, {"machine", "fields"}) == []
    lines = {line["what"]: line for line in report["stages"][2]["lines"]}
    assert lines["nvidia-smi-q.txt: GPU 0: identity.serial"]["status"] == "differs", "the dump is of another H100"
    assert lines["nvidia-smi-q.txt: GPU 0: power.limit_default"]["status"] == "pass"
    with tarfile.open(out / "captures.tgz") as archive:
        kept = archive.extractfile("captures/nvidia-smi-q.txt")
        assert kept is not None
        assert here.uuid.encode() not in kept.read()


@pytest.mark.slow  # the runner and two of its stages: test_quick_stages_report_what_the_fake_machine_says
@pytest.mark.skipif(not HAS_NAMESPACES, reason="no user and network namespaces, or no ip(8), here")
def test_the_folder_runs_alone(tmp_path: Path) -> None:
    """Packed for this Python, on a machine without network and privileges: every stage ends, the loads agree."""
    folder, out = tmp_path / "folder", tmp_path / "out"
    version = f"3.{sys.version_info.minor}"
    subprocess.run([sys.executable, ROOT / "scripts/gpu-campaign", folder, "--python", version], check=True)
    assert sum(path.stat().st_size for path in folder.rglob("*")) < 64 << 20
    with machine(tmp_path) as here:
        env = here.env | {
            "GPUWATCH_CAMPAIGN_COST": "5",
            "GPUWATCH_CAMPAIGN_SAMPLES": "2",
            "GPUWATCH_CAMPAIGN_WINDOW": "3",
            "GPUWATCH_CAMPAIGN_SLOW_MS": "30000",  # how long a call takes here tells of this machine's load only
        }
        done = subprocess.run(
            [*ORDINARY, folder / "run", out], env=env, cwd="/", capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.name for path in out.iterdir()) == [
        "captures.tgz",
        "fields.json",
        "logs.tgz",
        "report.json",
        "report.md",
    ]
    report = json.loads((out / "report.json").read_text())
    assert report["complete"]
    assert [stage["name"] for stage in report["stages"]] == [*(row.name for row in STAGES), "guard"]
    assert {stage["outcome"] for stage in report["stages"]} == {"done"}
    assert differing(report, {"machine", "fields", "captures", "attribution", "tests", "tuner", "guard"}) == []
    assert differing(report, {"activity"}, within=0.2) == [], "a busy machine launches kernels unevenly, and no worse"
    activity = next(stage for stage in report["stages"] if stage["name"] == "activity")
    assert sum(line["status"] == "pass" for line in activity["lines"]) > 30
    assert list(tmp_path.glob("gpuwatch-campaign-*")) == []
    assert not list(folder.rglob("__pycache__")), "the folder stays as it was carried"


def test_deadlines_end_within_nine_minutes() -> None:
    assert sum(row.seconds for row in STAGES) <= 510
