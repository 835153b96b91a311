"""Kernel, modules, libraries and device files of the simulated host: a server with Ubuntu 24.04 and DKMS."""

from gpuwatch.sim.host.boot_log import FILE as KERNEL_LOG
from gpuwatch.sim.host.boot_log import boot_log
from gpuwatch.sim.host.device_files import UVM, capability_files, device_files, devices
from gpuwatch.sim.host.files import Files, Link
from gpuwatch.sim.node.node import Node

RELEASE = "6.8.0-51-generic"
LIBRARIES = "usr/lib/x86_64-linux-gnu"

_Tree = dict[str, str | Link]

_NAMES = ("libnvidia-ml.so", "libcuda.so", "libnvidia-ptxjitcompiler.so")
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


def machine(node: Node) -> Files:
    """The files."""
    return _kernel(node) | _on_disk(node) | _process() | device_files(node) | (_loaded(node) if node.driver_up else {})


def _kernel(node: Node) -> _Tree:
    modules = (_RDMA_MODULES if node.model.nvlinks else ()) + _OTHER_MODULES
    if node.driver_up:
        modules = _DRIVER_MODULES + (_PEER_MEMORY if node.model.nvlinks else ()) + modules
    return {
        "proc/sys/kernel/osrelease": f"{RELEASE}\n",
        "proc/cmdline": f"BOOT_IMAGE=/boot/vmlinuz-{RELEASE} root=/dev/sda2 ro iommu=pt pci=realloc=off\n",
        "proc/modules": "".join(
            f"{name} {size} {uses} {by} Live 0x0000000000000000{' (OE)' if 'nvidia' in name else ''}\n"
            for name, size, uses, by in modules
        ),
        "proc/devices": devices(node),
        "proc/meminfo": "MemTotal:       2113503744 kB\nHugePages_Total:       0\nHugepagesize:       2048 kB\n",
        "sys/module/module/parameters/sig_enforce": "N\n",
        _SECURE_BOOT: "\x06\0\0\0\0",
        KERNEL_LOG: boot_log(node, RELEASE, UVM),
    }


def _on_disk(node: Node) -> _Tree:
    modules, built = f"lib/modules/{RELEASE}", "(\ufffd/"  # compressed by zstd
    libraries: _Tree = {f"{LIBRARIES}/{name}.{node.driver}": "\x7fELF" for name in _NAMES}
    libraries |= {f"{LIBRARIES}/{name}.1": Link(f"{name}.{node.driver}") for name in _NAMES}
    return libraries | {
        f"{modules}/modules.dep": "kernel/net/bridge/bridge.ko.zst: kernel/net/llc/llc.ko.zst\n"
        "updates/dkms/nvidia-uvm.ko.zst: updates/dkms/nvidia.ko.zst\nupdates/dkms/nvidia.ko.zst:\n",
        f"{modules}/updates/dkms/nvidia.ko.zst": built,
        f"{modules}/build/Makefile": "VERSION = 6\n",
        f"var/lib/dkms/nvidia/{node.driver}/{RELEASE}/x86_64/module/nvidia.ko.zst": built,
        f"lib/firmware/nvidia/{node.driver}/gsp_ga10x.bin": "\x7fELF",
        f"lib/firmware/nvidia/{node.driver}/gsp_tu10x.bin": "\x7fELF",
        "etc/modprobe.d/nvidia-graphics-drivers.conf": "blacklist nouveau\noptions nouveau modeset=0\n",
        "usr/bin/nvidia-smi": "\x7fELF",
        "usr/bin/nvidia-modprobe": "\x7fELF",
    }


def _loaded(node: Node) -> _Tree:
    return capability_files(node) | {
        "proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {node.driver}  "
        "Release Build  (dvs-builder@U22-I3-AE18-23-3)\n"
        "GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)\n",
        "proc/driver/nvidia/params": "".join(f"{name}: {value}\n" for name, value in _PARAMETERS.items()),
        "sys/module/nvidia/version": f"{node.driver}\n",
    }


def _process() -> _Tree:
    """Who diagnoses: root."""
    return {
        "proc/self/status": "Name:\tgpuwatch\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n",
        "proc/self/limits": "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max locked memory         unlimited            unlimited            bytes     \n",
    }
