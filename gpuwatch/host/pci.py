"""NVIDIA GPUs as the PCI bus and the kernel module list them, whatever NVML reports.

A GPU that sysfs lists and NVML does not is broken, unbound or given to a virtual machine; only this file shows which.
"""

import re
from pathlib import Path
from typing import Literal

import msgspec

from gpuwatch.host.plain_file import content, entries, text
from gpuwatch.model.pci import PciAddress
from gpuwatch.model.snapshot import Record
from gpuwatch.model.text import number

_DEAD = b"\xff\xff\xff\xff"  # what the root complex returns for a device that does not answer
_POWERED_OFF = "D3cold"  # without power; since Linux 5.11
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
    """A bridge above a GPU; one that a hypervisor emulates has no lanes. `redirects`: its ACS sends traffic between
    devices below it up to the root complex.
    """

    address: str
    kind: PortKind | None = None
    redirects: bool | None = None
    aer: Aer | None = None
    link_width_max: int | None = None  # lanes of the slot below it


def answers(device: Path) -> bool | None:
    """Whether the device still answers; None: its configuration space cannot be read."""
    head = _config(device, 4)
    return head != _DEAD if len(head) == 4 else None


def aer(device: Path) -> Aer | None:
    """The device's counters; None where the kernel keeps none (no AER, or firmware handles it)."""
    kinds: dict[str, dict[str, int]] = {}
    for kind in ("correctable", "nonfatal", "fatal"):
        found = text(device / f"aer_dev_{kind}")
        if found is None:
            continue
        rows = (line.split() for line in found.splitlines())  # such as `BadTLP 3`; the last one is their sum
        kinds[kind] = {
            row[0]: count
            for row in rows
            if len(row) == 2 and not row[0].startswith("TOTAL_") and (count := number(row[1]))
        }
    return Aer(**kinds) if kinds else None


def ports(device: Path) -> tuple[PciPort, ...]:
    """The bridges above a device, the nearest first: the parent folders of its own in sysfs."""
    found: list[PciPort] = []
    for folder in device.resolve().parents:
        if not _FUNCTION.fullmatch(folder.name):
            continue
        config = _config(folder, 4096) if answers(folder) else b""  # each read of a dead one blocks until it times out
        found.append(
            PciPort(
                address=folder.name,
                kind=port_kind(config),
                redirects=acs_redirects(config),
                aer=aer(folder),
                link_width_max=None if text(folder / "vendor") in _EMULATED else _width(folder / "max_link_width"),
            )
        )
    return tuple(found)


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
    """From the ACS control register; None where only the first 64 bytes may be read, as by any user but root."""
    if len(config) <= _FIRST_EXTENDED:
        return None
    at, seen = _FIRST_EXTENDED, 0
    while at >= _FIRST_EXTENDED and seen < _MOST_CAPABILITIES:
        header = int.from_bytes(config[at : at + 4], "little")
        if header & 0xFFFF == _ACS:
            return bool(_byte(config, at + 6) & _REDIRECTS)
        at, seen = header >> 20 & 0xFFC, seen + 1
    return False


def _config(device: Path, size: int) -> bytes:
    """Empty where it may not be read, or where reading it would wake the device."""
    if text(device / "power_state") == _POWERED_OFF:
        return b""
    try:
        return content(device / "config", size)
    except OSError:
        return b""


def _byte(data: bytes, at: int) -> int:
    return data[at] if at < len(data) else 0


_NVIDIA = "0x10de"
_DISPLAY_CLASS = "0x03"  # 0x0300 VGA, 0x0302 3D controller: the board's GPU, not its audio or USB function


class BusGpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU on the bus. `driver`: nvidia, nouveau, vfio-pci, ... or None when nothing is bound. The fields
    below `numa_node` take longer; only `examined_gpus` fills them in.
    """

    address: str  # 0000:3b:00.0
    device_id: str | None = None
    driver: str | None = None
    link_width: int | None = None
    link_width_max: int | None = None
    numa_node: int | None = None
    answers: bool | None = None
    aer: Aer | None = None
    ports: tuple[PciPort, ...] = ()  # the bridges above it, the nearest first
    iommu: str | None = None  # how the IOMMU treats it: identity, DMA, DMA-FQ


class DriverGpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as the kernel module lists it in /proc/driver/nvidia/gpus."""

    address: str
    uuid: str | None = None
    minor: int | None = None
    model: str | None = None
    excluded: bool = False  # by NVreg_ExcludedGpus: the driver has it and allows no use of it


def bus_gpus(devices: Path = Path("/sys/bus/pci/devices")) -> tuple[BusGpu, ...] | None:
    """Physical NVIDIA GPUs by address; None when the bus cannot be read. Virtual functions are left out."""
    folders = entries(devices)
    if folders is None:
        return None
    found: list[BusGpu] = []
    for folder in folders:
        is_gpu = text(folder / "vendor") == _NVIDIA and (text(folder / "class") or "").startswith(_DISPLAY_CLASS)
        if not is_gpu or (folder / "physfn").exists():
            continue
        driver = folder / "driver"
        found.append(
            BusGpu(
                address=_canonical(folder.name),
                device_id=text(folder / "device"),
                driver=driver.resolve().name if driver.exists() else None,
                link_width=_width(folder / "current_link_width"),
                link_width_max=_width(folder / "max_link_width"),
                numa_node=number(text(folder / "numa_node")),  # the kernel writes -1 for none
            )
        )
    return tuple(found)


def examined_gpus(devices: Path = Path("/sys/bus/pci/devices")) -> tuple[BusGpu, ...] | None:
    """As `bus_gpus`, with what the devices themselves report, for a diagnosis."""
    found = bus_gpus(devices)
    if found is None:
        return None
    examined = []
    for gpu in found:
        at = devices / gpu.address
        facts = {"answers": answers(at), "aer": aer(at), "ports": ports(at), "iommu": iommu_domain(at)}
        examined.append(msgspec.structs.replace(gpu, **facts))
    return tuple(examined)


def driver_gpus(gpus: Path = Path("/proc/driver/nvidia/gpus")) -> tuple[DriverGpu, ...]:
    """GPUs that the kernel module lists; empty without the module. GPUs of a crashed driver may lack uuid and minor.

    A wedged driver may block the caller for ever: `gpuwatch.agent.driver_gpus` reads the same in a child process.
    """
    return tuple(driver_gpu(each.name, text(each / "information") or "") for each in entries(gpus) or ())


def driver_gpu(name: str, information: str) -> DriverGpu:
    """One GPU from the name of its folder and the text of the file `information` in it."""
    rows = (line.partition(":") for line in information.splitlines())
    facts = {name.strip(): value.strip() for name, _, value in rows}
    uuid = facts.get("GPU UUID", "")
    return DriverGpu(
        address=_canonical(name),
        uuid=uuid if uuid.startswith("GPU-") and "?" not in uuid else None,
        minor=number(facts.get("Device Minor")),
        model=facts.get("Model") or None,
        excluded=facts.get("GPU Excluded") == "Yes",
    )


def _canonical(name: str) -> str:
    try:
        return str(PciAddress.parse(name))
    except ValueError:
        return name


def _width(file: Path) -> int | None:
    """Lanes; the kernel writes 0 or 255 for a link that it cannot query."""
    lanes = number(text(file))
    return lanes if lanes and lanes <= 32 else None
