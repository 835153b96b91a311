"""A pod with a tuner that acts is deleted: whatever its containers are at, its node's GPUs are as they were before.

What the kubelet does is done here: SIGTERM to the tuner, meanwhile the guard's `preStop` as it is deployed, then
SIGTERM to the guard, and SIGKILL when the time is over.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

import gpuwatch
from tests import fast_yaml
from tests.drills.tuner_rig import Rig
from tests.waiting import until

DEPLOY = Path(gpuwatch.__file__).parents[1] / "deploy"
CONFIG = "--config=/etc/gpuwatch/gpuwatch.yaml"

WORKS, HANGS, DEAD = "works", "hangs", "dead"
QUICK = ((WORKS, WORKS), (HANGS, WORKS), (DEAD, HANGS))
CASES = [
    pytest.param(tuner, guard, marks=() if (tuner, guard) in QUICK else pytest.mark.slow)
    for tuner in (WORKS, HANGS, DEAD)
    for guard in (WORKS, HANGS)
]
"""Tuner and guard; those in `make test` have each state of each of them."""


def spec(file: str) -> dict[str, Any]:
    """Of the pod."""
    found: dict[str, Any] = fast_yaml.load((DEPLOY / file).read_text())["spec"]["template"]["spec"]
    return found


def hook() -> list[str]:
    """The command that the kubelet runs in the guard's container."""
    containers = spec("components/tuner-enforce/enforce.yaml")["containers"]
    (guard,) = (each for each in containers if each["name"] == "guard")
    program, config, *message = guard["lifecycle"]["preStop"]["exec"]["command"]
    assert (program, config) == ("gpuwatch", CONFIG)
    return message


GRACE_SECONDS: int = spec("base/daemonset.yaml")["terminationGracePeriodSeconds"]


@pytest.fixture
def rig(tmp_path: Path) -> Any:
    """Two GPUs, on which a tuner has set something, and a guard."""
    made = Rig(tmp_path)
    made.reset()
    made.start_guard()
    made.start_tuner()
    until(made.is_limited, "power limits are in force")
    yield made
    made.end()


def run_hook(rig: Rig, folder: Path) -> "subprocess.Popen[str]":
    config = folder / "gpuwatch.yaml"
    sources = {"proc": str(folder / "proc"), "nvml_library": rig.place.library}
    config.write_text(yaml.safe_dump({"state_dir": str(rig.place.state), "sources": sources}))
    command = [sys.executable, "-m", "gpuwatch", f"--config={config}", *hook()]
    environment = {**os.environ, "GPUWATCH_FAKE_NVML": rig.place.control}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def bring_to(state: str, process: Any) -> None:
    if state == HANGS:
        os.kill(process.pid, signal.SIGSTOP)
    if state == DEAD:
        process.kill()
        process.join(10)


@pytest.mark.parametrize(("tuner", "guard"), CASES)
def test_s14_a_deleted_pod_leaves_nothing_on_its_gpus(rig: Rig, tmp_path: Path, tuner: str, guard: str) -> None:
    bring_to(tuner, rig.tuner)
    bring_to(guard, rig.guard)
    assert not rig.is_original()
    began = time.monotonic()
    if tuner != DEAD:
        rig.tuner.terminate()
    with run_hook(rig, tmp_path) as running:
        said, _ = running.communicate(timeout=GRACE_SECONDS)
    rig.guard.terminate()
    for state, process in ((tuner, rig.tuner), (guard, rig.guard)):
        if state == WORKS:  # one that is stopped hears no signal
            process.join(GRACE_SECONDS)
            assert process.exitcode == 0
    until(rig.is_original, f"everything is as it was; {said}", GRACE_SECONDS, step=0.01)
    assert time.monotonic() - began < GRACE_SECONDS
    for process in (rig.tuner, rig.guard):
        process.kill()
        process.join(10)
    assert rig.is_original(), "who was stopped has set something once more"
    assert rig.judge() == ""
