"""Power, temperature, clocks and fans as NVML answers them, and the setters of power limit and locked clocks.

A setter applies an action to the node for every process, and returns when the action is in force. Any process
that can write to the node's directory may set: a simulated driver does not require root.
"""

import pynvml

from gpuwatch.collect.nvml.decode import CLOCK_EVENT_REASONS
from gpuwatch.sim.node.actions import LockClocks, SetPowerLimit
from gpuwatch.sim.node.physics import CLOCK_STEP, HW_BRAKE, HW_SLOWDOWN
from gpuwatch.sim.nvml.driver import Answer, ResolvedDevice, answers, dedicated_only, only_where, refuse

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

BOARD: dict[str, Answer] = {
    "nvmlDeviceGetEnforcedPowerLimit": dedicated_only(lambda d: round(1000 * d.gpu.power_limit)),
    "nvmlDeviceGetPowerManagementLimit": dedicated_only(lambda d: round(1000 * d.gpu.power_limit)),
    "nvmlDeviceGetPowerManagementDefaultLimit": dedicated_only(lambda d: 1000 * d.gpu.model.power_limit),
    "nvmlDeviceGetPowerManagementLimitConstraints": dedicated_only(
        lambda d: [1000 * d.gpu.model.power_min, 1000 * d.gpu.model.power_max]
    ),
    "nvmlDeviceGetTotalEnergyConsumption": lambda d: round(
        1000 * d.physics.counter(d.physics.energy, d.physics.power, d.t)
    ),
    "nvmlDeviceGetMarginTemperature": only_where(
        lambda d: d.gpu.model.margins, lambda d: d.gpu.model.max_operating - round(d.physics.temperature)
    ),
    "nvmlDeviceGetSupportedClocksEventReasons": lambda d: sum(CLOCK_EVENT_REASONS.values()),
    "nvmlDeviceGetSupportedClocksThrottleReasons": lambda d: sum(CLOCK_EVENT_REASONS.values()),
    "nvmlDeviceGetPerformanceState": lambda d: 0 if d.works else d.gpu.model.idle_state,
    "nvmlDeviceGetNumFans": only_where(lambda d: d.gpu.model.fans, lambda d: d.gpu.model.fans),
    "nvmlDeviceGetSupportedMemoryClocks": dedicated_only(
        lambda d: sorted({d.gpu.model.memory_clock, d.gpu.model.memory_clock_idle}, reverse=True)
    ),
    "nvmlDeviceResetGpuLockedClocks": lambda d: d.nvml.act(LockClocks(gpu=d.gpu.index)),
}
"""Function -> answer; the decorators below add theirs."""


@answers(BOARD, "nvmlDeviceGetPowerUsage")
def _power(d: ResolvedDevice) -> int:
    """The mean of the last second."""
    recent = [moment.power for moment in d.physics.history if moment.t > d.t - 1.0]
    return round(1000 * (sum(recent) / len(recent) if recent else d.physics.power))


@answers(BOARD, "nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV")
def _temperature(d: ResolvedDevice, sensor: int) -> int:
    return round(d.physics.temperature) if sensor == pynvml.NVML_TEMPERATURE_GPU else refuse()


@answers(BOARD, "nvmlDeviceGetTemperatureThreshold")
def _threshold(d: ResolvedDevice, kind: int) -> int:
    found = getattr(d.gpu.model, THRESHOLDS.get(kind, ""), None)
    if (
        found is None
        or d.gpu.model.unified
        or (d.gpu.model.margins and kind != pynvml.NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_CURR)
    ):
        return refuse()
    return int(found)


@answers(BOARD, "nvmlDeviceGetClockInfo")
def _clock(d: ResolvedDevice, domain: int) -> int:
    name, _ = CLOCKS.get(domain) or refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    if name == "clock":
        return int(d.physics.clock)
    model = d.gpu.model
    if name == "memory_clock":
        return refuse() if model.unified else model.memory_clock if d.works else model.memory_clock_idle
    return model.video_clock_max if d.works else model.video_clock_idle


@answers(BOARD, "nvmlDeviceGetMaxClockInfo")
def _max_clock(d: ResolvedDevice, domain: int) -> int:
    _, name = CLOCKS.get(domain) or refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    if name == "memory_clock" and d.gpu.model.unified:
        refuse()
    return int(getattr(d.gpu.model, name))


@answers(BOARD, "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
def _reasons(d: ResolvedDevice) -> int:
    known = d.physics.reasons
    return known | HW_SLOWDOWN if known & HW_BRAKE else known


@answers(BOARD, "nvmlDeviceGetFanSpeed", "nvmlDeviceGetFanSpeed_v2")
def _fan(d: ResolvedDevice, fan: int = 0) -> int:
    if fan >= d.gpu.model.fans:
        return refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT if d.gpu.model.fans else pynvml.NVML_ERROR_NOT_SUPPORTED)
    return round(min(100, max(0, (d.physics.temperature - 45) * 2.2)))


@answers(BOARD, "nvmlDeviceGetSupportedGraphicsClocks")
def _graphics_clocks(d: ResolvedDevice, memory_clock: int) -> list[int]:
    """Highest first."""
    model = d.gpu.model
    if memory_clock not in (model.memory_clock, model.memory_clock_idle):
        return refuse(pynvml.NVML_ERROR_NOT_FOUND)
    return list(range(model.clock_max, model.clock_idle - 1, -CLOCK_STEP))


@answers(BOARD, "nvmlDeviceSetGpuLockedClocks")
def _lock_clocks(d: ResolvedDevice, lowest: int, highest: int) -> None:
    if lowest > highest:
        refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    d.nvml.act(LockClocks(gpu=d.gpu.index, lowest=lowest, highest=highest))


@answers(BOARD, "nvmlDeviceSetPowerManagementLimit")
def _set_power_limit(d: ResolvedDevice, milliwatts: int) -> None:
    if d.gpu.model.unified:
        refuse()
    if not 1000 * d.gpu.model.power_min <= milliwatts <= 1000 * d.gpu.model.power_max:
        refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    d.nvml.act(SetPowerLimit(gpu=d.gpu.index, watts=milliwatts / 1000))


@answers(BOARD, "nvmlDeviceSetPowerManagementLimit_v2")
def _set_scoped_power_limit(d: ResolvedDevice, scope: int, milliwatts: int, version: int = 0) -> int:
    if scope != pynvml.NVML_POWER_SCOPE_GPU:
        refuse()
    _set_power_limit(d, milliwatts)
    return int(pynvml.NVML_SUCCESS)
