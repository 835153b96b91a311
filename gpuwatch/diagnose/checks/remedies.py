"""Repairs of GPUs and of CUDA: text and commands that several checks print."""

from typing import NamedTuple

from gpuwatch.diagnose.active.results import DeviceRun, Fault
from gpuwatch.model.finding import Remedy

DRAIN = "kubectl drain {node} --ignore-daemonsets --delete-emptydir-data"
RESET = "nvidia-smi --gpu-reset -i {gpu}"
REBOOT = "systemctl reboot"
KERNEL_LOG = "dmesg -T | grep -iE 'nvrm|xid|nvidia'"


class RepairAdvice(NamedTuple):
    """For the operator: what to do, and commands to run in this order."""

    text: str
    commands: tuple[str, ...] = ()


RESET_GPU = RepairAdvice(
    "Drain the node, then reset the GPU. If it is in use, find the users (fuser -v /dev/nvidia*): stop DCGM and "
    "nvidia-persistenced, with the GPU operator also its device plugin and exporter pods. If nvidia-smi asks for all "
    "GPUs that NVLinks tie together, leave out -i. If the reset fails, reboot.",
    (DRAIN, RESET),
)

REBOOT_NODE = RepairAdvice(
    "Drain and reboot the node. If the GPU stays away, power it off and on; if it happens again, reseat or replace it.",
    (DRAIN, REBOOT),
)

INSPECT = RepairAdvice(
    "Drain the node. Have the GPU, its slot, riser and power cables looked at; replace it if this comes back.",
    (DRAIN, KERNEL_LOG),
)

CONTACT_SUPPORT = RepairAdvice(
    "Drain the node, run nvidia-bug-report.sh and ask NVIDIA's or the vendor's support whether to replace the GPU.",
    (DRAIN, "nvidia-bug-report.sh"),
)

RESTART_APP = RepairAdvice("Look at the application's own log and restart it; the GPU itself is not the cause.")

ADVICE: dict[Remedy, RepairAdvice] = {
    Remedy.RESTART_APP: RESTART_APP,
    Remedy.RESET_GPU: RESET_GPU,
    Remedy.REBOOT_NODE: REBOOT_NODE,
    Remedy.INSPECT: INSPECT,
    Remedy.CONTACT_SUPPORT: CONTACT_SUPPORT,
}
"""Remedy of a finding -> what to do; `Remedy.NONE` has no entry."""


DRIVER_LOG = "dmesg -T | grep -i -e NVRM -e nvidia | tail -50"
OUT_OF_SERVICE = "kubectl cordon {node}"

_MEMORY = RepairAdvice(
    "The GPU's memory has an error that ECC cannot correct. Drain the node and reset the GPU, which also repairs "
    "waiting rows; if it comes back, or a row cannot be remapped, replace the GPU.",
    ("nvidia-smi -i {gpu} -q -d ECC,ROW_REMAPPER", OUT_OF_SERVICE, "nvidia-smi -i {gpu} --gpu-reset"),
)
_COMPILER = RepairAdvice(
    "The driver cannot compile for this GPU: install libnvidia-ptxjitcompiler.so.1 in libcuda.so.1's version; in a "
    "container NVIDIA_DRIVER_CAPABILITIES must include compute.",
    ("ldconfig -p | grep -e libcuda.so -e ptxjitcompiler", "cat /proc/driver/nvidia/version"),
)
_KERNEL = RepairAdvice(
    "A correct kernel has failed. Follow the XID in the kernel log; without one, drain the node, reset the GPU and "
    "run DCGM's long diagnosis. If it fails again, replace the GPU.",
    (DRIVER_LOG, OUT_OF_SERVICE, "nvidia-smi -i {gpu} --gpu-reset", "dcgmi diag -r 3 -i {gpu}"),
)
_MPS = RepairAdvice(
    "Restart the MPS control daemon (the GPU operator's is the device plugin's mps-control-daemon pod), or end it "
    "where MPS is not meant to be used.",
    ("ps -e | grep nvidia-cuda-mps", "echo quit | nvidia-cuda-mps-control"),
)

