"""The knobs of a GPU as NVML offers them: what may be set, and the setters.

A setter lets its action happen to the node, so that every process sees it, and returns when it is in force. Whoever
can write to the node's directory may turn them: a simulated driver asks nobody for root.
"""

from typing import TYPE_CHECKING

import pynvml

from gpuwatch.sim.node.actions import LockClocks, SetPowerLimit
from gpuwatch.sim.node.physics import CLOCK_STEP
from gpuwatch.sim.nvml.answers import Answer, refuse

if TYPE_CHECKING:
    from gpuwatch.sim.nvml import ResolvedDevice


def _memory_clocks(d: "ResolvedDevice") -> list[int]:
    """Highest first."""
    model = d.gpu.model
    return sorted({model.memory_clock, model.memory_clock_idle}, reverse=True)


def _graphics_clocks(d: "ResolvedDevice", memory_clock: int) -> list[int]:
    """Highest first."""
    if memory_clock not in _memory_clocks(d):
        return refuse(pynvml.NVML_ERROR_NOT_FOUND)
    return list(range(d.gpu.model.clock_max, d.gpu.model.clock_idle - 1, -CLOCK_STEP))


def _lock_clocks(d: "ResolvedDevice", lowest: int, highest: int) -> None:
    if lowest > highest:
        refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    d.nvml.act(LockClocks(gpu=d.gpu.index, lowest=lowest, highest=highest))


def _unlock_clocks(d: "ResolvedDevice") -> None:
    d.nvml.act(LockClocks(gpu=d.gpu.index))


def _power_limits(d: "ResolvedDevice") -> list[int]:
    """Least and most, mW."""
    return [1000 * d.gpu.model.power_min, 1000 * d.gpu.model.power_max]


def _set_power_limit(d: "ResolvedDevice", milliwatts: int) -> None:
    least, most = _power_limits(d)
    if not least <= milliwatts <= most:
        refuse(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    d.nvml.act(SetPowerLimit(gpu=d.gpu.index, watts=milliwatts / 1000))


def _set_scoped_power_limit(d: "ResolvedDevice", scope: int, milliwatts: int, version: int = 0) -> int:
    if scope != pynvml.NVML_POWER_SCOPE_GPU:
        refuse()
    _set_power_limit(d, milliwatts)
    return int(pynvml.NVML_SUCCESS)


KNOBS: dict[str, Answer] = {
    "nvmlDeviceGetSupportedMemoryClocks": _memory_clocks,
    "nvmlDeviceGetSupportedGraphicsClocks": _graphics_clocks,
    "nvmlDeviceSetGpuLockedClocks": _lock_clocks,
    "nvmlDeviceResetGpuLockedClocks": _unlock_clocks,
    "nvmlDeviceGetPowerManagementDefaultLimit": lambda d: 1000 * d.gpu.model.power_limit,
    "nvmlDeviceGetPowerManagementLimitConstraints": _power_limits,
    "nvmlDeviceSetPowerManagementLimit": _set_power_limit,
    "nvmlDeviceSetPowerManagementLimit_v2": _set_scoped_power_limit,
}
"""Function -> answer."""
