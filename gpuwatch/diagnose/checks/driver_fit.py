"""Whether the driver's parts fit: kernel module and libraries, driver and GPUs, driver and firmware."""

from typing import NamedTuple

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, failed, passed, skipped, warned
from gpuwatch.diagnose.checks.driver_origin import DRIVER_PODS, driver_roots, driver_version
from gpuwatch.diagnose.checks.kernel_log import (
    gpu_name,
    lines_since_load,
    matching_lines,
    nvml_indexes,
    nvml_works,
    readable_addresses,
    unreadable_gpus,
)
from gpuwatch.diagnose.checks.remedies import DRAIN, KERNEL_LOG, REBOOT
from gpuwatch.diagnose.host.kernel_modules import Kernel
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.host.pci import BusGpu
from gpuwatch.model import pci
from gpuwatch.model.text import number


class GpuGeneration(NamedTuple):
    """`first`, `last`: driver branches that support it, from NVIDIA's release notes; `last` None: still supported."""

    name: str
    first: int
    last: int | None = None
    proprietary: bool = True  # NVIDIA's proprietary kernel modules work
    open: bool = True  # the open ones do, which need the GPU's own processor (GSP)


_GENERATIONS: tuple[tuple[range, GpuGeneration], ...] = (
    (range(0x1340, 0x1580), GpuGeneration("Maxwell", 346, 580, open=False)),
    (range(0x15F0, 0x1D80), GpuGeneration("Pascal", 367, 580, open=False)),
    (range(0x1D80, 0x1E00), GpuGeneration("Volta", 384, 580, open=False)),
    (range(0x1E00, 0x2080), GpuGeneration("Turing", 410)),
    (range(0x2080, 0x2200), GpuGeneration("Ampere", 450)),
    (range(0x2200, 0x2300), GpuGeneration("Ampere", 455)),
    (range(0x2342, 0x2349), GpuGeneration("Grace Hopper", 535, proprietary=False)),
    (range(0x2300, 0x2400), GpuGeneration("Hopper", 525)),
    (range(0x2400, 0x2600), GpuGeneration("Ampere", 455)),
    (range(0x2600, 0x2900), GpuGeneration("Ada Lovelace", 520)),
    (range(0x2900, 0x3000), GpuGeneration("Blackwell", 570, proprietary=False)),
    (range(0x3180, 0x3200), GpuGeneration("Blackwell Ultra", 575, proprietary=False)),
)
"""Device ids as in the PCI ID repository; an id in none of the ranges is of a generation unknown here."""


def gpu_generation(gpu: BusGpu) -> GpuGeneration | None:
    """By the PCI device id; None: the id is unknown."""
    try:
        number = int(gpu.device_id or "", 16)
    except ValueError:
        return None
    return next((found for ids, found in _GENERATIONS if number in ids), None)


_OF_GPU = rf"NVRM: The NVIDIA GPU {pci.PATTERN}"
_TOO_OLD = rf"{_OF_GPU}.*installed in this system is(?:\s+NVRM:)?\s+not supported by"
_LEGACY = rf"{_OF_GPU}.*installed in this system is\s*(?:NVRM:\s+supported through.*)?\Z"
_NEEDS_OPEN = rf"{_OF_GPU}.*requires use of the NVIDIA open kernel modules"
_NO_FIRMWARE = (
    r"NVRM: RmFetchGspRmImages: No firmware image found",
    rf"nvidia {pci.PATTERN}: Direct firmware load for nvidia/\S{{1,80}} failed",
)
_FIRMWARE_XIDS = rf"NVRM: Xid \(PCI:{pci.PATTERN}\): (?:119|120),"


