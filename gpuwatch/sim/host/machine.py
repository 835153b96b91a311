"""Kernel, modules, libraries and device files of the simulated host."""

from gpuwatch.sim.host.files import Files, Link
from gpuwatch.sim.node import Node

RELEASE = "6.8.0-51-generic"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
_NAMES = ("libnvidia-ml.so", "libcuda.so", "libnvidia-ptxjitcompiler.so")
_UVM, _CAPS, _IMEX, _FRONTEND = 508, 234, 235, 195
_MODULES = (
    ("nvidia_uvm", 2076672, 4, "-"),
    ("nvidia_drm", 135168, 0, "-"),
    ("nvidia_modeset", 1572864, 1, "nvidia_drm,"),
    ("nvidia_peermem", 16384, 0, "-"),
    ("nvidia", 11575296, 121, "nvidia_uvm,nvidia_peermem,nvidia_modeset,"),
)
_OTHERS = ("overlay 212992 35 - Live 0x0000000000000000\n", "br_netfilter 32768 0 - Live 0x0000000000000000\n")


def machine(node: Node) -> Files:
    """The files."""
    return _kernel() | _on_disk(node) | (_loaded(node) if node.driver_up else _unloaded())


def _kernel() -> dict[str, str | Link]:
    return {
        "proc/sys/kernel/osrelease": f"{RELEASE}\n",
        "proc/cmdline": f"BOOT_IMAGE=/boot/vmlinuz-{RELEASE} root=/dev/sda2 ro iommu=pt pci=realloc=off\n",
        "etc/modprobe.d/nvidia-graphics-drivers.conf": "blacklist nouveau\noptions nouveau modeset=0\n",
    }


def _on_disk(node: Node) -> dict[str, str | Link]:
    modules = f"lib/modules/{RELEASE}"
    links = {f"{LIBRARIES}/{name}.1": Link(f"{name}.{node.driver}") for name in _NAMES}
    return (
        links
        | {f"{LIBRARIES}/{name}.{node.driver}": "\x7fELF" for name in _NAMES}
        | {
            f"{modules}/modules.dep": "kernel/net/bridge/bridge.ko.zst: kernel/net/llc/llc.ko.zst\n"
            "updates/dkms/nvidia.ko.zst:\nupdates/dkms/nvidia-uvm.ko.zst: updates/dkms/nvidia.ko.zst\n",
            f"{modules}/updates/dkms/nvidia.ko.zst": "(\ufffd/",
            f"{modules}/build/Makefile": "VERSION = 6\n",
            f"var/lib/dkms/nvidia/{node.driver}/{RELEASE}/x86_64/module/nvidia.ko.zst": "(\ufffd/",
            "usr/bin/nvidia-smi": "#!/bin/sh\n",
            "usr/bin/nvidia-modprobe": "#!/bin/sh\n",
        }
    )


def _loaded(node: Node) -> dict[str, str | Link]:
    lines = (f"{name} {size} {uses} {by} Live 0x0000000000000000 (OE)\n" for name, size, uses, by in _MODULES)
    return {
        "proc/modules": "".join((*lines, *_OTHERS)),
        "proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {node.driver}  "
        "Release Build  (dvs-builder@U22-I3-AE18-23-3)\n"
        "GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)\n",
        "sys/module/nvidia/version": f"{node.driver}\n",
    }


def _unloaded() -> dict[str, str | Link]:
    return {"proc/modules": "".join(_OTHERS)}
