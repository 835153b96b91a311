"""What carries data between GPUs and to other nodes: NVSwitches, RDMA adapters, and the ConnectX that manages switches.

Up to Hopper an NVSwitch is a PCI device of its own. Those of NVLink 5 (HGX B200 and newer) are seen only through
functions of a ConnectX-7 whose vital product data say SW_MNG, as nvidia-fabricmanager-start.sh looks for them.
"""

from collections.abc import Iterator
from pathlib import Path

from gpuwatch.host.plain_file import plain, text
from gpuwatch.model.snapshot import Record

NVIDIA, MELLANOX = "0x10de", "0x15b3"
_BRIDGE_CLASS = "0x0680"  # PCI: other bridge
_ETHERNET, _INFINIBAND = "0x0200", "0x0207"
_MANAGES_SWITCHES = b"SW_MNG"
_VPD_BYTES = 1024
"""The device gives its product data a few bytes at a time; the field stands early in them."""


class Adapter(Record, frozen=True, kw_only=True):
    """One function of a network adapter that can do RDMA. `driver`: mlx5_core, efa, ...; None: nothing is bound.
    `infiniband`: it speaks InfiniBand, not Ethernet; `rdma`: its devices for RDMA, mlx5_0 for one;
    `manages_switches`: it carries no user's data.
    """

    address: str
    driver: str | None = None
    infiniband: bool = False
    rdma: tuple[str, ...] = ()
    virtual: bool = False
    manages_switches: bool = False


def nvswitches(sys: Path) -> int | None:
    """NVSwitches on the PCI bus; None when the bus cannot be read."""
    folders = _devices(sys)
    if folders is None:
        return None
    return sum(text(f / "vendor") == NVIDIA and (text(f / "class") or "").startswith(_BRIDGE_CLASS) for f in folders)


def adapters(sys: Path) -> tuple[Adapter, ...] | None:
    """Functions of ConnectX, and whatever else has an InfiniBand device; None when the bus cannot be read."""
    folders = _devices(sys)
    return None if folders is None else tuple(_adapters(folders))


def user_mad(sys: Path) -> bool:
    """Whether user space can send InfiniBand management datagrams: what the module ib_umad is for."""
    return any(name.startswith("umad") for name in _names(sys / "class/infiniband_mad"))


def _adapters(folders: list[Path]) -> Iterator[Adapter]:
    for folder in folders:
        kind = (text(folder / "class") or "")[:6]
        if kind not in (_ETHERNET, _INFINIBAND):
            continue
        rdma = _names(folder / "infiniband")
        is_connectx = text(folder / "vendor") == MELLANOX
        if not is_connectx and not rdma:
            continue
        driver = folder / "driver"
        yield Adapter(
            address=folder.name,
            driver=driver.readlink().name if driver.is_symlink() else None,
            infiniband=kind == _INFINIBAND,
            rdma=rdma,
            virtual=(folder / "physfn").exists(),
            manages_switches=is_connectx and kind == _INFINIBAND and _MANAGES_SWITCHES in _vpd(folder),
        )


def _devices(sys: Path) -> list[Path] | None:
    try:
        return sorted((sys / "bus/pci/devices").iterdir())
    except OSError:
        return None


def _vpd(folder: Path) -> bytes:
    try:
        with open(folder / "vpd", "rb", buffering=0, opener=plain) as file:
            return file.read(_VPD_BYTES) or b""
    except OSError:  # for root alone, and some functions have none
        return b""


def _names(folder: Path) -> tuple[str, ...]:
    try:
        return tuple(sorted(entry.name for entry in folder.iterdir()))
    except OSError:
        return ()
