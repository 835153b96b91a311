"""CHECKS of what is there: GPUs lost, hung or missing, a driver that hangs as a whole, and the monitor itself."""

from gpuwatch.health.check import UNDECIDED, Check, Detection
from gpuwatch.health.gpu_history import GpuHistory
from gpuwatch.health.history import HealthHistory
from gpuwatch.model.finding import Remedy, Response, Severity
from gpuwatch.model.pci import pci_key
from gpuwatch.model.snapshot import GpuState, SourceStatus

WEDGED_SECONDS = 60.0
"""A slow driver takes half as long to start."""


def gpu_lost(past: GpuHistory) -> Detection | None:
    """NVML or the kernel log reports the loss."""
    if past.status is not None and past.status.state is GpuState.LOST:
        return Detection(past.status.detail, {"state": "lost"})
    if past.lost_line is not None and past.hangs:  # any process can write the line, none can silence the driver
        return Detection(past.lost_line, {"kernel": past.lost_line})
    return None if past.is_new else UNDECIDED


def gpu_unresponsive(past: GpuHistory) -> Detection | None:
    """A GPU whose reader has ended counts as unread, not as unresponsive."""
    state = past.status.state if past.status else None
    if past.status is not None and past.hangs:
        return Detection(past.status.detail, {"state": "unresponsive"})
    return None if past.is_new or (state is GpuState.UNKNOWN and past.order) else UNDECIDED


def gpu_not_allocatable(past: GpuHistory) -> Detection | None:
    """The device plugin reports it unhealthy. The kubelet does not offer a GPU whose MIG mode changes, either."""
    if past.gpu is None or past.is_withheld is None or past.gpu.mig_pending != past.gpu.mig_enabled:
        return UNDECIDED
    return Detection(WITHHELD, {"podresources": "GetAllocatableResources lacks it"}) if past.is_withheld else None


def driver_slow(past: GpuHistory) -> Detection | None:
    """Every call returns, but a read of all values takes longer than the interval between two reads."""
    if past.status is None or not past.is_fresh:
        return UNDECIDED
    intervals = past.status.read_intervals
    if intervals is None and past.is_new:
        return None
    if intervals is None or intervals <= 1:
        return UNDECIDED
    return Detection("a read of it takes longer than the interval between two", {"intervals": f"{intervals:.1f}"})


WITHHELD = "the device plugin counts it out: no pod is given this GPU"


def gpus_missing(history: HealthHistory) -> Detection | None:
    """GPUs that are on the bus or in the configuration, but not in NVML. Nothing is missing while NVML is not read.

    Where NVML has as many as expected, a further one on the bus is not missing: it may be an old one for the screen.
    """
    snapshot, nvml = history.snapshot, _nvml(history)
    if nvml is None or not nvml.up:
        return UNDECIDED
    known = {pci_key(status.identity.pci_bus_id) for status in snapshot.statuses}
    expected = snapshot.expected_gpus
    enough = expected is not None and len(snapshot.statuses) >= expected
    missing = [address for address in snapshot.bus or () if pci_key(address) not in known and not enough]
    why = "; ".join(f"index {index}: {reason}" for index, reason in snapshot.unanswered.items())
    problems = {address: f"GPU {address} is on the PCI bus but does not answer in NVML" for address in missing}
    if why:
        problems["nvml"] = why if missing else f"a GPU that NVML counts does not answer ({why})"
    if expected is not None and len(snapshot.statuses) + len(missing) < expected:
        problems["expected"] = f"{len(snapshot.statuses)} of {expected} expected GPUs are there"
    if problems:
        return Detection("; ".join(problems.values()), problems, level=len(problems))
    # the bus is not compared until NVML has shown all its GPUs: until then the check cannot decide
    return UNDECIDED if history.bus_seen and snapshot.bus is None else None