def check_versions(context: CheckContext) -> CheckVerdict:
    kernel = context.facts.kernel or Kernel()
    loaded = kernel.driver or kernel.module
    known = {root.path: {v for v in root.libraries.values() if v} for root in driver_roots(context)}
    known = {path: versions for path, versions in known.items() if versions}
    if loaded is None or not known:
        return skipped("not read: the version of the " + ("libraries" if loaded else "loaded module"))
    evidence = {"loaded module": loaded}
    evidence |= {f"libraries in {path}": ", ".join(sorted(versions)) for path, versions in known.items()}
    own = kernel.own_module
    if own is not None and own.version is not None:
        evidence["installed module"] = own.version
    others = [path for path, versions in known.items() if versions != {loaded}]
    if len(others) == len(known):
        mismatches = [line.text for line in lines_since_load(context) if line.text.startswith("NVRM: API mismatch")]
        evidence |= {"kernel log": mismatches[-1]} if mismatches else {}
        libraries = ", ".join(sorted(known[others[0]] - {loaded}))
        answer = warned if nvml_works(context) else failed
        return answer(f"the loaded module is {loaded}, the libraries in {others[0]} are {libraries}", evidence)
    if others:
        return warned(f"the libraries in {others[0]} are not of the loaded driver {loaded}", evidence)
    if own is not None and own.version not in (None, loaded):
        return warned(f"{loaded} is loaded, {own.version} is installed and will be loaded at the next boot", evidence)
    return passed(loaded)


def check_supported(context: CheckContext) -> CheckVerdict:
    refused = next(matching_lines(context, _TOO_OLD, _LEGACY), None)
    version = driver_version(context)
    if refused is not None:
        indexes = () if refused.gpu is None else (refused.gpu,)
        of = f" {version}" if version else ""
        return failed(f"{refused.name} is not supported by the driver{of}", {"kernel log": refused.text}, gpus=indexes)
    branch = number((version or "").partition(".")[0])  # 570 of 570.86.15
    if branch is None:
        return skipped("no driver whose version is known")
    wrong: list[tuple[BusGpu, str]] = []
    for gpu in unreadable_gpus(context):
        known = gpu_generation(gpu)
        if known is not None and branch < known.first:
            wrong.append((gpu, f"{known.name} needs driver {known.first} or newer"))
        elif known is not None and known.last is not None and branch > known.last:
            wrong.append((gpu, f"{known.last} is the last driver for {known.name}"))
    if wrong:
        first, why = wrong[0]
        evidence = {gpu.address: why for gpu, why in wrong}
        gpus = nvml_indexes(context, tuple(gpu for gpu, _ in wrong))
        return failed(f"{gpu_name(context, first)}: {why}, this is {version}", evidence, gpus=gpus)
    return passed(f"branch {branch}, {_generations(context)}")


def check_flavor(context: CheckContext) -> CheckVerdict:
    refused = next(matching_lines(context, _NEEDS_OPEN), None)
    kernel = context.facts.kernel or Kernel()
    flavor, own = kernel.flavor, kernel.own_module
    if flavor is None and own is not None and own.license is not None:
        flavor = "proprietary" if own.license == "NVIDIA" else "open"
    if refused is not None:
        return failed(f"{refused.name} needs the open kernel modules", {"kernel log": refused.text})
    if flavor is None:
        return skipped("not known: which of NVIDIA's kernel modules are installed")
    wrong: list[BusGpu] = []
    for gpu in unreadable_gpus(context):
        known = gpu_generation(gpu)
        if known is not None and not (known.open if flavor == "open" else known.proprietary):
            wrong.append(gpu)
    if wrong:
        other = "open" if flavor == "proprietary" else "proprietary"
        name = getattr(gpu_generation(wrong[0]), "name", "it")
        message = (
            f"{gpu_name(context, wrong[0])}: {name} needs the {other} kernel modules, the {flavor} ones are installed"
        )
        return failed(message, {gpu.address: name for gpu in wrong}, gpus=nvml_indexes(context, tuple(wrong)))
    return passed(f"{flavor} modules, {_generations(context)}")


