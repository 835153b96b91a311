"""CHECKS of what the driver reports as it happens: XIDs by class, and SXids of NVSwitches."""

from gpuwatch.health.check import UNDECIDED, Check, Detection
from gpuwatch.health.gpu_history import GpuHistory
from gpuwatch.model.finding import Remedy, Response, Severity

FATAL_CHECKS: tuple[Check, ...] = (
    Check(
        "xid_fatal",
        "an XID after which the GPU must be reset or looked after: restarting the application cannot help",
        Severity.CRITICAL,
        Remedy.RESET_GPU,
        "drain the node, then do what this XID asks for: gpuwatch xid explain",
        Response.TAINT,
        ends="repair",
    ),
    Check(
        "sxid_fatal",
        "a fatal SXid of an NVSwitch",
        Severity.CRITICAL,
        Remedy.REBOOT_NODE,
        "drain the node and reboot it; all GPUs behind the switch are affected",
        Response.TAINT,
        fault_domain="node",
        ends="repair",
    ),
)


def failures_on_one_gpu(past: GpuHistory) -> Detection | None:
    """Many pods fail on this GPU, and fewer than half as many on each other; else the applications are the cause."""
    if not past.is_fresh:
        return UNDECIDED
    pods = past.failed_pods()
    if len(pods) < past.config.repeat_pods or any(
        2 * len(other.failed_pods()) >= len(pods) for other in past.other_gpus
    ):
        return None
    return Detection(f"applications of {len(pods)} different pods failed on this GPU only", level=len(pods), pods=pods)


MILD_CHECKS: tuple[Check, ...] = (
    Check(
        "xid_contained",
        "an XID that ended the work it hit, and asks for a reset when the rest is done (63, 94, 160)",
        Severity.WARNING,
        Remedy.RESET_GPU,
        "restart what it hit; reset the GPU when its work is done",
        Response.CONDITION,
        ends="repair",
    ),
    Check(
        "xid_warning",
        "any other XID of hardware or driver",
        Severity.WARNING,
        Remedy.INSPECT,
        "see: gpuwatch xid explain",
        ends="time",
    ),
    Check(
        "xid_application",
        "an XID that applications cause",
        Severity.INFO,
        Remedy.RESTART_APP,
        "see the application's own log",
        most=Response.OBSERVE,
        ends="time",
    ),
    Check(
        "xid_application_repeated",
        "application XIDs of at least {repeat_pods} different pods within {repeat_window} s, on this GPU only",
        Severity.WARNING,
        Remedy.INSPECT,
        "run a diagnosis of this GPU when its work is done",
        Response.CONDITION,
        most=Response.CONDITION,
        gpu=failures_on_one_gpu,
    ),
    Check(
        "xid_unknown",
        "an XID that no NVIDIA document names",
        Severity.WARNING,
        Remedy.CONTACT_SUPPORT,
        "look for newer documentation; ask NVIDIA's support",
        most=Response.OBSERVE,
        ends="time",
    ),
    Check(
        "xid_unconfirmed",
        "any of these but an application's or an unknown one, while only the kernel log reports it",
        Severity.WARNING,
        Remedy.INSPECT,
        "compare with what the driver says: gpuwatch describe gpu, gpuwatch events; look for who writes such lines",
        most=Response.OBSERVE,
        ends="time",
    ),
    Check(
        "sxid_warning",
        "an SXid of an NVSwitch that is not fatal",
        Severity.WARNING,
        Remedy.INSPECT,
        "watch it; check the NVLinks it names",
        most=Response.OBSERVE,  # nothing but the kernel log reports it
        fault_domain="node",
        ends="time",
    ),
    Check(
        "sxid_unconfirmed",
        "a fatal SXid of an NVSwitch, while no GPU behind it reports a fault of NVLink or fabric",
        Severity.WARNING,
        Remedy.INSPECT,
        "compare with NVLink and fabric: gpuwatch get nvlinks, systemctl status nvidia-fabricmanager",
        most=Response.OBSERVE,
        fault_domain="node",
        ends="time",
    ),
)
"""From those that need a repair to those that pass."""
