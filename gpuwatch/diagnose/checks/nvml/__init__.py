"""NVML starts and shows every GPU: what everything below stands on."""

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, failed, passed, skipped, warned
from gpuwatch.diagnose.checks.nvml.access import ACCESS
from gpuwatch.diagnose.checks.nvml.start import init, library
from gpuwatch.diagnose.checks.per_gpu import blame, many
from gpuwatch.diagnose.checks.remedies import DRAIN, KERNEL_LOG, REBOOT, REBOOT_NODE
from gpuwatch.diagnose.checks.xids import told_of
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.model.pci import pci_key
from gpuwatch.model.snapshot import GpuState


def _count(context: CheckContext) -> CheckVerdict:
    """GPUs that NVML counts against those of the bus that the driver has taken and that answer there."""
    view, bus = context.facts.view, context.facts.bus
    if view is None or bus is None:
        return skipped("the PCI bus or NVML was not seen")
    snapshot = view.snapshot
    known = {pci_key(s.identity.pci_bus_id) for s in snapshot.statuses if s.detail != VANISHED}
    counted = len(known) + len(snapshot.unanswered)
    hidden = {gpu.address for gpu in bus} - set(snapshot.bus) if snapshot.bus is not None else set()
    wanted = [gpu.address for gpu in bus if gpu.driver == "nvidia" and gpu.answers is not False]
    excluded = context.facts.nodes.excluded if context.facts.nodes else ()
    wanted = [address for address in wanted if address not in hidden and address not in excluded]
    if excluded and counted == len(wanted):
        words = f"{many(counted)}; {many(len(excluded))} left out by NVreg_ExcludedGpus ({', '.join(excluded)})"
        return warned(words, dict.fromkeys(excluded, "GPU Excluded: Yes"), remedy=EXCLUDED, commands=SHOW_EXCLUDED)
    if counted >= len(wanted):
        others = len(bus) - len(wanted)
        rest = f"; {others} on the bus are another driver's, dead or not for this container" if others > 0 else ""
        return passed(f"{many(counted)}{rest}")
    missing = [address for address in wanted if pci_key(address) not in known]
    named = ", ".join(missing) if not snapshot.unanswered else f"among {', '.join(missing)}"
    return failed(
        f"NVML sees {many(counted)}, the driver has {len(wanted)} on the bus (missing: {named})",
        {address: "on the PCI bus, not in NVML" for address in missing},
    )


EXCLUDED = (
    "Somebody has taken it out of service by a parameter of the module, most often because it is broken: ask before "
    "it is given back. Take its uuid out of the file in /etc/modprobe.d (the GPU operator has a ConfigMap for "
    "driver.kernelModuleConfig), rebuild the initramfs and reboot."
)
SHOW_EXCLUDED = ("grep ExcludedGpus /proc/driver/nvidia/params", "grep -r ExcludedGpus /etc/modprobe.d /proc/cmdline")

VANISHED = "vanished from NVML"


def _answers(context: CheckContext) -> CheckVerdict:
    """GPUs that are lost, hang, or do not tell who they are."""
    view = context.facts.view
    if view is None or not context.indexes:
        return skipped("NVML shows no GPU")
    snapshot = view.snapshot
    waking = {index: seconds for index, seconds in snapshot.awaited.items() if seconds < PATIENCE[_is_kept_up(context)]}
    bad = {s.identity.index: f"{s.state}: {s.detail}" for s in context.statuses if s.state in NO_ANSWER}
    bad |= {i: why for i, why in snapshot.unanswered.items() if context.means(i) and i not in waking}
    odd = {s.identity.index: s.detail or "nobody reads it" for s in context.statuses if s.state is GpuState.UNKNOWN}
    odd |= {i: f"it has not told who it is for {seconds:.0f} s" for i, seconds in waking.items() if context.means(i)}
    if not bad:
        odd = dict(sorted(odd.items()))
        return blame(odd, remedy=ODD, commands=("nvidia-smi",)) if odd else passed(many(len(context.statuses)))
    hanging = {s.identity.index for s in context.statuses if s.state is GpuState.UNRESPONSIVE} | snapshot.awaited.keys()
    hangs = bool(bad.keys() & hanging)
    bad = dict(sorted(bad.items(), key=lambda each: (each[0] not in hanging, each[0])))
    verdict = blame(bad, fatal=True, remedy=HUNG if hangs else None, commands=AFTER_HANG if hangs else None)
    return verdict._replace(evidence={**verdict.evidence, **told_of(context, frozenset(bad))})


