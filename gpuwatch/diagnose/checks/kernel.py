"""The kernel: no other driver has the GPUs, it accepts NVIDIA's modules, and its log reports no GPU that failed."""

import re

from gpuwatch.collect.kernel_log.lines import read_message
from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, failed, passed, skipped, warned
from gpuwatch.diagnose.checks.driver_origin import is_containerised
from gpuwatch.diagnose.checks.kernel_log import (
    GpuLogLine,
    lines_since_load,
    matching_lines,
    nvml_indexes,
    readable_addresses,
)
from gpuwatch.diagnose.checks.remedies import DRAIN, KERNEL_LOG, REBOOT
from gpuwatch.diagnose.host.kernel_modules import Kernel
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.health.xid.classify import classify
from gpuwatch.model import pci
from gpuwatch.model.xid import XidEvent

RIVALS = ("nouveau", "nova_core", "nvidiafb", "rivafb")
"""Drivers that take a GPU away from NVIDIA's."""

REJECTED = (
    r"nvidia\w*: Loading of (?:unsigned module|module with unsupported crypto|module with unavailable key) is rejected",
    r"Loading of (?:unsigned module|module with unsupported crypto|module with unavailable key) is rejected",
    r"Lockdown: (?:insmod|modprobe|systemd-modules|systemd-udevd|kworker)\S*: (?:unsigned|Loading of unsigned) module",
    r"PKCS#7 signature not signed with a trusted key",
    r".{0,80}Key was rejected by service",
)
"""The first names the module; the others count only where this kernel has the module, or /lib/modules was not read."""

_OTHER_KERNEL = (r"nvidia\w*: version magic '", r"nvidia\w*: disagrees about version of symbol")
_FIRMWARE_XIDS = frozenset({119, 120})  # judged by D09
_ADDRESS = pci.PATTERN
_FAILED = (
    rf"NVRM: GPU (?:at )?(?:PCI:)?{_ADDRESS}:? RmInitAdapter failed",
    rf"NVRM: GPU (?:at )?(?:PCI:)?{_ADDRESS}:? rm_init_adapter failed",
    rf"NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?{_ADDRESS}.{{0,200}}fallen off the bus",
    rf"nvidia {_ADDRESS}: probe with driver nvidia failed",
    r"NVRM: BAR\d is \S+ @ \S+ \(PCI:",
    rf"NVRM: Xid \(PCI:{_ADDRESS}",
)


def check_rivals(context: CheckContext) -> CheckVerdict:
    bus = context.facts.bus or ()
    modules = (context.facts.kernel.modules if context.facts.kernel else None) or {}
    taken = tuple(gpu for gpu in bus if (gpu.driver or "").lower().replace("-", "_") in RIVALS)
    loaded = [name for name in RIVALS if name in modules]
    if taken:
        return failed(
            f"{taken[0].driver} owns {len(taken)} of {len(bus)} GPUs",
            {gpu.address: f"bound to {gpu.driver}" for gpu in taken},
            gpus=nvml_indexes(context, taken),
        )
    if loaded and "nvidia" not in modules:
        return failed(f"{loaded[0]} is loaded, the nvidia module is not", {"modules": ", ".join(loaded)})
    if loaded:
        return warned(f"{loaded[0]} is loaded, but has no GPU", {"modules": ", ".join(loaded)})
    return passed("none")


def check_built_for_kernel(context: CheckContext) -> CheckVerdict:
    kernel = context.facts.kernel or Kernel()
    release, own = kernel.release or "this kernel", kernel.own_module
    if kernel.is_loaded:
        return passed(f"loaded into {release}")
    wrong = next(matching_lines(context, *_OTHER_KERNEL), None)
    if wrong is not None:
        return failed(f"the nvidia module was built for another kernel than {release}", {"kernel log": wrong.text})
    if own is not None:
        is_other = own.release not in (None, kernel.release)
        built = f"{own.path.rpartition('/')[2]} was built for {own.release}, {release} runs"
        return failed(built, {"module": own.path}) if is_other else passed(f"{own.version or 'there'} for {release}")
    return _not_installed(context, kernel, release)


def _not_installed(context: CheckContext, kernel: Kernel, release: str) -> CheckVerdict:
    if kernel.installed is None:
        return skipped("not read: /lib/modules of the host")
    others = {name: module for name, module in kernel.installed.items() if module is not None}
    headers = "" if kernel.headers else f"; the headers of {release} are missing"
    evidence = {f"/lib/modules/{name}": module.version or module.path for name, module in others.items()}
    evidence |= {"dkms": ", ".join(kernel.dkms)} if kernel.dkms else {}
    if others:
        return failed(f"the nvidia module is there for {', '.join(others)}, not for {release}{headers}", evidence)
    if kernel.dkms:
        return failed(f"DKMS has not built nvidia {kernel.dkms[-1]} for {release}{headers}", evidence)
    if is_containerised(context):
        return skipped("none on the host: a driver container brings it")
    return skipped("no NVIDIA driver is installed for any kernel")


