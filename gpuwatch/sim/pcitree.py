"""The simulated node's GPUs as sysfs and the kernel module show them.

<root>/sys/bus/pci/devices/<address>/{vendor,device,class,numa_node,*_link_speed,*_link_width,driver}
<root>/proc/driver/nvidia/gpus/<address>/information
<root>/proc/sys/kernel/random/boot_id
<root>/dev/nvidia<minor>, which stays when its GPU is gone
"""

import shutil
from pathlib import Path

from gpuwatch.sim.gpu import SimGpu
from gpuwatch.sim.node import Node

SPEEDS = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}
"""GT/s by PCIe generation."""


class PciTree:
    """Keeps the files in step with the node last shown."""

    def __init__(self, root: Path) -> None:
        self.sys = root / "sys"
        self._devices = self.sys / "bus/pci/devices"
        self._driver = self.sys / "bus/pci/drivers/nvidia"
        self._module = root / "proc/driver/nvidia/gpus"
        self._files = root / "dev"
        self._shown: dict[Path, str] = {}
        for folder in (self._devices, self._driver, self._module, self._files):
            folder.mkdir(parents=True, exist_ok=True)

    def show(self, node: Node) -> None:
        """Write what differs from before; a GPU that left the bus or the driver disappears."""
        wanted: dict[Path, str] = {}
        for gpu in node.gpus:
            (self._files / f"nvidia{gpu.index}").touch()
            if not gpu.faults.off_bus:
                wanted |= self._device(gpu)
            if node.driver_up and gpu.attached and not gpu.faults.off_bus:
                wanted[self._module / str(gpu.address) / "information"] = _information(gpu)
        for path, text in wanted.items():
            if self._shown.get(path) != text:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        for folder in {path.parent for path in self._shown} - {path.parent for path in wanted}:
            shutil.rmtree(folder, ignore_errors=True)
        self._bind(node)
        self._shown = wanted

    def _device(self, gpu: SimGpu) -> dict[Path, str]:
        folder, model, faults = self._devices / str(gpu.address), gpu.model, gpu.faults
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
        }
        return {folder / name: text + "\n" for name, text in texts.items()}

    def _bind(self, node: Node) -> None:
        """A device has a `driver` link while the module is loaded."""
        for gpu in node.gpus:
            link = self._devices / str(gpu.address) / "driver"
            if not node.driver_up:
                link.unlink(missing_ok=True)
            elif link.parent.is_dir() and not link.is_symlink():
                link.symlink_to(self._driver)


def _information(gpu: SimGpu) -> str:
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
    return "".join(f"{name + ':':<16} {text}\n" for name, text in rows.items())
