"""Why NVML does not start: the library, the driver behind it, or a call that does not return. Judged by return code."""

from typing import NamedTuple

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, failed, passed, skipped
from gpuwatch.diagnose.checks.driver.home import for_machines
from gpuwatch.diagnose.checks.remedies import DRAIN, KERNEL_LOG, REBOOT
from gpuwatch.model.snapshot import SourceStatus

NO_RECORDING = "no recording of NVML; give one with --source capture:FILE"
LIBRARY_NOT_FOUND = 12  # NVML_ERROR_LIBRARY_NOT_FOUND
SLOW_SECONDS = 1.0
"""A call of the start that has lasted so long when the look ended did not answer in time."""


class Start(NamedTuple):
    """What a return code of nvmlInit means."""

    message: str
    remedy: str
    commands: tuple[str, ...]


STARTS: dict[int, Start] = {
    4: Start(  # NVML_ERROR_NO_PERMISSION
        "NVML may not be used by this process (no permission)",
        "Look at the owner and mode of /dev/nvidiactl and /dev/nvidia* (0666 unless NVreg_DeviceFileMode says "
        "otherwise). In a container the device cgroup may have lost them: restart the pod, and see V02.",
        ("ls -l /dev/nvidia*", "grep -i devicefile /proc/driver/nvidia/params"),
    ),
    8: Start(  # NVML_ERROR_INSUFFICIENT_POWER
        "a GPU has no power: its external cables are not connected well",
        "Power off, check the GPU's power cables and the supply, power on.",
        (DRAIN, KERNEL_LOG),
    ),
    9: Start(  # NVML_ERROR_DRIVER_NOT_LOADED
        "the driver is not loaded, or does not let itself be opened",
        "Load the module and see what the kernel says; on a host: modprobe nvidia. With the GPU operator: look at the "
        "driver pod of this node. In a container without /dev/nvidiactl NVML says the same: give it the devices.",
        (
            "modprobe nvidia",
            KERNEL_LOG,
            "kubectl get pods -A -l app=nvidia-driver-daemonset --field-selector spec.nodeName={node}",
        ),
    ),
    18: Start(  # NVML_ERROR_LIB_RM_VERSION_MISMATCH
        "driver/library version mismatch: the loaded module and libnvidia-ml.so.1 are of different versions",
        "The driver was updated below a running module. Drain the node and reboot it, or unload and load the modules. "
        "With the GPU operator: delete this node's driver pod, then the pods that were started before.",
        ("cat /proc/driver/nvidia/version", "cat /sys/module/nvidia/version", DRAIN, REBOOT),
    ),
    999: Start(  # NVML_ERROR_UNKNOWN
        "NVML starts with `Unknown Error`: this process may not open the device files, or the driver is in a bad state",
        "In a container: systemd has reloaded and its cgroup has lost the devices. Delete the pod, and see T05 that it "
        "does not come back. Does nvidia-smi work on the host? If not, read the kernel log; SELinux and AppArmor write "
        "their denials there or to the audit log.",
        ("nvidia-smi", "dmesg -T | grep -iE 'nvrm|avc|apparmor' | tail", "ausearch -m avc -ts recent | grep nvidia"),
    ),
    2: Start(  # NVML_ERROR_INVALID_ARGUMENT
        "NVML refuses to start (invalid argument)",
        "Library and module do not fit each other: install driver and libraries of one version, then reboot.",
        ("cat /proc/driver/nvidia/version", KERNEL_LOG),
    ),
}  # fmt: skip
"""nvmlReturn_t -> words; others are told as NVML tells them."""

WEDGED = (
    "The driver is wedged: every new program that asks it hangs too. Kill nothing that is inside it. Move the work "
    "away, keep the kernel log for the support case, and reboot; if the reboot hangs, power-cycle by the BMC."
)


def library(context: CheckContext) -> CheckVerdict:
    """N01."""
    nvml = _nvml(context)
    if nvml is None or (nvml.code is not None and for_machines(context)):
        return skipped(for_machines(context) or _unseen(context))
    if nvml.code == LIBRARY_NOT_FOUND:
        return failed("libnvidia-ml.so.1 cannot be loaded", {"nvml": nvml.reason})
    view = context.facts.view
    version = view.snapshot.driver.nvml if view and view.snapshot.driver else None
    return passed(f"NVML {version}" if version else "it loads")


def init(context: CheckContext) -> CheckVerdict:
    """N02."""
    nvml = _nvml(context)
    if nvml is not None:
        reason = for_machines(context) if nvml.code is not None else None
        return skipped(reason) if reason else _started(context, nvml)
    if context.facts.view_failure == "hangs":
        return failed("the driver does not answer", {"view": _unseen(context)}, remedy=WEDGED, commands=AFTER_WEDGED)
    return skipped(_unseen(context))


def _started(context: CheckContext, nvml: SourceStatus) -> CheckVerdict:
    evidence = {"nvml": nvml.reason}
    if (nvml.hanging_seconds or 0.0) >= SLOW_SECONDS:
        waited = f"the driver has not answered for {nvml.hanging_seconds:.0f} s ({nvml.reason})"
        return failed(waited, evidence, remedy=WEDGED, commands=AFTER_WEDGED)
    if nvml.code is not None:
        start = STARTS.get(nvml.code)
        if start is None:
            return failed(f"NVML does not start: {nvml.reason}", evidence)
        return failed(start.message, evidence, remedy=start.remedy, commands=start.commands)
    view = context.facts.view
    driver = view.snapshot.driver if view else None
    if driver is None:
        return failed(f"nothing was heard of NVML: {nvml.reason}", evidence, remedy=SILENT)
    return passed(f"driver {driver.version}, CUDA {driver.cuda}")


AFTER_WEDGED = (KERNEL_LOG, "ps -eo pid,stat,wchan:32,comm | awk '$2 ~ /^D/'", DRAIN, REBOOT)
"""Shows who is stuck in the kernel before the machine goes."""

SILENT = (
    "The process that asks the driver ended or cannot be started. If nvidia-smi works, this is gpuwatch's fault: "
    "please report it with the message. If it crashes as well, install the driver anew."
)


def _nvml(context: CheckContext) -> SourceStatus | None:
    view = context.facts.view
    return next((source for source in view.snapshot.sources if source.name == "nvml"), None) if view else None


def _unseen(context: CheckContext) -> str:
    return context.facts.unread.get("view", NO_RECORDING) if context.facts.live else NO_RECORDING