def check_signatures(context: CheckContext) -> CheckVerdict:
    kernel = context.facts.kernel or Kernel()
    if kernel.is_loaded:
        return passed("the module was taken")
    own = kernel.own_module
    patterns = "|".join(REJECTED if own is not None or kernel.installed is None else REJECTED[:1])
    refused = next((line for line in context.facts.kernel_log or () if re.match(patterns, line.text)), None)
    enforced = kernel.secure_boot or kernel.signatures_enforced
    state = {"Secure Boot": {True: "on", False: "off", None: "not read"}[kernel.secure_boot]}
    if refused is not None:
        return failed("the kernel rejected the signature of a module", state | {"kernel log": refused.text})
    if enforced and own is not None and own.signed is False:
        return failed("the kernel takes signed modules only, and the nvidia module is not signed", state)
    if kernel.secure_boot is None and kernel.signatures_enforced is None:
        return skipped("not read: neither UEFI variables nor module parameters")
    return passed("Secure Boot is on, nothing was rejected" if enforced else "signatures are not enforced")


def check_log(context: CheckContext) -> CheckVerdict:
    """GPUs that NVML reads are judged by its present readings, not by an old line."""
    lines = [line for line in matching_lines(context, *_FAILED) if _means_failure(context, line)]
    readable = readable_addresses(context)
    dead = [line for line in lines if line.key is None or line.key not in readable]
    if dead:
        first = dead[0]
        event = read_message(first.text)
        if event.xid is not None:
            message = f"XID {event.xid}{f', {event.message}' if event.message else ''}"
        else:  # without the prefix that names driver and GPU
            message = re.sub(rf"^(?:NVRM|nvidia):? (?:GPU )?(?:at )?(?:PCI:)?(?:{_ADDRESS})?:? ?", "", first.text)
            message = message.replace("\nNVRM: ", " ")
        message = f"{first.name}: {message}" if first.key else message
        indexes = tuple(sorted({line.gpu for line in dead if line.gpu is not None}))
        evidence = {f"{number}. {line.when or 'line'}": line.text for number, line in enumerate(dead[:8], 1)}
        if context.facts.view is None and context.facts.view_failure != "hangs":
            return warned(f"{message}; NVML was not asked how it is now", evidence)
        return failed(message, evidence, gpus=indexes)
    if lines:
        return passed(f"{len(lines)} lines about GPUs that answer")
    return passed(f"{len(lines_since_load(context))} lines, none about a failed GPU")


def _means_failure(context: CheckContext, line: GpuLogLine) -> bool:
    """Of XIDs only fatal ones, without D09's; of a GPU without an index only where all GPUs are selected."""
    if line.key is not None and context.selected is not None and line.gpu not in context.selected:
        return False
    read = read_message(line.text)
    if read.xid is None:
        return True
    event = XidEvent(
        at=0.0, xid=read.xid, source="kernel", message=read.message, recovery=read.recovery, nvlink=read.nvlink
    )
    return read.xid not in _FIRMWARE_XIDS and classify(event, context.config.checks.xids) == "fatal"


KERNEL: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "H07", CheckStage.HOST, "no other driver has the GPUs",
        how="/proc/modules and the driver each GPU is bound to: nouveau, nova_core, nvidiafb",
        remedy="Keep nouveau from loading, rebuild the initramfs (RHEL: dracut --force; Debian, Ubuntu: "
        "update-initramfs -u) and reboot; with the GPU operator, too.",
        commands=("printf 'blacklist nouveau\\noptions nouveau modeset=0\\n' > /etc/modprobe.d/blacklist-nouveau.conf",
                  "update-initramfs -u || dracut --force",
                  REBOOT),
        judge=check_rivals, needs=("H01",), reads=("bus", "kernel"),
    ),
    DiagnosticCheck(
        "H08", CheckStage.HOST, "the nvidia module is built for the running kernel",
        how="modules.dep and nvidia.ko (.modinfo: vermagic) below /lib/modules, DKMS, uname -r, the kernel log",
        remedy="The kernel is newer than the driver's module. Install the kernel's headers and let DKMS build, or "
        "install the distribution's module for it (Ubuntu: linux-modules-nvidia-BRANCH-server-open-$(uname "
        "-r)); or boot the former kernel.",
        commands=("apt-get install linux-headers-$(uname -r) || dnf install kernel-devel-$(uname -r)",
                  "dkms autoinstall -k $(uname -r)",
                  "modprobe nvidia"),
        judge=check_built_for_kernel, needs=("H01",), reads=("kernel",),
    ),
    DiagnosticCheck(
        "H09", CheckStage.HOST, "the kernel takes the nvidia module's signature",
        how="the SecureBoot variable of UEFI, module.sig_enforce, nvidia.ko, the kernel log",
        remedy="Secure Boot accepts only modules signed with a known key. Enrol DKMS's key and confirm it at the "
        "console on the next boot, use the distribution's signed modules, or switch Secure Boot off.",
        commands=("mokutil --sb-state",
                  "mokutil --import /var/lib/shim-signed/mok/MOK.der || mokutil --import /var/lib/dkms/mok.pub",
                  REBOOT),
        judge=check_signatures, needs=("H01",), reads=("kernel",),
    ),
    DiagnosticCheck(
        "H10", CheckStage.HOST, "the kernel log reports no GPU that failed",
        how="NVRM lines of /dev/kmsg (or a copy) since the driver was loaded, about GPUs that NVML cannot read",
        remedy="The driver gave this GPU up. Drain and reboot the node; power it off and on if the GPU stays away. If "
        "the line returns: reseat it, check its power, then replace it.",
        commands=(KERNEL_LOG, DRAIN, REBOOT),
        judge=check_log, needs=("H01", "H02", "H03", "D06", "D07", "D09"), reads=("kernel_log",), each=True,
    ),
)  # fmt: skip