def check_firmware(context: CheckContext) -> CheckVerdict:
    fine = readable_addresses(context)
    missing = next(matching_lines(context, *_NO_FIRMWARE), None)
    dead = [line for line in matching_lines(context, _FIRMWARE_XIDS) if line.key not in fine]
    if missing is not None and (missing.key is None or missing.key not in fine) and unreadable_gpus(context):
        return failed(
            "the GSP firmware of the driver was not found",
            {"kernel log": missing.text},
            remedy="Install the driver's firmware package of exactly its version (Ubuntu: "
            "nvidia-firmware-BRANCH-server-VERSION; RHEL: nvidia-kmod-common), then reload the driver.",
            commands=("cat /proc/driver/nvidia/version", "ls /lib/firmware/nvidia", DRIVER_PODS),
        )
    if dead:
        indexes = tuple(sorted({line.gpu for line in dead if line.gpu is not None}))
        evidence = {f"{number}. {line.when or 'line'}": line.text for number, line in enumerate(dead[:8], 1)}
        return failed(f"{dead[0].name}: its firmware (GSP) does not answer", evidence, gpus=indexes)
    version, view = driver_version(context), context.facts.view
    in_use = {s.identity.gsp_firmware for s in view.snapshot.statuses} - {None} if view else set()
    if not in_use and (context.facts.kernel or Kernel()).flavor != "open":
        return skipped("the driver uses no GSP firmware")
    if context.facts.driver_roots is None or version is None:
        return skipped("not read: the firmware files of the host")
    found = [root.path for root in driver_roots(context) if version in root.firmware]
    if found:
        return passed(f"{version} in {found[0]}")
    have = sorted({name for root in driver_roots(context) for name in root.firmware})
    return warned(
        f"/lib/firmware/nvidia has no firmware for {version}: the GPUs will not start again after a reset or reload",
        {"firmware": ", ".join(have) or "none"},
        remedy="Install the driver's firmware package of exactly its version before a GPU is reset.",
        commands=("cat /proc/driver/nvidia/version", "ls /lib/firmware/nvidia"),
    )


def _generations(context: CheckContext) -> str:
    names = {known.name for gpu in context.facts.bus or () if (known := gpu_generation(gpu))}
    return ", ".join(sorted(names)) or "GPUs of a generation unknown here"


FIT: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "D03", CheckStage.DRIVER, "kernel module and libraries are of one version",
        how="/proc/driver/nvidia/version against the names of libnvidia-ml and libcuda in each driver root",
        remedy="The driver was updated under a loaded module: new programs cannot use the GPUs. Drain and reboot the "
        "node, or end all GPU users, unload the modules (nvidia_peermem, nvidia_uvm, nvidia_drm, "
        "nvidia_modeset, nvidia) and load them again. With the GPU operator: delete this node's driver pod.",
        commands=(DRAIN, REBOOT),
        judge=check_versions, needs=("D01", "D04"), reads=("kernel", "driver_roots"),
    ),
    DiagnosticCheck(
        "D06", CheckStage.DRIVER, "the driver supports the GPUs",
        how="driver branch against the GPUs' generation (PCI device id), of GPUs that NVML cannot read; the kernel log",
        remedy="Install a driver branch that supports these GPUs, then reboot. With the GPU operator: set "
        "driver.version in the ClusterPolicy.",
        commands=("lspci -nn -d 10de:", "cat /proc/driver/nvidia/version", KERNEL_LOG),
        judge=check_supported, needs=("H01",), reads=("bus", "kernel"),
    ),
    DiagnosticCheck(
        "D07", CheckStage.DRIVER, "the kernel modules are of the kind the GPUs need",
        how="/proc/driver/nvidia/version or the module's license: open or proprietary; the kernel log",
        remedy="Blackwell and newer need NVIDIA's open kernel modules, GPUs before Turing the proprietary ones. "
        "Install that kind (Ubuntu: nvidia-driver-BRANCH-server-open; RHEL: nvidia-open) and reboot. With the "
        "GPU operator: driver.kernelModuleType=open.",
        commands=("cat /proc/driver/nvidia/version", "modinfo -F license nvidia", KERNEL_LOG),
        judge=check_flavor, needs=("H01",), reads=("bus", "kernel"),
    ),
    DiagnosticCheck(
        "D09", CheckStage.DRIVER, "the GPUs' firmware (GSP) is there and answers",
        how="/lib/firmware/nvidia/VERSION/gsp_*.bin, XIDs 119 and 120, `No firmware image found` in the kernel log",
        remedy="Drain and reboot the node. If it happens again, update the driver; with old proprietary modules on "
        "GPUs before Blackwell NVreg_EnableGpuFirmware=0 avoids the GSP.",
        commands=(KERNEL_LOG, DRAIN, REBOOT),
        judge=check_firmware, needs=("H01", "H03"), reads=("bus", "kernel"), each=True,
    ),
)  # fmt: skip
