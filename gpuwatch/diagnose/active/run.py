"""All active checks of a node, one device after another: never more than one GPU is loaded at a time."""

import time
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from gpuwatch.diagnose.active import dcgm
from gpuwatch.diagnose.active.messages import Job
from gpuwatch.diagnose.active.parent import done_by
from gpuwatch.diagnose.active.results import Active, DeviceRun, Test
from gpuwatch.diagnose.active.targets import Target, pairs, targets
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.view import View

DEVICE_SECONDS = 30.0
"""For one device or pair; starting CUDA on a machine with many GPUs and no persistence takes some of it."""

DCGM_SECONDS = 60.0

DEADLINE_SECONDS = 300.0

MOST_LEFT = 2
"""After so many processes that hang in the driver no more are started: they would hang, too."""

DEVICE_TESTS: tuple[Test, ...] = ("vector_add", "bandwidth", "memory")


def unavailable(*, live: bool, library: str) -> str | None:
    """Why active checks cannot be made at all: there is no GPU behind a simulated or recorded node."""
    if live or library:
        return None
    return "there is no CUDA behind a recorded or simulated node; run --active on the machine itself"


def run_active(
    view: View,
    *,
    selected: frozenset[int] | None = None,
    force: bool = False,
    deadline: float = DEADLINE_SECONDS,
    device_deadline: float = DEVICE_SECONDS,
    library: str = "",
    progress: Callable[[str], None] = lambda text: None,
) -> Active:
    """Everything within `deadline` seconds, each device or pair within `device_deadline`. `selected`: NVML indexes;
    `force`: also on GPUs in use or failed; `library`: libcuda.so.1 unless empty; `progress` is told what comes next.

    Never raises and never waits for a driver that hangs: what went wrong is in the result.
    """
    return _Rounds(library, time.monotonic() + deadline, device_deadline, progress).of(view, selected, force=force)


class _Work(NamedTuple):
    one: Target
    tests: tuple[Test, ...]
    other: Target | None = None

    @property
    def refused(self) -> str | None:
        if self.other and self.other.refused and not self.one.refused:
            return f"GPU {self.other.index}: {self.other.refused}"
        return self.one.refused

    @property
    def name(self) -> str:
        if self.other:
            return f"GPU {self.one.index} and GPU {self.other.index}: copies over NVLink"
        instance = f" {self.one.uuid}" if self.one.is_instance else ""
        return f"GPU {self.one.index}{instance}: {', '.join(self.tests)}"


def _forgiven(run: DeviceRun) -> DeviceRun:
    """Who was given less time than it takes may not be blamed for using it up."""
    if run.fault != "hang":
        return run
    return replace(run, error=None, fault=None, refused=f"no time was left: {run.error}")


class _Rounds:
    """One pass over all devices."""

    def __init__(self, library: str, until: float, each: float, progress: Callable[[str], None]) -> None:
        self._library, self._until, self._each, self._progress = library, until, each, progress
        self._left = 0

    def of(self, view: View, selected: frozenset[int] | None, *, force: bool) -> Active:
        devices = targets(view, selected, force=force)
        runs: list[DeviceRun] = []
        for device in devices:
            runs += self._runs(_Work(device, DEVICE_TESTS))
        broken = {run.device for run in runs if run.error and run.test == "vector_add"}
        for one, other in pairs(view, devices):
            if not broken & {one.uuid, other.uuid}:
                runs += self._runs(_Work(one, ("peer",), other))
        failures, error = self._dcgm()
        return Active(runs=tuple(runs), dcgm=failures, dcgm_error=error)

    def _runs(self, work: _Work) -> list[DeviceRun]:
        refused = work.refused or self._out_of_time()
        if refused:
            return [self._signed(DeviceRun(test=t, device="", refused=refused), work) for t in work.tests]
        self._progress(work.name)
        visible = (work.one.uuid, work.other.uuid) if work.other else (work.one.uuid,)
        job = Job(devices=visible, tests=work.tests, library=self._library, numa_node=work.one.numa_node)
        left = self._until - time.monotonic()
        ended = done_by(job, min(self._each, left))
        self._left += ended.left
        return [self._signed(_forgiven(run) if left < self._each else run, work) for run in ended.runs]

    def _out_of_time(self) -> str | None:
        if self._left >= MOST_LEFT:
            return f"{self._left} processes hang in the driver already"
        return "no time was left" if time.monotonic() >= self._until else None

    @staticmethod
    def _signed(run: DeviceRun, work: _Work) -> DeviceRun:
        peer = work.other.index if work.other else None
        return replace(run, device=work.one.uuid, index=work.one.index, peer=peer)

    def _dcgm(self) -> tuple[dict[str, str] | None, str | None]:
        """Failures by plugin, and why there are none to be had; both None where DCGM is not installed."""
        if not dcgm.is_installed():
            return None, None
        refused = self._out_of_time()
        if refused:
            return None, refused
        self._progress("dcgmi diag -r 1")
        try:
            return dcgm.failures(min(DCGM_SECONDS, self._until - time.monotonic())), None
        except GpuwatchError as error:
            return None, str(error)
