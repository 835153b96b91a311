"""One row of the CHECKS table, and the answer of its predicate."""

from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from gpuwatch.health.gpu_history import GpuHistory
from gpuwatch.health.history import HealthHistory
from gpuwatch.model.finding import CheckName, Remedy, Response, Scope, Severity
from gpuwatch.model.snapshot import Gpu
from gpuwatch.model.workload import Workload


class Detection(NamedTuple):
    """A fault as one snapshot shows it. A member that is None has the value of the check's row.

    `level`: a figure that, when it rises, makes the fault a new occurrence.
    """

    message: str
    evidence: dict[str, str] = {}
    severity: Severity | None = None
    remedy: Remedy | None = None
    action: str | None = None
    level: float | None = None
    pods: tuple[Workload, ...] | None = None


UNDECIDED = Detection("")
"""The check cannot decide: an open finding stays open, and none begins."""

Ends = Literal["clean", "repair", "time"]
"""What ends a finding, in this order: readings without the fault; evidence of a repair; the passing of time."""

FaultDomain = Literal["gpu", "node", "monitor"]


class Check(NamedTuple):
    """One row. It has `gpu` (a predicate over each GPU), `node`, or neither: then XIDs or SXids make its findings.

    `reads`: FIELDS paths without which `gpu` cannot decide; it runs on every new sample. Without any it runs
    on every snapshot, also for GPUs that do not answer. `raise_after`: N of M answers; `clear_after`: good ones in a
    row.
    """

    name: CheckName
    finds: str
    """What it looks for, in words; thresholds as `{keys}` of the configuration."""
    severity: Severity
    remedy: Remedy
    action: str
    """The next step for an operator."""
    response: Response = Response.OBSERVE
    """The default response."""
    most: Response = Response.DRAIN
    """The strongest response, whatever a policy asks for."""
    gpu: Callable[[GpuHistory], Detection | None] | None = None
    node: Callable[[HealthHistory], Detection | None] | None = None
    reads: tuple[str, ...] = ()
    raise_after: tuple[int, int] = (1, 1)
    clear_after: int = 1
    boot_grace: bool = False
    fault_domain: FaultDomain = "gpu"
    scope: Scope = "gpu"
    """Of a fault of a GPU: `node` where it affects the other GPUs too. A fault of the node always takes the node."""
    ends: Ends = "clean"
    alone: bool = False
    """Whether it begins only on a GPU without open findings worse than information."""


def value(gpu: Gpu, path: str) -> Any:
    """The reading at a FIELDS path, None where it is not known."""
    return _getter(path)(gpu)


@cache
def _getter(path: str) -> Callable[[Gpu], Any]:
    """Cached, because every snapshot calls it some hundred times."""
    if path.startswith("ecc.counts."):
        count = path.removeprefix("ecc.counts.")
        return lambda gpu: gpu.ecc.counts.get(count)
    return attrgetter(path)


def has_readings(gpu: Gpu, reads: tuple[str, ...]) -> bool:
    """Whether every reading that a check needs was read."""
    if None in [_getter(path)(gpu) for path in reads]:
        return False
    return not any(error.startswith(reads) for error in gpu.errors)


def evidence(gpu: Gpu, reads: tuple[str, ...]) -> dict[str, str]:
    """The readings a check went by, as text; records and tables are too long for it."""
    known = {path: value(gpu, path) for path in reads}
    return {path: str(v) for path, v in known.items() if isinstance(v, int | float | str)}


def is_paced(gpu: Gpu) -> bool:
    """Whether the driver keeps the GPU slow because it only shows a desktop: clocks and link are low on purpose."""
    return bool(gpu.display_active) and (gpu.performance_state or 0) > WORKING_STATE


WORKING_STATE = 2
"""The slowest performance state in which work is done: GeForce computes in P2."""


def when(path: str, message: str) -> Callable[[GpuHistory], Detection | None]:
    """A predicate that a flag is set."""
    return lambda past: Detection(message) if past.gpu and value(past.gpu, path) else None


HEALTH_PATHS = ("recovery_action", "row_remap.", "ecc.counts.uncorrected/volatile/total")
"""Beginnings of FIELDS paths that must have been read before a GPU counts as healthy."""


def has_health_readings(gpu: Gpu) -> bool:
    """Whether no reading that health depends on failed; a failed read is no good reading."""
    return not any(path.startswith(HEALTH_PATHS) for path in gpu.errors)


def is_clean(gpu: Gpu) -> bool:
    """Whether it reads like a repaired GPU: no action asked for, no repair pending, no failed reading."""
    if gpu.retired_pages.pending or gpu.ecc.channel_repair_pending or gpu.ecc.tpc_repair_pending:
        return False
    waits = gpu.recovery_action or gpu.row_remap.pending or gpu.row_remap.failure
    return has_health_readings(gpu) and not waits
