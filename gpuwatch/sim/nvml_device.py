"""What a simulated GPU answers to each NVML function: a table from name to a function of the resolved device.

A function that a model lacks is refused as the real driver does (NOT_SUPPORTED); what is not in the tables at all too.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pynvml

from gpuwatch.sim.nvml_answers import MIB, Handle, fill, refuse, struct
from gpuwatch.sim.nvml_counters import field_values, process_utilization, processes, samples
from gpuwatch.sim.nvml_ecc import ECC
from gpuwatch.sim.physics import HW_BRAKE, HW_SLOWDOWN

if TYPE_CHECKING:
    from gpuwatch.sim.nvml import Device

Answer = Callable[..., Any]

CLOCKS = {
    pynvml.NVML_CLOCK_GRAPHICS: ("clock", "clock_max"),
    pynvml.NVML_CLOCK_SM: ("clock", "clock_max"),
    pynvml.NVML_CLOCK_MEM: ("memory_clock", "memory_clock"),
    pynvml.NVML_CLOCK_VIDEO: ("video_clock", "video_clock_max"),
}
THRESHOLDS = {
    pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN: "shutdown",
    pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN: "slowdown",
    pynvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX: "max_operating",
    pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX: "memory_max",
    pynvml.NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_CURR: "acoustic",
}


def whole_only(answer: Answer) -> Answer:
    """Not offered while the GPU is cut into MIG instances."""
    return lambda d, *args: refuse() if d.gpu.mig_enabled else answer(d, *args)


def where(condition: Callable[["Device"], Any], answer: Answer) -> Answer:
    """Offered only by models that have it."""
    return lambda d, *args: answer(d, *args) if condition(d) else refuse()


def works(d: "Device") -> bool:
    """Whether clocks are up."""
    return any(unit.processes for unit in d.gpu.units)


def _clock(d: "Device", domain: int) -> int:
    now, _ = CLOCKS.get(domain) or refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    if now == "clock":
        return int(d.physics.clock)
    model = d.gpu.model
    if now == "memory_clock":
        return model.memory_clock if works(d) else model.memory_clock_idle
    return model.video_clock_max if works(d) else model.video_clock_idle


def _max_clock(d: "Device", domain: int) -> int:
    _, name = CLOCKS.get(domain) or refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    return int(getattr(d.gpu.model, name))


def _threshold(d: "Device", kind: int) -> int:
    found = getattr(d.gpu.model, THRESHOLDS.get(kind, ""), None)
    if found is None or (d.gpu.model.margins and kind != pynvml.NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_CURR):
        return refuse()
    return int(found)


def _temperature(d: "Device", sensor: int) -> int:
    return round(d.physics.temperature) if sensor == pynvml.NVML_TEMPERATURE_GPU else refuse()


def _utilization(d: "Device") -> SimpleNamespace:
    load = d.physics.load
    return struct(gpu=round(100 * min(1.0, load.busy)), memory=round(60 * min(1.0, load.dram)))


def _memory(d: "Device", version: int | None = None) -> SimpleNamespace:
    unit = d.unit
    if unit is None:
        model = d.gpu.model
        total, reserved = model.memory * MIB, model.reserved * MIB
        used = sum(part.used for part in d.gpu.units) * MIB + (4 if works(d) else 0) * MIB
    else:
        total, reserved, used = unit.memory * MIB, 0, max(unit.used, 9) * MIB
    used = min(used, total - reserved)
    if version:
        return struct(total=total, reserved=reserved, used=used, free=total - reserved - used, version=version)
    return struct(total=total, used=used + reserved, free=total - reserved - used)


def _bar1(d: "Device") -> SimpleNamespace:
    if d.unit is None:
        total, used = d.gpu.model.bar1 * MIB, (1 + sum(part.used for part in d.gpu.units)) * MIB
    else:
        total, used = round(d.unit.memory * 0.83) * MIB, 0
    used = min(used, total)
    return struct(bar1Total=total, bar1Used=used, bar1Free=total - used)


def _reasons(d: "Device") -> int:
    known = d.physics.reasons
    return known | HW_SLOWDOWN if known & HW_BRAKE else known


def _pci(d: "Device") -> SimpleNamespace:
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


def _performance_state(d: "Device") -> int:
    return 0 if works(d) else d.gpu.model.idle_state


def _power(d: "Device") -> int:
    """The mean of the last second."""
    recent = [moment.power for moment in d.physics.history if moment.t > d.t - 1.0]
    return round(1000 * (sum(recent) / len(recent) if recent else d.physics.power))


def energy(d: "Device") -> int:
    """Millijoules since the driver was loaded."""
    return round(1000 * d.physics.counter(d.physics.energy, d.physics.power, d.t))


def _link_state(d: "Device", link: int) -> int:
    if not 0 <= link < d.gpu.model.nvlinks:
        return refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT if d.gpu.model.nvlinks else pynvml.NVML_ERROR_NOT_SUPPORTED)
    return int(d.gpu.faults.link_active[link] and not d.gpu.mig_enabled)


def _link_remote(d: "Device", link: int) -> SimpleNamespace:
    if not _link_state(d, link):
        return refuse()
    return struct(busId=f"00000000:{5 + link % 4:02X}:00.0", domain=0, bus=5 + link % 4, device=0)


def _link_errors(d: "Device", link: int, counter: int) -> int:
    _link_state(d, link)
    if d.gpu.model.nvlink5:
        return refuse()
    names = ("replay", "recovery", "crc", "crc_data", "ecc_data")
    return d.gpu.faults.link_errors[link].get(names[counter], 0) if counter < len(names) else refuse()


def _fabric(d: "Device", pointer: Any) -> int:
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


def _fan(d: "Device", fan: int = 0) -> int:
    if fan >= d.gpu.model.fans:
        return refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT if d.gpu.model.fans else pynvml.NVML_ERROR_NOT_SUPPORTED)
    return round(min(100, max(0, (d.physics.temperature - 45) * 2.2)))


def _mig_handle(d: "Device", index: int) -> Any:
    if not d.gpu.mig_enabled or index >= len(d.gpu.units):
        return refuse(pynvml.NVML_ERROR_NOT_FOUND)
    return Handle(d.gpu.index, d.gpu.units[index].uuid)


def _attributes(d: "Device") -> SimpleNamespace:
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


def _gsp(d: "Device", version: Any = None) -> bytes:
    return d.node.driver.encode()


def _margin(d: "Device") -> int:
    return d.gpu.model.max_operating - round(d.physics.temperature)


def _engine(name: str) -> Answer:
    return whole_only(lambda d: [round(100 * min(1.0, getattr(d.physics.load, name, 0.0))), 167_000])


def _mig_modes(d: "Device") -> list[int]:
    return [int(d.gpu.mig_enabled)] * 2


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
    "nvmlDeviceGetPowerUsage": _power,
    "nvmlDeviceGetTotalEnergyConsumption": energy,
    "nvmlDeviceGetEnforcedPowerLimit": lambda d: round(1000 * d.gpu.power_limit),
    "nvmlDeviceGetPowerManagementLimit": lambda d: round(1000 * d.gpu.power_limit),
    "nvmlDeviceGetPowerManagementDefaultLimit": lambda d: 1000 * d.gpu.model.power_limit,
    "nvmlDeviceGetPowerManagementLimitConstraints": lambda d: [
        1000 * d.gpu.model.power_min,
        1000 * d.gpu.model.power_max,
    ],
    "nvmlDeviceGetTemperature": _temperature,
    "nvmlDeviceGetTemperatureV": _temperature,
    "nvmlDeviceGetMarginTemperature": where(lambda d: d.gpu.model.margins, _margin),
    "nvmlDeviceGetTemperatureThreshold": _threshold,
    "nvmlDeviceGetClockInfo": _clock,
    "nvmlDeviceGetMaxClockInfo": _max_clock,
    "nvmlDeviceGetCurrentClocksEventReasons": _reasons,
    "nvmlDeviceGetCurrentClocksThrottleReasons": _reasons,
    "nvmlDeviceGetPerformanceState": _performance_state,
    "nvmlDeviceGetCurrPcieLinkGeneration": lambda d: d.gpu.faults.pcie_generation or d.gpu.model.pcie_generation,
    "nvmlDeviceGetCurrPcieLinkWidth": lambda d: d.gpu.faults.pcie_width or 16,
    "nvmlDeviceGetMaxPcieLinkGeneration": lambda d: d.gpu.model.pcie_generation,
    "nvmlDeviceGetMaxPcieLinkWidth": lambda d: 16,
    "nvmlDeviceGetPcieReplayCounter": lambda d: d.gpu.faults.pcie_replays,
    "nvmlDeviceGetFieldValues": field_values,
    "nvmlDeviceGetSamples": whole_only(samples),
    "nvmlDeviceGetProcessUtilization": whole_only(process_utilization),
    "nvmlDeviceGetNumFans": where(lambda d: d.gpu.model.fans, lambda d: d.gpu.model.fans),
    "nvmlDeviceGetFanSpeed": _fan,
    "nvmlDeviceGetFanSpeed_v2": _fan,
    "nvmlDeviceGetPersistenceMode": lambda d: int(d.gpu.model.persistence),
    "nvmlDeviceGetDisplayActive": lambda d: 0,
    "nvmlDeviceGetComputeMode": lambda d: 0,
    "nvmlDeviceGetVirtualizationMode": lambda d: 0,
    "nvmlDeviceGetNumaNodeId": lambda d: d.gpu.index // 4,
    "nvmlDeviceGetGpuFabricInfoV": where(lambda d: d.gpu.model.fabric, _fabric),
    "nvmlDeviceGetGpuFabricInfo": where(lambda d: d.gpu.model.fabric, _fabric),
    "nvmlDeviceGetNvLinkState": _link_state,
    "nvmlDeviceGetNvLinkVersion": lambda d, link: d.gpu.model.nvlink_version if _link_state(d, link) else refuse(),
    "nvmlDeviceGetNvLinkRemotePciInfo": _link_remote,
    "nvmlDeviceGetNvLinkErrorCounter": _link_errors,
    "nvmlDeviceGetMigMode": where(lambda d: d.gpu.model.mig, _mig_modes),
    "nvmlDeviceGetMaxMigDeviceCount": lambda d: 7 if d.gpu.model.mig else 0,
    "nvmlDeviceGetMigDeviceHandleByIndex": _mig_handle,
    **{
        f"nvmlDeviceGet{kind}RunningProcesses{suffix}": processes(kind)
        for kind in ("Compute", "Graphics", "MPSCompute")
        for suffix in ("", "_v2", "_v3")
    },
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
