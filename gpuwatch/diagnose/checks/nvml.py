"""NVML starts and lists every GPU, which all later checks need. Failures are judged by NVML's return code."""

from typing import NamedTuple

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, failed, passed, skipped, warned
from gpuwatch.diagnose.checks.driver_origin import reserved_for_vms
from gpuwatch.diagnose.checks.health.xids import xid_evidence
from gpuwatch.diagnose.checks.per_gpu import count_gpus, verdict_on_gpus
from gpuwatch.diagnose.checks.remedies import DRAIN, KERNEL_LOG, REBOOT, REBOOT_NODE
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.model.pci import pci_key
from gpuwatch.model.snapshot import GpuState, SourceStatus

NO_RECORDING = "no recording of NVML; give one with --source capture:FILE"
LIBRARY_NOT_FOUND = 12  # NVML_ERROR_LIBRARY_NOT_FOUND
SLOW_SECONDS = 1.0
"""A call of NVML's start that has lasted this long at the end of the look did not answer in time."""


class InitFailure(NamedTuple):
    """What a return code of nvmlInit means."""

    message: str
    remedy: str | None = None
    commands: tuple[str, ...] | None = None


INIT_FAILURES: dict[int, InitFailure] = {
    4: InitFailure(  # NVML_ERROR_NO_PERMISSION
        "NVML may not be used by this process (no permission)",
        "Look at the owner and mode of /dev/nvidiactl and /dev/nvidia* (0666 unless NVreg_DeviceFileMode says "
        "otherwise). In a container the device cgroup may have lost them: restart the pod, and see V02.",
        ("ls -l /dev/nvidia*", "grep -i devicefile /proc/driver/nvidia/params"),
    ),
    8: InitFailure(  # NVML_ERROR_INSUFFICIENT_POWER
        "a GPU has no power: its external cables are not connected well",
        "Power off, check the GPU's power cables and the supply, power on.",
        (DRAIN, KERNEL_LOG),
    ),
    9: InitFailure(  # NVML_ERROR_DRIVER_NOT_LOADED
        "the driver is not loaded, or does not let itself be opened",
        "Load the module and see what the kernel says; on a host: modprobe nvidia. With the GPU operator: look at the "
        "driver pod of this node. In a container without /dev/nvidiactl NVML says the same: give it the devices.",
        (
            "modprobe nvidia",
            KERNEL_LOG,
            "kubectl get pods -A -l app=nvidia-driver-daemonset --field-selector spec.nodeName={node}",
        ),
    ),
    18: InitFailure(  # NVML_ERROR_LIB_RM_VERSION_MISMATCH
        "driver/library version mismatch: the loaded module and libnvidia-ml.so.1 are of different versions",
        "The driver was updated below a running module. Drain the node and reboot it, or unload and load the modules. "
        "With the GPU operator: delete this node's driver pod, then the pods that were started before.",
        ("cat /proc/driver/nvidia/version", "cat /sys/module/nvidia/version", DRAIN, REBOOT),
    ),
    999: InitFailure(  # NVML_ERROR_UNKNOWN
        "NVML starts with `Unknown Error`: this process may not open the device files, or the driver is in a bad state",
        "In a container: systemd has reloaded and its cgroup has lost the devices. Delete the pod, and see T05 that it "
        "does not come back. Does nvidia-smi work on the host? If not, read the kernel log; SELinux and AppArmor write "
        "their denials there or to the audit log.",
        ("nvidia-smi", "dmesg -T | grep -iE 'nvrm|avc|apparmor' | tail", "ausearch -m avc -ts recent | grep nvidia"),
    ),
    2: InitFailure(  # NVML_ERROR_INVALID_ARGUMENT
        "NVML refuses to start (invalid argument)",
        "Library and module do not fit each other: install driver and libraries of one version, then reboot.",
        ("cat /proc/driver/nvidia/version", KERNEL_LOG),
    ),
}  # fmt: skip
"""nvmlReturn_t -> message; other codes get NVML's own text."""

WEDGED = (
    "The driver is wedged: every new program that asks it hangs too. Kill nothing that is inside it. Move the work "
    "away, keep the kernel log for the support case, and reboot; if the reboot hangs, power-cycle by the BMC."
)


def check_library(context: CheckContext) -> CheckVerdict:
    nvml = _nvml(context)
    if nvml is None or (nvml.code is not None and reserved_for_vms(context)):
        return skipped(reserved_for_vms(context) or _why_no_view(context))
    if nvml.code == LIBRARY_NOT_FOUND:
        return failed("libnvidia-ml.so.1 cannot be loaded", {"nvml": nvml.reason})
    view = context.facts.view
    version = view.snapshot.driver.nvml if view and view.snapshot.driver else None
    return passed(f"NVML {version}" if version else "it loads")


