"""What ties a GPU to others: NVLink, the NVSwitch fabric, PCIe."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pynvml

from gpuwatch.sim.nvml.answers import Answer, fill, refuse, struct, where

if TYPE_CHECKING:
    from gpuwatch.sim.nvml import ResolvedDevice


def _link_state(d: "ResolvedDevice", link: int) -> int:
    if not 0 <= link < d.gpu.model.nvlinks:
        return refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT if d.gpu.model.nvlinks else pynvml.NVML_ERROR_NOT_SUPPORTED)
    return int(d.gpu.faults.link_active[link] and not d.gpu.mig_enabled)


def _link_remote(d: "ResolvedDevice", link: int) -> SimpleNamespace:
    if not _link_state(d, link):
        return refuse()
    return struct(busId=f"00000000:{5 + link % 4:02X}:00.0", domain=0, bus=5 + link % 4, device=0)


def _link_errors(d: "ResolvedDevice", link: int, counter: int) -> int:
    _link_state(d, link)
    if d.gpu.model.nvlink5:
        return refuse()
    names = ("replay", "recovery", "crc", "crc_data", "ecc_data")
    return d.gpu.faults.link_errors[link].get(names[counter], 0) if counter < len(names) else refuse()


def _fabric(d: "ResolvedDevice", pointer: Any) -> int:
    state, status, health = d.gpu.faults.fabric
    cluster = bytes(16)
    members = {"state": state, "status": status, "cliqueId": 0}
    contents = getattr(pointer, "contents", pointer)
    if hasattr(contents, "healthMask"):
        members["healthMask"] = health
    if hasattr(contents, "clusterUuid"):
        for i, byte in enumerate(cluster):
            contents.clusterUuid[i] = byte
    return fill(pointer, **members)


LINKS: dict[str, Answer] = {
    "nvmlDeviceGetGpuFabricInfoV": where(lambda d: d.gpu.model.fabric, _fabric),
    "nvmlDeviceGetGpuFabricInfo": where(lambda d: d.gpu.model.fabric, _fabric),
    "nvmlDeviceGetNvLinkState": _link_state,
    "nvmlDeviceGetNvLinkVersion": lambda d, link: d.gpu.model.nvlink_version if _link_state(d, link) else refuse(),
    "nvmlDeviceGetNvLinkRemotePciInfo": _link_remote,
    "nvmlDeviceGetNvLinkErrorCounter": _link_errors,
    "nvmlDeviceGetCurrPcieLinkGeneration": lambda d: d.gpu.faults.pcie_generation or d.gpu.model.pcie_generation,
    "nvmlDeviceGetCurrPcieLinkWidth": lambda d: d.gpu.faults.pcie_width or 16,
    "nvmlDeviceGetMaxPcieLinkGeneration": lambda d: d.gpu.model.pcie_generation,
    "nvmlDeviceGetMaxPcieLinkWidth": lambda d: 16,
    "nvmlDeviceGetPcieReplayCounter": lambda d: d.gpu.faults.pcie_replays,
}
"""Function -> answer."""