def driver_wedged(history: HealthHistory) -> Detection | None:
    """NVML does not start, or every GPU hangs."""
    nvml = _nvml(history)
    if nvml is not None and (nvml.hanging_seconds or 0.0) >= WEDGED_SECONDS:
        return Detection(f"the driver does not let a new reader in: {nvml.reason}", {"nvml": nvml.reason})
    gpus = list(history.gpus.values())
    if len(gpus) > 1 and all(past.hangs for past in gpus):
        return Detection(f"none of {len(gpus)} GPUs answers: the driver hangs", {"unresponsive": str(len(gpus))})
    return None if any(past.is_fresh for past in gpus) else UNDECIDED


def monitoring_degraded(history: HealthHistory) -> Detection | None:
    """A source of gpuwatch is down. The labels for metrics do not count: no check needs them."""
    down = {each.name: each.reason for each in history.snapshot.sources if each.up is False and each.name != "consents"}
    return Detection("; ".join(f"{name}: {reason}" for name, reason in down.items()), down) if down else None


def _nvml(history: HealthHistory) -> SourceStatus | None:
    return next((source for source in history.snapshot.sources if source.name == "nvml"), None)


PRESENCE_CHECKS: tuple[Check, ...] = (
    Check(
        "gpu_lost",
        "NVML says that it is lost, it vanished from NVML, or the kernel log reports it and it does not answer",
        Severity.CRITICAL,
        Remedy.REBOOT_NODE,
        "drain the node and reboot it; reseat or replace the GPU if it happens again",
        Response.TAINT,
        gpu=gpu_lost,
        clear_after=2,
    ),
    Check(
        "gpu_unresponsive",
        "calls about it have not returned, or its samples have stopped, for {unresponsive_after} s",
        Severity.CRITICAL,
        Remedy.REBOOT_NODE,
        "drain the node; reboot it if the driver does not come back",
        Response.CONDITION,
        gpu=gpu_unresponsive,
    ),
    Check(
        "gpu_missing",
        "the PCI bus or `agent.expected_gpus` has more GPUs than answer in NVML",
        Severity.CRITICAL,
        Remedy.REBOOT_NODE,
        "look for the driver's messages (dmesg | grep NVRM); reboot, then reseat or replace the GPU",
        Response.CONDITION,
        node=gpus_missing,
        boot_grace=True,
        fault_domain="node",
    ),
    Check(
        "driver_wedged",
        "no GPU of several answers, or NVML does not start: calls of the driver do not return",
        Severity.CRITICAL,
        Remedy.REBOOT_NODE,
        "drain the node; reboot it if the driver does not come back",
        Response.CONDITION,
        node=driver_wedged,
        boot_grace=True,
        fault_domain="node",
    ),
    Check(
        "gpu_not_allocatable",
        "the kubelet gives other GPUs to pods, but not this one, in which nothing else is found",
        Severity.WARNING,
        Remedy.NONE,
        "restart the device plugin's pod on this node; pods that run keep their GPUs (gpuwatch diagnose names it)",
        most=Response.CONDITION,
        gpu=gpu_not_allocatable,
        raise_after=(10, 10),
        alone=True,
    ),
    Check(
        "driver_slow",
        "each call returns, but a read takes longer than the interval; its values stay, with their age",
        Severity.WARNING,
        Remedy.NONE,
        "look at what keeps the driver busy (dmesg | grep NVRM; persistence mode; other monitors)",
        most=Response.CONDITION,
        gpu=driver_slow,
        raise_after=(5, 6),
        clear_after=10,
    ),
)
"""GPUs that are lost, hung, missing or slow to answer."""

MONITOR_CHECKS: tuple[Check, ...] = (
    Check(
        "monitoring_degraded",
        "gpuwatch cannot read one of its sources, or write its store; says nothing about GPUs",
        Severity.WARNING,
        Remedy.NONE,
        "see what the message asks for; GPUs are judged without it",
        most=Response.OBSERVE,
        node=monitoring_degraded,
        fault_domain="monitor",
    ),
)
"""Failures of gpuwatch itself, never counted against a GPU."""
