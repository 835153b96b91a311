"""The answers of a simulated GPU to NVML functions: identity, use, memory, NVLink, fabric and PCIe.

A function that a model lacks is refused as the real driver does (NOT_SUPPORTED); so is a function in no table.
"""

from types import SimpleNamespace
from typing import Any

import pynvml

from gpuwatch.collect.nvml import decode as nvml_decode
from gpuwatch.sim.nvml.board import BOARD
from gpuwatch.sim.nvml.counters import COUNTERS, KIB
from gpuwatch.sim.nvml.driver import (
    MIB,
    Answer,
    Handle,
    ResolvedDevice,
    answers,
    fill,
    only_where,
    refuse,
    struct,
    whole_only,
)
from gpuwatch.sim.nvml.ecc import ECC

COMPUTE_MODES = {mode: number for number, mode in nvml_decode.COMPUTE_MODES.items()}
LINK_ERRORS = ("replay", "recovery", "crc", "crc_data", "ecc_data")
"""By nvmlNvLinkErrorCounter_t."""
SWITCH = 2
"""nvmlIntNvLinkDeviceType_t."""
INFOROM_OBJECTS = ("2.1", "7.16", "N/A")
"""By nvmlInforomObject_t: OEM, ECC, power."""


def _engine(name: str) -> Answer:
    return whole_only(lambda d: [round(100 * min(1.0, getattr(d.physics.load, name, 0.0))), 167_000])


def _link_state(d: ResolvedDevice, link: int) -> int:
    if not 0 <= link < d.gpu.model.nvlinks:
        return refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT if d.gpu.model.nvlinks else pynvml.NVML_ERROR_NOT_SUPPORTED)
    return int(d.gpu.faults.link_active[link] and not d.gpu.mig_enabled)