def check_init(context: CheckContext) -> CheckVerdict:
    nvml, view = _nvml(context), context.facts.view
    if nvml is None:
        hangs = context.facts.view_failure == "hangs"
        evidence = {"view": _why_no_view(context)}
        stuck = failed("the driver does not answer", evidence, remedy=WEDGED, commands=AFTER_WEDGED)
        return stuck if hangs else skipped(_why_no_view(context))
    if nvml.code is not None and (reason := reserved_for_vms(context)):
        return skipped(reason)
    evidence = {"nvml": nvml.reason}
    if (nvml.hanging_seconds or 0.0) >= SLOW_SECONDS:
        message = f"the driver has not answered for {nvml.hanging_seconds:.0f} s ({nvml.reason})"
        return failed(message, evidence, remedy=WEDGED, commands=AFTER_WEDGED)
    if nvml.code is not None:
        known = INIT_FAILURES.get(nvml.code) or InitFailure(f"NVML does not start: {nvml.reason}")
        return failed(known.message, evidence, remedy=known.remedy, commands=known.commands)
    driver = view.snapshot.driver if view else None
    if driver is None:
        return failed(f"NVML sent no reply: {nvml.reason}", evidence, remedy=SILENT)
    return passed(f"driver {driver.version}, CUDA {driver.cuda}")


AFTER_WEDGED = (KERNEL_LOG, "ps -eo pid,stat,wchan:32,comm | awk '$2 ~ /^D/'", DRAIN, REBOOT)
"""Shows the processes that are stuck in the kernel, before the drain and the reboot."""

SILENT = (
    "The process that asks the driver ended or cannot be started. If nvidia-smi works, this is gpuwatch's fault: "
    "report it with the message. If it crashes as well, install the driver again."
)


def _nvml(context: CheckContext) -> SourceStatus | None:
    view = context.facts.view
    return next((source for source in view.snapshot.sources if source.name == "nvml"), None) if view else None


def _why_no_view(context: CheckContext) -> str:
    return context.facts.unread.get("view", NO_RECORDING) if context.facts.live else NO_RECORDING


def check_count(context: CheckContext) -> CheckVerdict:
    """GPUs that NVML lists against those on the bus that are bound to the driver and answer there."""
    view, bus = context.facts.view, context.facts.bus
    if view is None or bus is None:
        return skipped("the PCI bus or NVML was not read")
    snapshot = view.snapshot
    known = {pci_key(s.identity.pci_bus_id) for s in snapshot.statuses if s.detail != VANISHED}
    counted = len(known) + len(snapshot.unanswered)
    hidden = {gpu.address for gpu in bus} - set(snapshot.bus) if snapshot.bus is not None else set()
    wanted = [gpu.address for gpu in bus if gpu.driver == "nvidia" and gpu.answers is not False]
    excluded = context.facts.nodes.excluded if context.facts.nodes else ()
    wanted = [address for address in wanted if address not in hidden and address not in excluded]
    if excluded and counted == len(wanted):
        message = (
            f"{count_gpus(counted)}; {count_gpus(len(excluded))} left out by NVreg_ExcludedGpus ({', '.join(excluded)})"
        )
        return warned(message, dict.fromkeys(excluded, "GPU Excluded: Yes"), remedy=EXCLUDED, commands=SHOW_EXCLUDED)
    if counted >= len(wanted):
        others = len(bus) - len(wanted)
        rest = f"; {others} on the bus are another driver's, dead or not for this container" if others > 0 else ""
        return passed(f"{count_gpus(counted)}{rest}")
    missing = [address for address in wanted if pci_key(address) not in known]
    named = ", ".join(missing) if not snapshot.unanswered else f"among {', '.join(missing)}"
    return failed(
        f"NVML has {count_gpus(counted)}, the driver has {len(wanted)} on the bus (missing: {named})",
        {address: "on the PCI bus, not in NVML" for address in missing},
    )


EXCLUDED = (
    "A parameter of the module takes it out of service, most often because it is broken: ask before "
    "it is put back. Take its uuid out of the file in /etc/modprobe.d (the GPU operator has a ConfigMap for "
    "driver.kernelModuleConfig), rebuild the initramfs and reboot."
)
SHOW_EXCLUDED = ("grep ExcludedGpus /proc/driver/nvidia/params", "grep -r ExcludedGpus /etc/modprobe.d /proc/cmdline")

VANISHED = "vanished from NVML"


