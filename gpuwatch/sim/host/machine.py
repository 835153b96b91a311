"""Kernel, its log at boot, modules, libraries and device files of the simulated host: Ubuntu 24.04 with DKMS.

Device files are plain files with the names of real ones; /proc lists their numbers.
"""

from gpuwatch.sim.host import Files, Symlink
from gpuwatch.sim.node.node import SimNode

RELEASE = "6.8.0-51-generic"
LIBRARIES = "usr/lib/x86_64-linux-gnu"

LIBRARY_NAMES = ("libnvidia-ml.so", "libcuda.so", "libnvidia-ptxjitcompiler.so")
_DRIVER_MODULES = (
    ("nvidia_uvm", 2076672, 4, "-"),
    ("nvidia_drm", 135168, 0, "-"),
    ("nvidia_modeset", 1572864, 1, "nvidia_drm,"),
    ("nvidia", 11575296, 121, "nvidia_uvm,nvidia_modeset,"),
)
_RDMA_MODULES = (
    ("mlx5_ib", 507904, 0, "-"),
    ("ib_uverbs", 200704, 1, "mlx5_ib,"),
    ("ib_core", 520192, 2, "ib_uverbs,mlx5_ib,"),
    ("mlx5_core", 2904064, 1, "mlx5_ib,"),
)
_PEER_MEMORY = (("nvidia_peermem", 16384, 0, "-"),)
_OTHER_MODULES = (("overlay", 212992, 35, "-"), ("br_netfilter", 32768, 0, "-"))

_PARAMETERS = {
    "ResmanDebugLevel": "4294967295", "RmLogonRC": "1", "ModifyDeviceFiles": "1", "DeviceFileUID": "0",
    "DeviceFileGID": "0", "DeviceFileMode": "438", "InitializeSystemMemoryAllocations": "1",
    "UsePageAttributeTable": "4294967295", "EnableMSI": "1", "EnablePCIeGen3": "0", "MemoryPoolSize": "0",
    "KMallocHeapMaxSize": "0", "VMallocHeapMaxSize": "0", "IgnoreMMIOCheck": "0", "EnableStreamMemOPs": "0",
    "EnableUserNUMAManagement": "1", "NvLinkDisable": "0", "RmProfilingAdminOnly": "1",
    "PreserveVideoMemoryAllocations": "0", "EnableS0ixPowerManagement": "0", "DynamicPowerManagement": "3",
    "RegisterPCIDriver": "1", "EnablePCIERelaxedOrderingMode": "0", "EnableResizableBar": "0",
    "EnableGpuFirmware": "18", "EnableGpuFirmwareLogs": "2", "EnableDbgBreakpoint": "0",
    "OpenRmEnableUnsupportedGpus": "1", "DmaRemapPeerMmio": "1", "ImexChannelCount": "2048", "CreateImexChannel0": "0",
    "GrdmaPciTopoCheckOverride": "0", "RegistryDwords": '""', "RegistryDwordsPerDevice": '""', "RmMsg": '""',
    "GpuBlacklist": '""', "TemporaryFilePath": '""', "ExcludedGpus": '""',
}  # fmt: skip

_SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

NVIDIA, UVM, CAPS, IMEX = 195, 508, 234, 235
_CONTROL, _MODESET = 255, 254
_INSTANCES, _COMPUTE_INSTANCES = 15, 8  # per GPU and per GPU instance: how the driver numbers capabilities

_OTHER_MAJORS = {"mem": 1, "tty": 4, "ptmx": 5, "misc": 10, "input": 13, "pts": 136, "infiniband_verbs": 231}
_DRIVER_MAJORS = {
    "nvidia": NVIDIA, "nvidiactl": NVIDIA, "nvidia-modeset": NVIDIA, "nvidia-caps": CAPS,
    "nvidia-caps-imex-channels": IMEX, "nvidia-nvlink": 236, "nvidia-nvswitch": 237, "nvidia-uvm": UVM,
}  # fmt: skip