DEVICE: dict[str, Answer] = {
    "nvmlDeviceGetName": lambda d: d.gpu.model.name,
    "nvmlDeviceGetUUID": lambda d: d.gpu.uuid,
    "nvmlDeviceGetIndex": lambda d: d.gpu.index,
    "nvmlDeviceGetMinorNumber": lambda d: d.gpu.index,
    "nvmlDeviceGetBrand": lambda d: d.gpu.model.brand,
    "nvmlDeviceGetArchitecture": lambda d: d.gpu.model.architecture,
    "nvmlDeviceGetCudaComputeCapability": lambda d: d.gpu.model.compute_capability,
    "nvmlDeviceGetSerial": only_where(lambda d: d.gpu.model.ecc, lambda d: d.gpu.serial),
    "nvmlDeviceGetBoardPartNumber": only_where(lambda d: d.gpu.model.part_number, lambda d: d.gpu.model.part_number),
    "nvmlDeviceGetVbiosVersion": lambda d: d.gpu.model.vbios,
    "nvmlDeviceGetInforomImageVersion": lambda d: d.gpu.model.inforom,
    "nvmlDeviceGetNumGpuCores": lambda d: d.gpu.model.cores,
    "nvmlDeviceGetMemoryBusWidth": lambda d: d.gpu.model.bus_width,
    "nvmlDeviceGetEncoderUtilization": _engine("encoder"),
    "nvmlDeviceGetDecoderUtilization": _engine("decoder"),
    "nvmlDeviceGetJpgUtilization": _engine("jpeg"),
    "nvmlDeviceGetOfaUtilization": _engine("ofa"),
    "nvmlDeviceGetPersistenceMode": lambda d: int(d.gpu.persistence_mode),
    "nvmlDeviceGetDisplayActive": lambda d: 0,
    "nvmlDeviceGetComputeMode": lambda d: COMPUTE_MODES[d.gpu.compute_mode],
    "nvmlDeviceGetVirtualizationMode": lambda d: 0,
    "nvmlDeviceGetNumaNodeId": lambda d: d.gpu.index // 4,
    "nvmlDeviceGetMaxMigDeviceCount": lambda d: 7 if d.gpu.mig_enabled else 0,
    "nvmlDeviceGetModuleId": only_where(lambda d: d.gpu.model.fabric, lambda d: d.gpu.index + 1),
    "nvmlDeviceGetInforomVersion": only_where(lambda d: d.gpu.model.ecc, lambda d, kind: INFOROM_OBJECTS[kind]),
    "nvmlDeviceGetAccountingMode": lambda d: 0,
    "nvmlDeviceGetEncoderStats": only_where(lambda d: not d.gpu.model.fabric, lambda d: (0, 0, 0)),
    "nvmlDeviceGetFBCStats": whole_only(lambda d: struct(sessionsCount=0, averageFPS=0, averageLatency=0)),
    "nvmlDeviceGetPcieThroughput": lambda d, counter: round(d.physics.pcie_rate * (0.6 if counter else 1.0) / KIB),
    # no GPU of the simulator belongs to a virtual machine or is in confidential computing
    "nvmlDeviceGetGridLicensableFeatures_v4": lambda d: struct(isGridLicenseSupported=0, gridLicensableFeatures=[]),
    "nvmlDeviceGetConfComputeProtectedMemoryUsage": lambda d: struct(total=0, used=0, free=0),
    "nvmlDeviceGetGspFirmwareMode": lambda d: [1, 1],
    "nvmlDeviceGetGspFirmwareVersion": lambda d, version=None: d.node.driver.encode(),
    "nvmlDeviceGetMigMode": only_where(
        lambda d: d.gpu.model.mig, lambda d: [int(d.gpu.mig_enabled), int(d.gpu.mig_enabled ^ d.gpu.faults.mig_pending)]
    ),
    "nvmlDeviceGetUtilizationRates": whole_only(
        lambda d: struct(
            gpu=round(100 * min(1.0, d.physics.load.busy)),
            memory=0 if d.gpu.model.unified else round(60 * min(1.0, d.physics.load.dram)),
        )
    ),
    "nvmlDeviceGetCurrPcieLinkGeneration": lambda d: d.gpu.faults.pcie_generation or d.gpu.model.pcie_generation,
    "nvmlDeviceGetCurrPcieLinkWidth": lambda d: d.gpu.faults.pcie_width or 16,
    "nvmlDeviceGetMaxPcieLinkGeneration": lambda d: d.gpu.model.pcie_generation,
    "nvmlDeviceGetMaxPcieLinkWidth": lambda d: 16,
    "nvmlDeviceGetPcieReplayCounter": lambda d: d.gpu.faults.pcie_replays,
    "nvmlDeviceGetNvLinkState": _link_state,
    "nvmlDeviceGetNvLinkVersion": lambda d, link: d.gpu.model.nvlink_version if _link_state(d, link) else refuse(),
    "nvmlDeviceGetNvLinkRemoteDeviceType": lambda d, link: SWITCH if _link_state(d, link) else refuse(),
    **BOARD,
    **COUNTERS,
    **ECC,
}
"""Functions of a whole GPU; the decorators below add theirs."""

MIG_DEVICE: dict[str, Answer] = {
    "nvmlDeviceGetName": lambda d: f"{d.gpu.model.name} MIG {d.unit.profile.name}",
    "nvmlDeviceGetUUID": lambda d: d.unit.uuid,
    "nvmlDeviceGetGpuInstanceId": lambda d: d.unit.gi,
    "nvmlDeviceGetComputeInstanceId": lambda d: 0,
    "nvmlDeviceIsMigDeviceHandle": lambda d: 1,
    **{
        name: DEVICE[name] for name in DEVICE if "RunningProcesses" in name or name == "nvmlDeviceGetMemoryErrorCounter"
    },
}
"""Functions of a MIG device; the others are not supported there."""


@answers(MIG_DEVICE, "nvmlDeviceGetMemoryInfo")
@answers(DEVICE, "nvmlDeviceGetMemoryInfo")
def _memory(d: ResolvedDevice, version: int | None = None) -> SimpleNamespace:
    unit, model = d.unit, d.gpu.model
    if model.unified:
        refuse()
    if unit is None:
        total, reserved = model.memory * MIB, model.reserved * MIB
        used = (sum(part.used for part in d.gpu.units) + (4 if d.works else 0) + d.gpu.faults.leaked_mib) * MIB
    else:
        total, reserved, used = unit.memory * MIB, 0, max(unit.used, 9) * MIB
    used = min(used, total - reserved)
    if version:
        return struct(total=total, reserved=reserved, used=used, free=total - reserved - used, version=version)
    return struct(total=total, used=used + reserved, free=total - reserved - used)


