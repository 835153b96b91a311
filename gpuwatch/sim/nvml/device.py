"""What a simulated GPU answers to each NVML function: a table from name to a function of the resolved device.

A function that a model lacks is refused as the real driver does (NOT_SUPPORTED); what is not in the tables at all too.
"""

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pynvml

from gpuwatch.collect.nvml import decode as nvml_decode
from gpuwatch.sim.nvml.answers import MIB, Answer, Handle, refuse, struct, where, whole_only, works
from gpuwatch.sim.nvml.board import BOARD
from gpuwatch.sim.nvml.counters import field_values, process_utilization, processes, samples
from gpuwatch.sim.nvml.ecc import ECC
from gpuwatch.sim.nvml.knobs import KNOBS
from gpuwatch.sim.nvml.link import LINKS

if TYPE_CHECKING:
    from gpuwatch.sim.nvml import ResolvedDevice


def _utilization(d: "ResolvedDevice") -> SimpleNamespace:
    load = d.physics.load
    return struct(gpu=round(100 * min(1.0, load.busy)), memory=round(60 * min(1.0, load.dram)))


def _memory(d: "ResolvedDevice", version: int | None = None) -> SimpleNamespace:
    unit = d.unit
    if unit is None:
        model = d.gpu.model
        total, reserved = model.memory * MIB, model.reserved * MIB
        used = (sum(part.used for part in d.gpu.units) + (4 if works(d) else 0) + d.gpu.faults.leaked_mib) * MIB
    else:
        total, reserved, used = unit.memory * MIB, 0, max(unit.used, 9) * MIB
    used = min(used, total - reserved)
    if version:
        return struct(total=total, reserved=reserved, used=used, free=total - reserved - used, version=version)
    return struct(total=total, used=used + reserved, free=total - reserved - used)


def _bar1(d: "ResolvedDevice") -> SimpleNamespace:
    if d.unit is None:
        total, used = d.gpu.model.bar1 * MIB, (1 + sum(part.used for part in d.gpu.units)) * MIB
    else:
        total, used = round(d.unit.memory * 0.83) * MIB, 0
    used = min(used, total)
    return struct(bar1Total=total, bar1Used=used, bar1Free=total - used)


def _pci(d: "ResolvedDevice") -> SimpleNamespace:
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


def _mig_handle(d: "ResolvedDevice", index: int) -> Any:
    if not d.gpu.mig_enabled or index >= len(d.gpu.units):
        return refuse(pynvml.NVML_ERROR_NOT_FOUND)
    return Handle(d.gpu.index, d.gpu.units[index].uuid)


def _attributes(d: "ResolvedDevice") -> SimpleNamespace:
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


def _gsp(d: "ResolvedDevice", version: Any = None) -> bytes:
    return d.node.driver.encode()


def _engine(name: str) -> Answer:
    return whole_only(lambda d: [round(100 * min(1.0, getattr(d.physics.load, name, 0.0))), 167_000])


def _mig_modes(d: "ResolvedDevice") -> list[int]:
    return [int(d.gpu.mig_enabled), int(d.gpu.mig_enabled ^ d.gpu.faults.mig_pending)]


COMPUTE_MODES = {mode: number for number, mode in nvml_decode.COMPUTE_MODES.items()}

DEVICE: dict[str, Answer] = {
    "nvmlDeviceGetName": lambda d: d.gpu.model.name,
    "nvmlDeviceGetUUID": lambda d: d.gpu.uuid,
    "nvmlDeviceGetIndex": lambda d: d.gpu.index,
    "nvmlDeviceGetMinorNumber": lambda d: d.gpu.index,
    "nvmlDeviceGetBrand": lambda d: d.gpu.model.brand,
    "nvmlDeviceGetArchitecture": lambda d: d.gpu.model.architecture,
    "nvmlDeviceGetCudaComputeCapability": lambda d: d.gpu.model.compute_capability,
    "nvmlDeviceGetSerial": where(lambda d: d.gpu.model.ecc, lambda d: d.gpu.serial),
    "nvmlDeviceGetBoardPartNumber": where(lambda d: d.gpu.model.part_number, lambda d: d.gpu.model.part_number),
    "nvmlDeviceGetVbiosVersion": lambda d: d.gpu.model.vbios,
    "nvmlDeviceGetInforomImageVersion": lambda d: d.gpu.model.inforom,
    "nvmlDeviceGetGspFirmwareVersion": _gsp,
    "nvmlDeviceGetNumGpuCores": lambda d: d.gpu.model.cores,
    "nvmlDeviceGetMemoryBusWidth": lambda d: d.gpu.model.bus_width,
    "nvmlDeviceGetPciInfo": _pci,
    "nvmlDeviceGetPciInfo_v3": _pci,
    "nvmlDeviceGetUtilizationRates": whole_only(_utilization),
    "nvmlDeviceGetEncoderUtilization": _engine("encoder"),
    "nvmlDeviceGetDecoderUtilization": _engine("decoder"),
    "nvmlDeviceGetJpgUtilization": _engine("jpeg"),
    "nvmlDeviceGetOfaUtilization": _engine("ofa"),
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetBAR1MemoryInfo": _bar1,
    "nvmlDeviceGetFieldValues": field_values,
    "nvmlDeviceGetSamples": whole_only(samples),
    "nvmlDeviceGetProcessUtilization": whole_only(process_utilization),
    "nvmlDeviceGetPersistenceMode": lambda d: int(d.gpu.persistence_mode),
    "nvmlDeviceGetDisplayActive": lambda d: 0,
    "nvmlDeviceGetComputeMode": lambda d: COMPUTE_MODES[d.gpu.compute_mode],
    "nvmlDeviceGetVirtualizationMode": lambda d: 0,
    "nvmlDeviceGetNumaNodeId": lambda d: d.gpu.index // 4,
    "nvmlDeviceGetMigMode": where(lambda d: d.gpu.model.mig, _mig_modes),
    "nvmlDeviceGetMaxMigDeviceCount": lambda d: 7 if d.gpu.model.mig else 0,
    "nvmlDeviceGetMigDeviceHandleByIndex": _mig_handle,
    **{
        f"nvmlDeviceGet{kind}RunningProcesses{suffix}": processes(kind)
        for kind in ("Compute", "Graphics", "MPSCompute")
        for suffix in ("", "_v2", "_v3")
    },
    **BOARD,
    **KNOBS,
    **LINKS,
    **ECC,
}
"""Functions of a whole GPU."""

MIG_DEVICE: dict[str, Answer] = {
    "nvmlDeviceGetName": lambda d: f"{d.gpu.model.name} MIG {d.unit.profile.name}",
    "nvmlDeviceGetUUID": lambda d: d.unit.uuid,
    "nvmlDeviceGetGpuInstanceId": lambda d: d.unit.gi,
    "nvmlDeviceGetComputeInstanceId": lambda d: 0,
    "nvmlDeviceGetAttributes_v2": _attributes,
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetBAR1MemoryInfo": _bar1,
    "nvmlDeviceIsMigDeviceHandle": lambda d: 1,
    **{
        name: DEVICE[name]
        for name in DEVICE
        if "RunningProcesses" in name or name in ("nvmlDeviceGetMemoryErrorCounter", "nvmlDeviceGetPciInfo")
    },
}
"""Functions of a MIG device; the others are not supported there."""