PATIENCE = {True: 2.5, False: 30.0}
"""Seconds for a GPU to tell who it is. Without persistence its driver starts it first, one GPU after the other."""


def _is_kept_up(context: CheckContext) -> bool:
    """Whether the driver keeps GPUs up while nobody uses them, as far as those show that answer."""
    return any(gpu.persistence_mode for gpu in context.gpus)


NO_ANSWER = frozenset({GpuState.LOST, GpuState.UNRESPONSIVE})

ODD = (
    "That says nothing about the GPU yet: reading failed, or its driver still wakes it, which takes a while without "
    "persistence mode. Look again; if nvidia-smi works at once and this does not, please report it."
)

AFTER_HANG = (KERNEL_LOG, DRAIN, REBOOT)

HUNG = (
    "A call of the driver about it does not return. Kill nothing that has it open: that can hang the driver as a "
    "whole. Move the work away and reboot; if the reboot hangs, power-cycle. Keep the kernel log for the support case."
)

NVML: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "N01",
        CheckStage.NVML,
        "libnvidia-ml.so.1 can be loaded",
        "dlopen of libnvidia-ml.so.1 in the reader process (NVML_ERROR_LIBRARY_NOT_FOUND)",
        "libnvidia-ml.so.1 cannot be loaded",
        "The driver's libraries are not installed, or not to be seen from here. On the host: install the driver's "
        "user space of the version of the kernel module (Debian, Ubuntu: libnvidia-compute-570-server; RHEL: "
        "nvidia-driver-cuda-libs), then ldconfig. In a container: set runtimeClassName: nvidia, "
        "NVIDIA_VISIBLE_DEVICES=all and NVIDIA_DRIVER_CAPABILITIES=utility. With the GPU operator the driver lies "
        "below /run/nvidia/driver: name its library with --nvml-library.",
        library,
        needs=("D01", "D04"),
        commands=("ldconfig -p | grep libnvidia-ml", "ls /run/nvidia/driver/usr/lib*/libnvidia-ml.so.1"),
    ),
    DiagnosticCheck(
        "N02",
        CheckStage.NVML,
        "NVML starts",
        "nvmlInit and nvmlDeviceGetCount in the reader process, with a deadline",
        "nvmlInit: driver not loaded | library and kernel module differ | no permission | does not return",
        "See what the kernel says of the driver; nvidia-smi must work before anything else can.",
        init,
        needs=("N01", "D03"),
        commands=("nvidia-smi", KERNEL_LOG),
    ),
    DiagnosticCheck(
        "N03",
        CheckStage.NVML,
        "NVML shows every GPU of the bus",
        "nvmlDeviceGetCount against the GPUs of /sys/bus/pci/devices that the nvidia driver has taken",
        "NVML sees 7 GPUs, the driver has 8 on the bus (missing: 0000:9d:00.0)",
        "The driver could not start this GPU, or lost it. The kernel log says why (RmInitAdapter failed, fallen off "
        "the bus). " + REBOOT_NODE.words,
        _count,
        needs=("N02", "H03", "H10", "D10"),
        reads=("bus", "view"),
        commands=(KERNEL_LOG, DRAIN, REBOOT),
    ),
    DiagnosticCheck(
        "N04",
        CheckStage.NVML,
        "every GPU answers",
        "name, uuid and samples of each GPU in time (nvmlDeviceGetHandleByIndex and all that is read)",
        "GPU 3: lost: GPU is lost | GPU 3: unresponsive: a driver call does not return",
        "If a call about it hangs, kill nothing that is inside it. " + REBOOT_NODE.words,
        _answers,
        needs=("N02", "H02", "H03", "H10", "D09"),
        reads=("view",),
        each=True,
        commands=(KERNEL_LOG, *REBOOT_NODE.commands),
    ),
    *ACCESS,
)
