"""The board as NVML tells of it: power, temperature, clocks and fans."""

from typing import TYPE_CHECKING

import pynvml

from gpuwatch.collect.nvml.decode import CLOCK_EVENT_REASONS
from gpuwatch.sim.node.physics import HW_BRAKE, HW_SLOWDOWN
from gpuwatch.sim.nvml.answers import Answer, refuse, where, works

if TYPE_CHECKING:
    from gpuwatch.sim.nvml import ResolvedDevice

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


def _clock(d: "ResolvedDevice", domain: int) -> int:
    now, _ = CLOCKS.get(domain) or refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    if now == "clock":
        return int(d.physics.clock)
    model = d.gpu.model
    if now == "memory_clock":
        return model.memory_clock if works(d) else model.memory_clock_idle
    return model.video_clock_max if works(d) else model.video_clock_idle


def _max_clock(d: "ResolvedDevice", domain: int) -> int:
    _, name = CLOCKS.get(domain) or refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    return int(getattr(d.gpu.model, name))


def _threshold(d: "ResolvedDevice", kind: int) -> int:
    found = getattr(d.gpu.model, THRESHOLDS.get(kind, ""), None)
    if found is None or (d.gpu.model.margins and kind != pynvml.NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_CURR):
        return refuse()
    return int(found)


def _temperature(d: "ResolvedDevice", sensor: int) -> int:
    return round(d.physics.temperature) if sensor == pynvml.NVML_TEMPERATURE_GPU else refuse()


def _margin(d: "ResolvedDevice") -> int:
    return d.gpu.model.max_operating - round(d.physics.temperature)


def _reasons(d: "ResolvedDevice") -> int:
    known = d.physics.reasons
    return known | HW_SLOWDOWN if known & HW_BRAKE else known


def _performance_state(d: "ResolvedDevice") -> int:
    return 0 if works(d) else d.gpu.model.idle_state


def _power(d: "ResolvedDevice") -> int:
    """The mean of the last second."""
    recent = [moment.power for moment in d.physics.history if moment.t > d.t - 1.0]
    return round(1000 * (sum(recent) / len(recent) if recent else d.physics.power))


def energy(d: "ResolvedDevice") -> int:
    """Millijoules since the driver was loaded."""
    return round(1000 * d.physics.counter(d.physics.energy, d.physics.power, d.t))


def _fan(d: "ResolvedDevice", fan: int = 0) -> int:
    if fan >= d.gpu.model.fans:
        return refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT if d.gpu.model.fans else pynvml.NVML_ERROR_NOT_SUPPORTED)
    return round(min(100, max(0, (d.physics.temperature - 45) * 2.2)))


BOARD: dict[str, Answer] = {
    "nvmlDeviceGetPowerUsage": _power,
    "nvmlDeviceGetTotalEnergyConsumption": energy,
    "nvmlDeviceGetEnforcedPowerLimit": lambda d: round(1000 * d.gpu.power_limit),
    "nvmlDeviceGetPowerManagementLimit": lambda d: round(1000 * d.gpu.power_limit),
    "nvmlDeviceGetTemperature": _temperature,
    "nvmlDeviceGetTemperatureV": _temperature,
    "nvmlDeviceGetMarginTemperature": where(lambda d: d.gpu.model.margins, _margin),
    "nvmlDeviceGetTemperatureThreshold": _threshold,
    "nvmlDeviceGetClockInfo": _clock,
    "nvmlDeviceGetMaxClockInfo": _max_clock,
    "nvmlDeviceGetCurrentClocksEventReasons": _reasons,
    "nvmlDeviceGetCurrentClocksThrottleReasons": _reasons,
    "nvmlDeviceGetSupportedClocksEventReasons": lambda d: sum(CLOCK_EVENT_REASONS.values()),
    "nvmlDeviceGetSupportedClocksThrottleReasons": lambda d: sum(CLOCK_EVENT_REASONS.values()),
    "nvmlDeviceGetPerformanceState": _performance_state,
    "nvmlDeviceGetNumFans": where(lambda d: d.gpu.model.fans, lambda d: d.gpu.model.fans),
    "nvmlDeviceGetFanSpeed": _fan,
    "nvmlDeviceGetFanSpeed_v2": _fan,
}
"""Function -> answer."""
