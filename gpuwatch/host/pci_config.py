"""What only a PCI device's configuration space and its neighbours in sysfs tell: does it answer, what went wrong on its
link, and through which ports its traffic goes.

Register numbers are those of the PCI Express Base Specification and of Linux's pci_regs.h.
"""

import re
from pathlib import Path
from typing import Literal

from gpuwatch.host.plain_file import content, text
from gpuwatch.model.snapshot import Record

_DEAD = b"\xff\xff\xff\xff"  # what the root complex answers in place of a device that does not
_ASLEEP = "D3cold"  # without power; since Linux 5.11
_FIRST_CAPABILITY, _PCI_EXPRESS = 0x34, 0x10
_FIRST_EXTENDED, _ACS = 0x100, 0x000D
_REDIRECTS = 0x04 | 0x08  # P2P Request Redirect, P2P Completion Redirect
_MOST_CAPABILITIES = 96
_EMULATED = frozenset({"0x1b36", "0x15ad", "0x1414", "0x1af4", "0x1d0f"})  # QEMU, VMware, Hyper-V, virtio, AWS Nitro
_PORTS: dict[int, "PortKind"] = {4: "root", 5: "upstream", 6: "downstream"}
_FUNCTION = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]", re.ASCII)

PortKind = Literal["root", "upstream", "downstream"]


class Aer(Record, frozen=True, kw_only=True):
    """Errors that Advanced Error Reporting has counted since the device was found, by name; those at 0 are left out."""

    correctable: dict[str, int] = {}
    nonfatal: dict[str, int] = {}
    fatal: dict[str, int] = {}


class PciPort(Record, frozen=True, kw_only=True):
    """A bridge above a GPU; one that a hypervisor makes up tells no lanes. `redirects`: its ACS sends traffic between
    devices below it up to the root complex.
    """

    address: str
    kind: PortKind | None = None
    redirects: bool | None = None
    aer: Aer | None = None
    link_width_max: int | None = None  # lanes of the slot below it


def answers(device: Path) -> bool | None:
    """Whether the device is still there for those who ask it; None: nobody lets us ask."""
    head = _config(device, 4)
    return head != _DEAD if len(head) == 4 else None


def aer(device: Path) -> Aer | None:
    """Its counters; None where the kernel counts none (no AER, or firmware handles it)."""
    kinds = {kind: _counters(device / f"aer_dev_{kind}") for kind in ("correctable", "nonfatal", "fatal")}
    found = {kind: counts for kind, counts in kinds.items() if counts is not None}
    return Aer(**found) if found else None


def ports(device: Path) -> tuple[PciPort, ...]:
    """The bridges above a device, the nearest first: the folders it lies in."""
    folders = [folder for folder in device.resolve().parents if _FUNCTION.fullmatch(folder.name)]
    return tuple(_port(folder) for folder in folders)


def iommu_domain(device: Path) -> str | None:
    """`identity` (iommu=pt), `DMA` or `DMA-FQ` (addresses are translated); None: no IOMMU is on."""
    return text(device / "iommu_group/type") or None


def port_kind(config: bytes) -> PortKind | None:
    """From the PCI Express capability; None where there is none, or too little could be read."""
    at, seen = _byte(config, _FIRST_CAPABILITY) & 0xFC, 0
    while at and seen < _MOST_CAPABILITIES:
        if _byte(config, at) == _PCI_EXPRESS:
            return _PORTS.get(_byte(config, at + 2) >> 4)
        at, seen = _byte(config, at + 1) & 0xFC, seen + 1
    return None


def acs_redirects(config: bytes) -> bool | None:
    """From the ACS control register; None where only the first 64 bytes may be read, as by anybody but root."""
    if len(config) <= _FIRST_EXTENDED:
        return None
    at, seen = _FIRST_EXTENDED, 0
    while at >= _FIRST_EXTENDED and seen < _MOST_CAPABILITIES:
        header = int.from_bytes(config[at : at + 4], "little")
        if header & 0xFFFF == _ACS:
            return bool(_byte(config, at + 6) & _REDIRECTS)
        at, seen = header >> 20 & 0xFFC, seen + 1
    return False


def _port(folder: Path) -> PciPort:
    config = _config(folder, 4096) if answers(folder) else b""  # a dead one keeps every read until it times out
    return PciPort(
        address=folder.name,
        kind=port_kind(config),
        redirects=acs_redirects(config),
        aer=aer(folder),
        link_width_max=None if text(folder / "vendor") in _EMULATED else _lanes(text(folder / "max_link_width")),
    )


def _lanes(number: str | None) -> int | None:
    """The kernel writes 0 or 255 for a link it cannot ask."""
    lanes = int(number) if number and number.isdecimal() else 0
    return lanes if 0 < lanes <= 32 else None


def _config(device: Path, size: int) -> bytes:
    """Empty where it may not be read, or the device would have to be woken for it."""
    if text(device / "power_state") == _ASLEEP:
        return b""
    try:
        return content(device / "config", size)
    except OSError:
        return b""


def _counters(file: Path) -> dict[str, int] | None:
    """`BadTLP 3` lines; the last one is their sum."""
    found = text(file)
    if found is None:
        return None
    rows = (line.split() for line in found.splitlines())
    return {
        row[0]: int(row[1])
        for row in rows
        if len(row) == 2 and row[1].isdecimal() and not row[0].startswith("TOTAL_") and row[1].strip("0")
    }


def _byte(data: bytes, at: int) -> int:
    return data[at] if at < len(data) else 0