BY_CODE: dict[int, RepairAdvice] = {
    2: RepairAdvice(
        "Another program has taken the GPU's memory. See which, and run this again when it is free.",
        ("nvidia-smi -i {gpu}",),
    ),
    46: RepairAdvice(
        "The GPU takes no further program: its compute mode is EXCLUSIVE_PROCESS and a process is on it, or "
        "PROHIBITED. Set it to DEFAULT unless MPS needs it.",
        ("nvidia-smi -i {gpu} -q -d COMPUTE", "nvidia-smi -i {gpu} --compute-mode=DEFAULT"),
    ),
    100: RepairAdvice(
        "CUDA has no GPU although NVML has: this process may not open the device files. On a host, create "
        "/dev/nvidia-uvm and /dev/nvidia0...; a container must be given the GPU (NVIDIA_VISIBLE_DEVICES, CDI or the "
        "device plugin). After a `systemctl daemon-reload` restart the container.",
        ("ls -l /dev/nvidia*", "nvidia-modprobe -u -c 0"),
    ),
    214: _MEMORY,
    226: _MEMORY,
    209: _COMPILER,
    218: _COMPILER,
    221: _COMPILER,
    222: _COMPILER,
    220: RepairAdvice(
        "An NVLink had an error that cannot be corrected. Drain the node and reset all GPUs of the fabric together "
        "(with NVSwitches restart nvidia-fabricmanager afterwards). If it comes back, inspect the link.",
        ("nvidia-smi nvlink -e -i {gpu}", OUT_OF_SERVICE, DRIVER_LOG),
    ),
    304: RepairAdvice(
        "A system call of the driver has failed. Look for a denial (SELinux, seccomp, devices cgroup) and a limit on "
        "locked memory.",
        ("dmesg -T | tail -50", "ulimit -l"),
    ),
    **dict.fromkeys((700, 702, 714, 715, 716, 717, 718, 719), _KERNEL),
    802: RepairAdvice(
        "With NVSwitches the fabric manager must run, in exactly the driver's version, and have finished: start it, "
        "or install that version. In confidential-computing mode the GPUs must first be declared ready.",
        (
            "systemctl status nvidia-fabricmanager",
            "nvidia-smi -q | grep -A4 Fabric",
            "systemctl restart nvidia-fabricmanager",
            "nvidia-smi conf-compute -grs",
        ),
    ),
    803: RepairAdvice(
        "libcuda.so.1 is of another version than the loaded kernel module. Reboot, or reload the modules with no GPU "
        "in use; restart containers that were started before. With the GPU operator restart this node's driver pod.",
        ("cat /proc/driver/nvidia/version", "ldconfig -p | grep libcuda.so", DRIVER_LOG),
    ),
    804: RepairAdvice(
        "A forward-compatibility libcuda (package cuda-compat) is in use on a GPU that does not support it. Take it "
        "out of LD_LIBRARY_PATH and of /etc/ld.so.conf.d, or upgrade the driver instead.",
        ("ldconfig -p | grep libcuda.so", "echo $LD_LIBRARY_PATH"),
    ),
    **dict.fromkeys(range(805, 811), _MPS),
    999: RepairAdvice(
        "The driver cannot be started, mostly for lack of nvidia-uvm. Load it and create its device file; if that "
        "does not help, reload it with no GPU in use, or reboot.",
        ("lsmod | grep nvidia_uvm", "modprobe nvidia-uvm", "nvidia-modprobe -u -c 0", DRIVER_LOG),
    ),
}
"""By CUresult (cuda.h)."""

BY_FAULT: dict[Fault, RepairAdvice] = {
    "library": RepairAdvice(
        "Programs do not find the driver's user space. Install it in the driver's version (Ubuntu: "
        "libnvidia-compute-<branch>, RHEL: nvidia-driver-cuda-libs). In a container: the nvidia runtime class, and "
        "NVIDIA_DRIVER_CAPABILITIES that includes compute. With the GPU operator's driver container, name it with "
        "--cuda-library; it is below /run/nvidia/driver.",
        ("ldconfig -p | grep libcuda.so", "find /run/nvidia/driver/usr -name libcuda.so.1"),
    ),
    "hang": RepairAdvice(
        "A call of the driver does not return. Do not kill the process: that can make it worse. Read the XID in the "
        "kernel log, drain the node, then reboot it; a reset of the GPU would hang as well.",
        (DRIVER_LOG, OUT_OF_SERVICE, "nvidia-smi -i {gpu} -q -d PIDS"),
    ),
    "crash": RepairAdvice(
        "The driver's library ended its process, as it may any CUDA program here. Reinstall the driver's user space "
        "in the kernel module's version, and look for a memory limit that ended the process.",
        ("dmesg -T | tail -50", "cat /proc/driver/nvidia/version", "ldconfig -p | grep libcuda.so"),
    ),
}


def remedy_for(run: DeviceRun) -> RepairAdvice | None:
    """The advice for this failure; None: that of the check's row."""
    if run.code in BY_CODE:
        return BY_CODE[run.code]
    return BY_FAULT.get(run.fault) if run.fault else None
