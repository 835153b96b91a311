"""The simulated node's GPUs as sysfs and the kernel module show them.

<root>/sys/devices/pci<domain>:<bus>/<root port>/.../<address>/{vendor,device,class,config,numa_node,aer_dev_*,
    *_link_speed,*_link_width,driver}, and links to them in <root>/sys/bus/pci/devices
<root>/proc/driver/nvidia/gpus/<address>/information
<root>/proc/sys/kernel/random/boot_id
<root>/dev/nvidia<minor>, which stays when its GPU is gone
"""

import os
import shutil
import struct
from pathlib import Path

from gpuwatch.model.pci import PciAddress
from gpuwatch.sim.node.gpu import SimGpu
from gpuwatch.sim.node.node import SimNode
from gpuwatch.sim.node.profiles import Model

SPEEDS = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}
"""GT/s by PCIe generation."""

PORT_TYPES = {"root": 4, "upstream": 5, "downstream": 6}
_EXPRESS_AT, _AER_AT, _ACS_AT, _SIZE = 0x40, 0x100, 0x148, 0x200
SOURCE_VALIDATION, REQUEST_REDIRECT, COMPLETION_REDIRECT = 0x01, 0x04, 0x08

_CORRECTABLE = "RxErr BadTLP BadDLLP Rollover Timeout NonFatalErr CorrIntErr HeaderOF"
_UNCORRECTABLE = (
    "Undefined DLP SDES TLP FCP CmpltTO CmpltAbrt UnxCmplt RxOF MalfTLP ECRC UnsupReq ACSViol UncorrIntErr BlockedTLP "
    "AtomicOpBlocked TLPBlockedErr"
)
AER = {
    f"aer_dev_{kind}": "".join(f"{name} 0\n" for name in (*names.split(), f"TOTAL_ERR_{total}"))
    for kind, names, total in (
        ("correctable", _CORRECTABLE, "COR"),
        ("fatal", _UNCORRECTABLE, "FATAL"),
        ("nonfatal", _UNCORRECTABLE, "NONFATAL"),
    )
}


