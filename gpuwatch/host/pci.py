"""NVIDIA GPUs as the PCI bus and the kernel module see them, whatever NVML says.

A GPU that sysfs lists and NVML does not is broken, unbound or given to a virtual machine; only this file can tell.
"""

from pathlib import Path

import msgspec

from gpuwatch.host.pci_config import Aer, PciPort, aer, answers, iommu_domain, ports
from gpuwatch.host.plain_file import text
from gpuwatch.model.pci import PciAddress

_NVIDIA = "0x10de"
_DISPLAY_CLASS = "0x03"  # 0x0300 VGA, 0x0302 3D controller: the board's GPU, not its audio or USB function
_GENERATION_OF_SPEED = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}  # GT/s, PCIe specification


class BusGpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU on the bus. `driver`: nvidia, nouveau, vfio-pci, ... or None when nothing is bound. What is below
    `numa_node` takes longer and is only filled in by `examined_gpus`.
    """

    address: str  # 0000:3b:00.0
    device_id: str | None = None
    driver: str | None = None
    link_generation: int | None = None
    link_generation_max: int | None = None
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
    excluded: bool = False  # by NVreg_ExcludedGpus: the driver has it and lets nobody use it


def bus_gpus(devices: Path = Path("/sys/bus/pci/devices")) -> tuple[BusGpu, ...] | None:
    """Physical NVIDIA GPUs by address; None when the bus cannot be read. Virtual functions are left out."""
    try:
        folders = sorted(devices.iterdir())
    except OSError:
        return None
    return tuple(_bus_gpu(folder) for folder in folders if _is_physical_gpu(folder))


def examined_gpus(devices: Path = Path("/sys/bus/pci/devices")) -> tuple[BusGpu, ...] | None:
    """As `bus_gpus`, with what the devices themselves say: for a diagnosis."""
    found = bus_gpus(devices)
    return None if found is None else tuple(_examined(gpu, devices / gpu.address) for gpu in found)


def driver_gpus(gpus: Path = Path("/proc/driver/nvidia/gpus")) -> tuple[DriverGpu, ...]:
    """GPUs the kernel module knows; empty without the module. GPUs of a crashed driver may lack uuid and minor."""
    try:
        folders = sorted(gpus.iterdir())
    except OSError:
        return ()
    return tuple(_driver_gpu(folder) for folder in folders)


def _is_physical_gpu(folder: Path) -> bool:
    ours = text(folder / "vendor") == _NVIDIA and (text(folder / "class") or "").startswith(_DISPLAY_CLASS)
    return ours and not (folder / "physfn").exists()


def _bus_gpu(folder: Path) -> BusGpu:
    driver = folder / "driver"
    return BusGpu(
        address=_canonical(folder.name),
        device_id=text(folder / "device"),
        driver=driver.resolve().name if driver.exists() else None,
        link_generation=_generation(folder / "current_link_speed"),
        link_generation_max=_generation(folder / "max_link_speed"),
        link_width=_width(folder / "current_link_width"),
        link_width_max=_width(folder / "max_link_width"),
        numa_node=_number(folder / "numa_node"),
    )


def _examined(gpu: BusGpu, folder: Path) -> BusGpu:
    return msgspec.structs.replace(
        gpu, answers=answers(folder), aer=aer(folder), ports=ports(folder), iommu=iommu_domain(folder)
    )


def _driver_gpu(folder: Path) -> DriverGpu:
    rows = (line.partition(":") for line in (text(folder / "information") or "").splitlines())
    facts = {name.strip(): value.strip() for name, _, value in rows}
    uuid, minor = facts.get("GPU UUID", ""), facts.get("Device Minor", "")
    return DriverGpu(
        address=_canonical(folder.name),
        uuid=uuid if uuid.startswith("GPU-") and "?" not in uuid else None,
        minor=int(minor) if minor.isdecimal() else None,
        model=facts.get("Model") or None,
        excluded=facts.get("GPU Excluded") == "Yes",
    )


def _canonical(name: str) -> str:
    try:
        return str(PciAddress.parse(name))
    except ValueError:
        return name


def _generation(file: Path) -> int | None:
    """`16.0 GT/s PCIe` -> 4; `Unknown` or a dead link -> None."""
    return _GENERATION_OF_SPEED.get((text(file) or "").split(" ")[0])


def _width(file: Path) -> int | None:
    """Lanes; the kernel writes 0 or 255 for a link it cannot ask."""
    lanes = _number(file)
    return lanes if lanes and lanes <= 32 else None


def _number(file: Path) -> int | None:
    """A non-negative number; the kernel writes -1 for no NUMA node."""
    number = text(file) or ""
    return int(number) if number.isdecimal() else None