def machine(node: SimNode) -> Files:
    """The files."""
    modules = (_RDMA_MODULES if node.model.nvlinks else ()) + _OTHER_MODULES
    majors = _OTHER_MAJORS
    if node.driver_up:
        modules = _DRIVER_MODULES + (_PEER_MEMORY if node.model.nvlinks else ()) + modules
        majors = majors | _DRIVER_MAJORS
    characters = "".join(f"{major:3} {name}\n" for name, major in majors.items())
    kernel = {
        "proc/sys/kernel/osrelease": f"{RELEASE}\n",
        "proc/cmdline": f"BOOT_IMAGE=/boot/vmlinuz-{RELEASE} root=/dev/sda2 ro iommu=pt pci=realloc=off\n",
        "proc/modules": "".join(
            f"{name} {size} {uses} {by} Live 0x0000000000000000{' (OE)' if 'nvidia' in name else ''}\n"
            for name, size, uses, by in modules
        ),
        "proc/devices": f"Character devices:\n{characters}\nBlock devices:\n  7 loop\n259 blkext\n",
        "proc/meminfo": "MemTotal:       2113503744 kB\nHugePages_Total:       0\nHugepagesize:       2048 kB\n",
        "sys/module/module/parameters/sig_enforce": "N\n",
        _SECURE_BOOT: "\x06\0\0\0\0",
        "gpuwatch/kernel.log": "".join(f"<4>[{at:12.6f}] {text}\n" for at, text in boot_log(node)),  # as dmesg --raw
        # the process that runs diagnose is root
        "proc/self/status": "Name:\tgpuwatch\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n",
        "proc/self/limits": "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max locked memory         unlimited            unlimited            bytes     \n",
    }
    modules_folder, built = f"lib/modules/{RELEASE}", "(\ufffd/"  # compressed by zstd
    installed: dict[str, str | Symlink] = {f"{LIBRARIES}/{name}.{node.driver}": "\x7fELF" for name in LIBRARY_NAMES}
    installed |= {f"{LIBRARIES}/{name}.1": Symlink(f"{name}.{node.driver}") for name in LIBRARY_NAMES}
    installed |= {
        f"{modules_folder}/modules.dep": "kernel/net/bridge/bridge.ko.zst: kernel/net/llc/llc.ko.zst\n"
        "updates/dkms/nvidia-uvm.ko.zst: updates/dkms/nvidia.ko.zst\nupdates/dkms/nvidia.ko.zst:\n",
        f"{modules_folder}/updates/dkms/nvidia.ko.zst": built,
        f"{modules_folder}/build/Makefile": "VERSION = 6\n",
        f"var/lib/dkms/nvidia/{node.driver}/{RELEASE}/x86_64/module/nvidia.ko.zst": built,
        f"lib/firmware/nvidia/{node.driver}/gsp_ga10x.bin": "\x7fELF",
        f"lib/firmware/nvidia/{node.driver}/gsp_tu10x.bin": "\x7fELF",
        "etc/modprobe.d/nvidia-graphics-drivers.conf": "blacklist nouveau\noptions nouveau modeset=0\n",
        "usr/bin/nvidia-smi": "\x7fELF",
        "usr/bin/nvidia-modprobe": "\x7fELF",
    }
    loaded = {}
    if node.driver_up:
        loaded = {
            f"proc/driver/nvidia/capabilities/{path}": f"DeviceFileMinor: {minor}\nDeviceFileMode: "
            f"{256 if path == 'mig/config' else 292}\nDeviceFileModify: 1\n"
            for path, minor in capabilities(node).items()
        } | {
            "proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {node.driver}  "
            "Release Build  (dvs-builder@U22-I3-AE18-23-3)\n"
            "GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)\n",
            "proc/driver/nvidia/params": "".join(f"{name}: {value}\n" for name, value in _PARAMETERS.items()),
            "sys/module/nvidia/version": f"{node.driver}\n",
        }
    return kernel | installed | _device_files(node) | loaded


def capabilities(node: SimNode) -> dict[str, int]:
    """Path below /proc/driver/nvidia/capabilities -> minor."""
    found = {"mig/config": 1, "mig/monitor": 2}
    for gpu in node.gpus:
        for unit in gpu.units:
            if unit.profile is not None:
                minor = 3 + (gpu.index * _INSTANCES + unit.gi) * (1 + _COMPUTE_INSTANCES)
                place = f"gpu{gpu.index}/mig/gi{unit.gi}"
                found |= {f"{place}/access": minor, f"{place}/ci0/access": minor + 1}
    return found


def _device_files(node: SimNode) -> dict[str, str | Symlink]:
    """/dev and /dev/char; the GPUs' own files are those of `PciTree`."""
    numbers = {"nvidiactl": (NVIDIA, _CONTROL), "nvidia-modeset": (NVIDIA, _MODESET)}
    numbers |= {"nvidia-uvm": (UVM, 0), "nvidia-uvm-tools": (UVM, 1)}
    numbers |= {f"nvidia-caps/nvidia-cap{minor}": (CAPS, minor) for minor in capabilities(node).values()}
    links = numbers | {f"nvidia{gpu.index}": (NVIDIA, gpu.index) for gpu in node.gpus}
    files: dict[str, str | Symlink] = {f"dev/{name}": "" for name in numbers}
    return files | {f"dev/char/{major}:{minor}": Symlink(f"../{name}") for name, (major, minor) in links.items()}


def boot_log(node: SimNode) -> tuple[tuple[float, str], ...]:
    """Seconds since boot and text of each line, up to the moment at which the driver is ready."""
    driver = f"{node.driver}  Release Build  (dvs-builder@U22-I3-AE18-23-3)"
    return (
        (0.0, f"Linux version {RELEASE} (buildd@lcy02-amd64-065) (x86_64-linux-gnu-gcc-13) #52-Ubuntu SMP"),
        (0.004, "secureboot: Secure boot disabled"),
        (0.41, "pcieport 0000:17:01.0: AER: enabled with IRQ 40"),
        (11.2, "nvidia: loading out-of-tree module taints kernel."),
        (11.21, "nvidia: module verification failed: signature and/or required key missing - tainting kernel"),
        (11.3, "nvidia-nvlink: Nvlink Core is being initialized, major device number 236"),
        *((11.4 + gpu.index / 100, f"nvidia {gpu.address}: enabling device (0140 -> 0142)") for gpu in node.gpus),
        (12.9, f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {driver}"),
        (13.1, f"nvidia-modeset: Loading NVIDIA UNIX Open Kernel Mode Setting Driver for x86_64  {driver}"),
        (13.4, f"nvidia-uvm: Loaded the UVM driver, major device number {UVM}."),
    )