@answers(MIG_DEVICE, "nvmlDeviceGetBAR1MemoryInfo")
@answers(DEVICE, "nvmlDeviceGetBAR1MemoryInfo")
def _bar1(d: ResolvedDevice) -> SimpleNamespace:
    if d.gpu.model.unified:
        refuse()
    if d.unit is None:
        total, used = d.gpu.model.bar1 * MIB, (1 + sum(part.used for part in d.gpu.units)) * MIB
    else:
        total, used = round(d.unit.memory * 0.83) * MIB, 0
    used = min(used, total)
    return struct(bar1Total=total, bar1Used=used, bar1Free=total - used)


@answers(MIG_DEVICE, "nvmlDeviceGetPciInfo")
@answers(DEVICE, "nvmlDeviceGetPciInfo", "nvmlDeviceGetPciInfo_v3")
def _pci(d: ResolvedDevice) -> SimpleNamespace:
    address, model = d.gpu.address, d.gpu.model
    return struct(
        busId=address.nvml,
        busIdLegacy=str(address),
        domain=address.domain,
        bus=address.bus,
        device=address.device,
        pciDeviceId=model.device_id,
        pciSubSystemId=model.subsystem_id,
    )


@answers(DEVICE, "nvmlDeviceGetMigDeviceHandleByIndex")
def _mig_handle(d: ResolvedDevice, index: int) -> Any:
    if not d.gpu.mig_enabled or index >= len(d.gpu.units):
        return refuse(pynvml.NVML_ERROR_NOT_FOUND)
    return Handle(d.gpu.index, d.gpu.units[index].uuid)


@answers(MIG_DEVICE, "nvmlDeviceGetAttributes_v2")
def _attributes(d: ResolvedDevice) -> SimpleNamespace:
    unit = d.unit
    if unit is None or unit.profile is None:
        return refuse()
    slices = unit.profile.slices
    return struct(
        multiprocessorCount=unit.profile.multiprocessors,
        sharedCopyEngineCount=slices,
        sharedDecoderCount=slices,
        sharedEncoderCount=0,
        sharedJpegCount=slices,
        sharedOfaCount=int(slices == 7),
        gpuInstanceSliceCount=slices,
        computeInstanceSliceCount=slices,
        memorySizeMB=unit.profile.memory,
    )


@answers(DEVICE, "nvmlDeviceGetNvLinkRemotePciInfo")
def _link_remote(d: ResolvedDevice, link: int) -> SimpleNamespace:
    if not _link_state(d, link):
        return refuse()
    return struct(busId=f"00000000:{5 + link % 4:02X}:00.0", domain=0, bus=5 + link % 4, device=0)


@answers(DEVICE, "nvmlDeviceGetNvLinkErrorCounter")
def _link_errors(d: ResolvedDevice, link: int, counter: int) -> int:
    _link_state(d, link)
    if d.gpu.model.nvlink5:
        return refuse()
    return d.gpu.faults.link_errors[link].get(LINK_ERRORS[counter], 0) if counter < len(LINK_ERRORS) else refuse()


@answers(DEVICE, "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetGpuFabricInfo", where=lambda d: d.gpu.model.fabric)
def _fabric(d: ResolvedDevice, pointer: Any) -> int:
    state, status, health = d.gpu.faults.fabric
    contents = getattr(pointer, "contents", pointer)
    members = {"state": state, "status": status, "cliqueId": 0}
    if hasattr(contents, "healthMask"):
        members["healthMask"] = health
    if hasattr(contents, "clusterUuid"):
        for i in range(len(contents.clusterUuid)):
            contents.clusterUuid[i] = 0
    return fill(pointer, **members)
