"""Hosts on which checks fail: PCI bus, kernel, driver, device files."""

from tests.diagnose.broken import Broken
from tests.diagnose.hosts import Host


def _no_gpus(host: Host) -> None:
    host.remove("sys/bus/pci/devices")
    (host.root / "sys/bus/pci/devices").mkdir()


def _unload(host: Host) -> None:
    host.write("proc/modules", "overlay 212992 35 - Live 0x0000000000000000\n")
    host.remove("proc/driver/nvidia/version")
    host.remove("sys/module/nvidia")


BROKEN: tuple[Broken, ...] = (
    Broken("H01", _no_gpus, says="no NVIDIA GPU on the PCI bus", remedy="lspci"),
    Broken("D01", _unload, says="not loaded", remedy="modprobe nvidia"),
)