def check_answers(context: CheckContext) -> CheckVerdict:
    """GPUs that are lost, hang, or do not report their identity."""
    view = context.facts.view
    if view is None or not context.indexes:
        return skipped("NVML shows no GPU")
    snapshot = view.snapshot
    # Without persistence mode the driver starts a GPU before it answers, one GPU after the other.
    timeout = 2.5 if any(gpu.persistence_mode for gpu in context.gpus) else 30.0
    waking = {index: seconds for index, seconds in snapshot.awaited.items() if seconds < timeout}
    bad = {s.identity.index: f"{s.state}: {s.detail}" for s in context.statuses if s.state in NO_ANSWER}
    bad |= {i: why for i, why in snapshot.unanswered.items() if context.selects(i) and i not in waking}
    odd = {s.identity.index: s.detail or "it is not read" for s in context.statuses if s.state is GpuState.UNKNOWN}
    odd |= {
        i: f"it has not reported its identity for {seconds:.0f} s"
        for i, seconds in waking.items()
        if context.selects(i)
    }
    if not bad:
        odd = dict(sorted(odd.items()))
        return (
            verdict_on_gpus(odd, remedy=ODD, commands=("nvidia-smi",))
            if odd
            else passed(count_gpus(len(context.statuses)))
        )
    hanging = {s.identity.index for s in context.statuses if s.state is GpuState.UNRESPONSIVE} | snapshot.awaited.keys()
    hangs = bool(bad.keys() & hanging)
    bad = dict(sorted(bad.items(), key=lambda each: (each[0] not in hanging, each[0])))
    verdict = verdict_on_gpus(bad, fatal=True, remedy=HUNG if hangs else None, commands=AFTER_HANG if hangs else None)
    return verdict._replace(evidence={**verdict.evidence, **xid_evidence(context, frozenset(bad))})


NO_ANSWER = frozenset({GpuState.LOST, GpuState.UNRESPONSIVE})

ODD = (
    "That says nothing about the GPU yet: reading failed, or its driver still wakes it, which takes a while without "
    "persistence mode. Look again; if nvidia-smi works at once and this does not, report it."
)

AFTER_HANG = (KERNEL_LOG, DRAIN, REBOOT)

HUNG = (
    "A call of the driver about it does not return. Kill nothing that has it open: that can hang the driver as a "
    "whole. Move the work away and reboot; if the reboot hangs, power-cycle. Keep the kernel log for the support case."
)

NVML: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "N01", CheckStage.NVML, "libnvidia-ml.so.1 can be loaded",
        how="dlopen of libnvidia-ml.so.1 in the reader process (NVML_ERROR_LIBRARY_NOT_FOUND)",
        remedy="The driver's libraries are not installed or not visible here. On the host: install them in the kernel "
        "module's version (Debian, Ubuntu: libnvidia-compute-570-server; RHEL: nvidia-driver-cuda-libs), then "
        "ldconfig. In a container: runtimeClassName: nvidia, NVIDIA_VISIBLE_DEVICES=all, "
        "NVIDIA_DRIVER_CAPABILITIES=utility. With the GPU operator: name the library below /run/nvidia/driver "
        "with --nvml-library.",
        commands=("ldconfig -p | grep libnvidia-ml", "ls /run/nvidia/driver/usr/lib*/libnvidia-ml.so.1"),
        judge=check_library, needs=("D01", "D04"),
    ),
    DiagnosticCheck(
        "N02", CheckStage.NVML, "NVML starts",
        how="nvmlInit and nvmlDeviceGetCount in the reader process, with a deadline",
        remedy="Read what the kernel log says of the driver; nvidia-smi must work first.",
        commands=("nvidia-smi", KERNEL_LOG),
        judge=check_init, needs=("N01", "D03"),
    ),
    DiagnosticCheck(
        "N03", CheckStage.NVML, "NVML shows every GPU of the bus",
        how="nvmlDeviceGetCount against the GPUs of /sys/bus/pci/devices that the nvidia driver has taken",
        remedy="The driver could not start this GPU, or lost it. The kernel log says why (RmInitAdapter failed, "
        "fallen off the bus). " + REBOOT_NODE.text,
        commands=(KERNEL_LOG, DRAIN, REBOOT),
        judge=check_count, needs=("N02", "H03", "H10", "D10"), reads=("bus", "view"),
    ),
    DiagnosticCheck(
        "N04", CheckStage.NVML, "every GPU answers",
        how="name, uuid and samples of each GPU in time (nvmlDeviceGetHandleByIndex and all readings)",
        remedy="If a call about it hangs, kill nothing that is inside it. " + REBOOT_NODE.text,
        commands=(KERNEL_LOG, *REBOOT_NODE.commands),
        judge=check_answers, needs=("N02", "H02", "H03", "H10", "D09"), reads=("view",), each=True,
    ),
)  # fmt: skip
