"""A machine with a GPU that asks for a reset: a real nvidia-smi in its place, open files in a /proc, an agent that
follows what the repairer reports, and a clock that waiting turns.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gpuwatch.agent.client import AgentViews
from gpuwatch.agent.repairs import closed_gpu, repaired_at, repairer_status
from gpuwatch.config import Config, RemediationConfig, RepairConfig, SourcesConfig
from gpuwatch.diagnose.validation import ValidationRun, validate
from gpuwatch.model.event import ActionEvent, EventQuery
from gpuwatch.model.finding import Finding, Health, Judgement, Remedy, Response, Severity
from gpuwatch.model.snapshot import Gpu, GpuState, GpuStatus, Host
from gpuwatch.model.view import View
from gpuwatch.remediation.service.status import RemediatorStatusFile, RunningRemediator
from gpuwatch.repair.repairer import Repairer
from gpuwatch.storage.store import Store
from tests.model import views

BOOT = "boot-1"
START = 1_790_000_000.0

NVIDIA_SMI = """#!/bin/sh
# Resets unless $DIR/refuses says why not; persistence mode is a file; every call is a line of $DIR/calls.
DIR=%s
echo "$*" >> $DIR/calls
[ -e $DIR/seen ] || cp $DIR/state/repair.json $DIR/seen
case "$*" in
  *-pm*0) rm -f $DIR/persistence; [ ! -e $DIR/stuck ] || { echo "cannot set persistence mode"; exit 15; } ;;
  *-pm*1) touch $DIR/persistence ;;
  *)
    if [ -e $DIR/persistence ]; then echo "In use by another client"; exit 19; fi
    if [ -e $DIR/refuses ]; then cat $DIR/refuses; exit 17; fi
    [ ! -e $DIR/hangs ] || sleep 60
    touch $DIR/reset; echo "GPU 00000000:1B:00.0 was successfully reset." ;;
esac
"""


class TurnedClock:
    """Waiting turns it."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def time(self) -> float:
        return START + self.seconds

    def monotonic(self) -> float:
        return self.seconds


class Machine:
    """GPU 0 asks for a reset; GPU 1 is well and at work. `gpu` is what NVML says of GPU 0."""

    name = "the agent of the test"

    def __init__(self, folder: Path, **repair: Any) -> None:
        self.folder, self.clock = folder, TurnedClock()
        self.state, self.proc, self.dev = folder / "state", folder / "proc", folder / "dev"
        self.state.mkdir(mode=0o750)
        self.process(2, "kthreadd")
        self.dev.mkdir()
        for name, other in {"nvidia0": "null", "nvidia1": "zero", "nvidiactl": "full"}.items():
            (self.dev / name).symlink_to(f"/dev/{other}")  # character devices, each with a number of its own
        self.process(77, "nv-hostengine", "/dev/nvidia1")
        self.smi = folder / "nvidia-smi"
        self.smi.write_text(NVIDIA_SMI % folder)
        self.smi.chmod(0o755)
        command = (str(self.smi), "--gpu-reset", "-i", "{uuid}")
        settings = {"mode": "enforce", "command": command, "nvidia_smi": str(self.smi)} | repair
        self.config = Config(
            repair=RepairConfig(**settings),
            remediation=RemediationConfig(checks={"xid_fatal": Response.TAINT}),
            sources=SourcesConfig(proc=str(self.proc), dev=str(self.dev)),
            state_dir=str(self.state),
        )
        self.gpu: Gpu = replace(
            views.gpu(0, 0.0), memory=replace(views.gpu(0, 0.0).memory, used=0), virtualization_mode="none",
            mig_enabled=False, persistence_mode=False,
        )  # fmt: skip
        self.changes: dict[str, Any] = {}
        self.findings = (self.finding("xid_fatal"),)
        self.closes = True
        self.prove: Callable[..., ValidationRun] = validate
        self.store = Store.open(self.state, self.clock)
        self.quarantine()
        self.repairer = self.start()

    def start(self) -> Repairer:
        views = AgentViews(self, self.clock)
        self.repairer = Repairer(self.config, views, self.store, self.clock, BOOT, self.wait, self.prove)
        self.repairer.start()
        return self.repairer

    def wait(self, seconds: float) -> None:
        self.clock.seconds += seconds
        self.quarantine()

    def quarantine(self, **changes: Any) -> None:
        """The remediator reports that it holds the node."""
        running = RunningRemediator(node="n", mode="enforce", at=self.clock.time(), quarantined=True)
        RemediatorStatusFile(str(self.state)).write(replace(running, **changes))

    def finding(self, check: str, remedy: Remedy = Remedy.RESET_GPU, **changes: Any) -> Finding:
        fields = {"severity": Severity.CRITICAL, "message": "XID 95", "gpu": views.uuid(0), "since": START - 60}
        return Finding(check=check, remedy=remedy, **(fields | changes))

    def process(self, pid: int, name: str, *files: str) -> None:
        """A process of the machine, and what it has open."""
        (self.proc / f"{pid}/fd").mkdir(parents=True, exist_ok=True)
        (self.proc / f"{pid}/comm").write_text(f"{name}\n")
        for number, file in enumerate(files):
            here = self.dev / Path(file).name
            (self.proc / f"{pid}/fd/{number}").symlink_to(here if Path(file).parent == Path("/dev") else file)

    def view(self, *, after: float | None = None, wait: float = 0.0) -> View:
        """As the agent would publish it now: it closes what the repairer asks for, and a GPU that was reset is well."""
        closed = closed_gpu(repairer_status(self.store), self.clock.time()) if self.closes else None
        gpus = [replace(gpu, at=self.clock.time()) for gpu in (self.gpu, views.gpu(1, processes=(views.process(7),)))]
        statuses = tuple(
            GpuStatus(identity=g.identity, state=GpuState.UNKNOWN if g.identity.uuid == closed else GpuState.FRESH)
            for g in gpus
        )
        made = views.view(tuple(gpu for gpu in gpus if gpu.identity.uuid != closed))
        snapshot = replace(made.snapshot, at=self.clock.time(), statuses=statuses, host=Host(boot_id=BOOT))
        judgement = Judgement(node=Health.FAILED, gpus=made.judgement.gpus, findings=self.findings)
        return replace(made, **({"snapshot": snapshot, "judgement": judgement} | self.changes))

    def step(self) -> str:
        """One look; how GPU 0 then stands."""
        self.repairer.step()
        return " ".join(f"{each.state}: {each.message}" for each in self.repairer.status)

    def file(self, name: str, text: str = "") -> None:
        (self.folder / name).write_text(text)

    @property
    def calls(self) -> list[str]:
        """Of nvidia-smi."""
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def resets(self) -> int:
        return sum("--gpu-reset" in call for call in self.calls)

    @property
    def actions(self) -> list[ActionEvent]:
        return list(self.store.events(EventQuery(kinds=("action",))).actions)

    @property
    def declared(self) -> set[str]:
        return set(repaired_at(self.store))

    def exists(self, name: str) -> bool:
        return os.path.exists(self.folder / name)