class PciTree:
    """Updates the files to the node last shown."""

    def __init__(self, root: Path) -> None:
        self.sys = root / "sys"
        self._devices = self.sys / "bus/pci/devices"
        self._driver = self.sys / "bus/pci/drivers/nvidia"
        self._module = root / "proc/driver/nvidia/gpus"
        self._files = root / "dev"
        self._shown: dict[Path, bytes] = {}
        for folder in (self._devices, self._driver, self._module, self._files):
            folder.mkdir(parents=True, exist_ok=True)

    def show(self, node: SimNode) -> None:
        """Write the files that changed; those of a GPU that left the bus or the driver are removed."""
        wanted: dict[Path, bytes] = {}
        for gpu in node.gpus:
            (self._files / f"nvidia{gpu.index}").touch()
            wanted |= self._ports(gpu)
            if not gpu.faults.off_bus:
                wanted |= self._device(gpu)
            if node.driver_up and gpu.attached and not gpu.faults.off_bus:
                rows = {
                    "Model": gpu.model.name,
                    "IRQ": str(100 + gpu.index),
                    "GPU UUID": gpu.uuid,
                    "Video BIOS": gpu.model.vbios,
                    "Bus Type": "PCIe",
                    "Bus Location": str(gpu.address),
                    "Device Minor": str(gpu.index),
                    "GPU Excluded": "No",
                }
                wanted[self._module / str(gpu.address) / "information"] = "".join(
                    f"{name + ':':<16} {text}\n" for name, text in rows.items()
                ).encode()
        for path, content in wanted.items():
            if self._shown.get(path) != content:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        for folder in {path.parent for path in self._shown} - {path.parent for path in wanted}:
            shutil.rmtree(folder, ignore_errors=True)
        self._shown = wanted
        self._link(node, {path.parent for path in wanted if path.name == "config"})

    def _folders(self, gpu: SimGpu) -> list[Path]:
        """Folders of the ports above a GPU, the root port first, and of the GPU. An HGX board has switches."""
        domain, bus = gpu.address.domain, gpu.address.bus
        places = ((bus - 4, 1), (bus - 2, 0), (bus - 1, 0)) if gpu.model.nvlinks else ((bus - 4, 1),)
        folders = [self.sys / f"devices/pci{domain:04x}:{bus - 4:02x}"]
        for address in (*(PciAddress(domain, *place) for place in places), gpu.address):
            folders.append(folders[-1] / str(address))
        return folders[1:]

    def _ports(self, gpu: SimGpu) -> dict[Path, bytes]:
        kinds = ("root", "upstream", "downstream")
        return {
            folder / name: content
            for kind, folder in zip(kinds, self._folders(gpu)[:-1], strict=False)
            for name, content in {
                "vendor": b"0x8086\n" if kind == "root" else b"0x1000\n",
                "class": b"0x060400\n",
                "max_link_width": b"16\n",
                "config": port_config(kind),
            }.items()
        }

    def _device(self, gpu: SimGpu) -> dict[Path, bytes]:
        folder, model, faults = self._folders(gpu)[-1], gpu.model, gpu.faults
        speed = "Unknown" if faults.lost else SPEEDS[faults.pcie_generation or model.pcie_generation] + " GT/s PCIe"
        texts = {
            "vendor": "0x10de",
            "device": f"0x{model.device_id >> 16:04x}",
            "class": "0x030200",
            "numa_node": str(gpu.index // 4),
            "current_link_speed": speed,
            "max_link_speed": f"{SPEEDS[model.pcie_generation]} GT/s PCIe",
            "current_link_width": "63" if faults.lost else str(faults.pcie_width or 16),
            "max_link_width": "16",
            "iommu_group/type": "identity",
        } | {name: text.rstrip("\n") for name, text in AER.items()}
        files = {folder / name: f"{text}\n".encode() for name, text in texts.items()}
        return files | {folder / "config": gpu_config(model, answers=not faults.lost)}

    def _link(self, node: SimNode, folders: set[Path]) -> None:
        for link in self._devices.iterdir():  # each device on the bus has one
            if link.is_symlink() and not link.exists():
                link.unlink()
        for folder in folders:
            link = self._devices / folder.name
            if not link.is_symlink():
                link.symlink_to(Path("../../..", folder.relative_to(self.sys)))
        for gpu in node.gpus:  # a device has a `driver` link while the module is loaded and has taken it
            link = self._devices / str(gpu.address) / "driver"
            if not (node.driver_up and gpu.attached):
                link.unlink(missing_ok=True)
            elif link.parent.is_dir() and not link.is_symlink():
                link.symlink_to(os.path.relpath(self._driver.resolve(), link.parent.resolve()))


def gpu_config(model: Model, answers: bool) -> bytes:
    """The configuration space of a GPU; all ones when it is gone."""
    if not answers:
        return b"\xff" * _SIZE
    config = _config(0x10DE, model.device_id >> 16, 0x030200, port_type=0)
    struct.pack_into("<HH", config, 0x2C, model.subsystem_id & 0xFFFF, model.subsystem_id >> 16)
    return bytes(config)


def port_config(kind: str, acs: int = 0) -> bytes:
    """That of a root port (Intel) or one of a switch (Broadcom), with its ACS control register."""
    vendor, device = (0x8086, 0x352A) if kind == "root" else (0x1000, 0xC030)
    config = _config(vendor, device, 0x060400, PORT_TYPES[kind])
    struct.pack_into("<IHH", config, _ACS_AT, 0x1000D, 0x5F, acs)
    return bytes(config)


def _config(vendor: int, device: int, class_: int, port_type: int) -> bytearray:
    config = bytearray(_SIZE)
    struct.pack_into("<HHHHI", config, 0, vendor, device, 0x0406, 0x0010, class_ << 8 | 0xA1)
    config[0x34] = _EXPRESS_AT
    struct.pack_into("<BBH", config, _EXPRESS_AT, 0x10, 0, port_type << 4 | 2)
    struct.pack_into("<I", config, _AER_AT, _ACS_AT << 20 | 0x20001)
    return config
