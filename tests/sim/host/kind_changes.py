"""What makes one kind of healthy node of another, one function each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.sim.host.machine import LIBRARIES
from tests.diagnose.hosts import Host

BUS = "sys/bus/pci/devices"

Change = Callable[[Host], None]


def every_gpu(**changes: Any) -> Change:
    """Readings of all GPUs."""

    def change(host: Host) -> None:
        assert host.view is not None
        for gpu in host.view.snapshot.gpus:
            host.gpu(gpu.identity.index, **changes)
        host.earlier = host.view

    return change


def identified(**changes: Any) -> Change:
    """Who all GPUs say they are."""

    def change(host: Host) -> None:
        assert host.view is not None
        for gpu in host.view.snapshot.gpus:
            host.gpu(gpu.identity.index, identity=msgspec.structs.replace(gpu.identity, **changes))
        host.earlier = host.view

    return change


def of_cluster(**changes: Any) -> Change:
    """What the API says."""

    def change(host: Host) -> None:
        assert host.cluster is not None
        host.cluster = msgspec.structs.replace(host.cluster, **changes)

    return change


def of_node(**changes: Any) -> Change:
    """What the Node says."""

    def change(host: Host) -> None:
        assert host.cluster is not None
        host.cluster = msgspec.structs.replace(host.cluster, node=msgspec.structs.replace(host.cluster.node, **changes))

    return change


def gone(*paths: str) -> Change:
    """What such a node does not have."""

    def change(host: Host) -> None:
        for path in paths:
            if (host.root / path).exists() or (host.root / path).is_symlink():
                host.remove(path)

    return change


def devices(name: str, content: str) -> Change:
    """A file of each GPU in sysfs."""

    def change(host: Host) -> None:
        for folder in (host.root / BUS).iterdir():
            if (folder / "numa_node").exists():
                (folder.resolve() / name).write_text(content)

    return change


def unseen_ports(host: Host) -> None:
    """A hypervisor gives each GPU a place of its own: no bridge of the host is there, and no error counters."""
    for link in sorted((host.root / BUS).iterdir()):
        target = link.resolve()
        if not (target / "numa_node").exists():
            if link.is_symlink():
                link.unlink()
            continue
        link.unlink()
        place = host.root / "sys/devices/pci0000:00" / link.name
        place.parent.mkdir(parents=True, exist_ok=True)
        target.rename(place)
        if (driver := place / "driver").is_symlink():  # relative, as sysfs has it: it led from another depth
            name = driver.readlink().name
            driver.unlink()
            driver.symlink_to(f"/sys/bus/pci/drivers/{name}")
        link.symlink_to(f"/{place.relative_to(host.root)}")
        for file in (*place.glob("aer_*"), place / "config"):
            file.unlink()


def moved(root: str, *, libraries: str = "usr/lib64") -> Change:
    """The driver's user space lies elsewhere."""

    def change(host: Host) -> None:
        folder = host.root / root.lstrip("/") / libraries
        folder.mkdir(parents=True)
        for file in sorted((host.root / LIBRARIES).glob("lib*")):
            file.rename(folder / file.name)
        host.remove("usr/bin/nvidia-smi")
        host.remove("usr/bin/nvidia-modprobe")
        firmware = Path(host.root, root.lstrip("/"), "lib/firmware")
        firmware.parent.mkdir(parents=True, exist_ok=True)
        (host.root / "lib/firmware").rename(firmware)

    return change
