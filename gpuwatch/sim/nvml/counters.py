"""The answers that are lists: field values, sample buffers, processes and their utilization."""

from collections.abc import Callable
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import pynvml

from gpuwatch.collect.nvml.fields import ECC_FIELDS
from gpuwatch.collect.nvml.links import BIT_ERROR_RATES, ERRORS, FEC_HISTORY, SPEED, STATE
from gpuwatch.collect.nvml.numbers import field_number, lacks
from gpuwatch.sim.node.physics import HW_BRAKE, HW_THERMAL, IDLE, SW_POWER, SW_THERMAL
from gpuwatch.sim.nvml.board import BOARD
from gpuwatch.sim.nvml.driver import (
    MIB,
    NO_INSTANCE,
    Answer,
    ResolvedDevice,
    answers,
    refuse,
    struct,
    value,
    whole_only,
)

UNSIGNED, LONG, SIGNED = 1, 3, 5  # nvmlValueType_t
KIB = 1024
OLD_LINK_ERRORS = ("replay", "recovery", "crc")

COUNTERS: dict[str, Answer] = {}
"""Function -> answer, from the decorators below."""

Read = Callable[[ResolvedDevice, int], float | None]
"""A field's value of a device and a scope; None: not supported."""


def _duration(bit: int, d: ResolvedDevice, scope: int) -> float:
    """Nanoseconds for which a clock event lasted."""
    rate = 1.0 if d.physics.reasons & bit else 0.0
    return 1e9 * d.physics.counter(d.physics.seconds[bit], rate, d.t)


def _margin(threshold: str, d: ResolvedDevice, scope: int) -> float | None:
    """A threshold as its distance from the highest operating temperature, where the model states it so."""
    found = getattr(d.gpu.model, threshold)
    if found is None or not d.gpu.model.margins:
        return None
    return 0 if threshold == "memory_max" else int(d.gpu.model.max_operating - found)


def _memory_temperature(d: ResolvedDevice, scope: int) -> float | None:
    if d.gpu.model.memory_max is None:
        return 0
    return round(d.physics.temperature + 4 + 6 * d.physics.load.dram)


def _traffic(nvlink5: bool, unit: int, d: ResolvedDevice, link: int) -> float | None:
    model, faults = d.gpu.model, d.gpu.faults
    if model.nvlink5 is not nvlink5 or not 0 <= link < model.nvlinks:
        return None
    total = d.physics.counter(d.physics.nvlink_bytes, d.physics.nvlink_rate, d.t)
    return total / model.nvlinks / unit if faults.link_active[link] or total else 0


def _link_error(label: str, d: ResolvedDevice, link: int) -> float | None:
    if d.gpu.model.nvlink5 is (label in OLD_LINK_ERRORS) or not 0 <= link < d.gpu.model.nvlinks:
        return None
    return d.gpu.faults.link_errors[link].get(label, 0)


def _ecc(counter: str, d: ResolvedDevice, _: int) -> float | None:
    """Errors of one location, or of all. `counter`: a key of ECC_FIELDS."""
    kind, scope, location = counter.split("/")
    places = ("dram", "sram") if location == "total" else (location,)
    return sum(d.gpu.faults.ecc.get((kind, scope, place), 0) for place in places) if d.gpu.model.ecc else None


def _state(d: ResolvedDevice, link: int) -> float | None:
    if not 0 <= link < d.gpu.model.nvlinks:
        return None
    return int(d.gpu.faults.link_active[link] and not d.gpu.mig_enabled)


def _speed(d: ResolvedDevice, link: int) -> float | None:
    if not 0 <= link < d.gpu.model.nvlinks:
        return None
    return d.gpu.model.nvlink_speed if d.gpu.faults.link_active[link] else 0


def _bit_errors(d: ResolvedDevice, link: int) -> float | None:
    """Mantissa and negative exponent of ten, all bits set where nothing was counted."""
    if not d.gpu.model.nvlink5 or not 0 <= link < d.gpu.model.nvlinks:
        return None
    return 0x10F if d.gpu.faults.link_errors[link] else 0xFFF


def _fec_blocks(bin_: int, d: ResolvedDevice, link: int) -> float | None:
    """Blocks of 64 bytes that the link carried: bin 0 has all, bin 1 a thousandth, each further bin a tenth of that."""
    carried = _traffic(True, 1, d, link)
    return None if carried is None else carried // 64 // (10 ** (2 + bin_) if bin_ else 1)


_READS: dict[str, tuple[int, Read]] = {
    "DEV_POWER_INSTANT": (UNSIGNED, lambda d, scope: 1000 * d.physics.power),
    "DEV_POWER_AVERAGE": (UNSIGNED, lambda d, scope: BOARD["nvmlDeviceGetPowerUsage"](d)),
    "DEV_POWER_CURRENT_LIMIT": (
        UNSIGNED,
        lambda d, scope: None if d.gpu.model.unified else round(1000 * d.gpu.power_limit),
    ),
    **{field: (LONG, partial(_ecc, counter)) for counter, field in ECC_FIELDS.items()},
    "DEV_TOTAL_ENERGY_CONSUMPTION": (
        LONG,
        lambda d, scope: 1000 * d.physics.counter(d.physics.energy, d.physics.power, d.t),
    ),
    "DEV_MEMORY_TEMP": (UNSIGNED, _memory_temperature),
    "DEV_TEMPERATURE_SHUTDOWN_TLIMIT": (UNSIGNED, partial(_margin, "shutdown")),
    "DEV_TEMPERATURE_SLOWDOWN_TLIMIT": (UNSIGNED, partial(_margin, "slowdown")),
    "DEV_TEMPERATURE_GPU_MAX_TLIMIT": (UNSIGNED, partial(_margin, "max_operating")),
    "DEV_TEMPERATURE_MEM_MAX_TLIMIT": (UNSIGNED, partial(_margin, "memory_max")),
    "DEV_PERF_POLICY_POWER": (LONG, partial(_duration, SW_POWER)),
    "DEV_PERF_POLICY_THERMAL": (LONG, partial(_duration, SW_THERMAL)),
    "DEV_PERF_POLICY_LOW_UTILIZATION": (LONG, partial(_duration, IDLE)),
    "DEV_PERF_POLICY_SYNC_BOOST": (LONG, lambda d, scope: 0),
    "DEV_PERF_POLICY_BOARD_LIMIT": (LONG, lambda d, scope: 0),
    "DEV_PERF_POLICY_RELIABILITY": (LONG, lambda d, scope: 0),
    "DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN": (LONG, partial(_duration, SW_THERMAL)),
    "DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN": (LONG, partial(_duration, HW_THERMAL)),
    "DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN": (LONG, partial(_duration, HW_BRAKE)),
    "DEV_PCIE_REPLAY_COUNTER": (UNSIGNED, lambda d, scope: d.gpu.faults.pcie_replays),
    "DEV_PCIE_COUNT_TX_BYTES": (
        LONG,
        lambda d, scope: d.physics.counter(d.physics.pcie_sent, d.physics.pcie_rate, d.t),
    ),
    "DEV_PCIE_COUNT_RX_BYTES": (
        LONG,
        lambda d, scope: d.physics.counter(d.physics.pcie_received, 0.6 * d.physics.pcie_rate, d.t),
    ),
    "DEV_GET_GPU_RECOVERY_ACTION": (UNSIGNED, lambda d, scope: d.gpu.faults.recovery_action),
    "DEV_RESET_STATUS": (UNSIGNED, lambda d, scope: int(d.gpu.faults.recovery_action in (1, 2))),
    "DEV_DRAIN_AND_RESET_STATUS": (UNSIGNED, lambda d, scope: int(d.gpu.faults.recovery_action == 4)),
    "DEV_NVLINK_COUNT_XMIT_BYTES": (LONG, partial(_traffic, True, 1)),
    "DEV_NVLINK_COUNT_RCV_BYTES": (LONG, partial(_traffic, True, 1)),
    "DEV_NVLINK_THROUGHPUT_DATA_TX": (LONG, partial(_traffic, False, KIB)),
    "DEV_NVLINK_THROUGHPUT_DATA_RX": (LONG, partial(_traffic, False, KIB)),
    SPEED: (UNSIGNED, _speed),
    STATE: (UNSIGNED, _state),
    **{field: (LONG, partial(_link_error, label)) for label, field in ERRORS.items()},
    **{field: (LONG, partial(_fec_blocks, int(bin_))) for bin_, field in FEC_HISTORY.items()},
    **{field: (UNSIGNED, _bit_errors) for field in BIT_ERROR_RATES.values()},
}


@cache
def field_reads(driver: str) -> dict[int | None, tuple[int, Read]]:
    """Field id to this driver -> value type, function of device and scope (None: not supported)."""
    return {
        field_number(name, driver): (SIGNED if name.endswith("TLIMIT") else kind, read)
        for name, (kind, read) in _READS.items()
        if not lacks("NVML_FI_" + name, driver)
    }


@answers(COUNTERS, "nvmlDeviceGetFieldValues")
def _field_values(d: ResolvedDevice, wanted: list[Any]) -> list[SimpleNamespace]:
    """One answer for each field id or (field id, scope id), each with its own return code."""
    reads = field_reads(d.node.driver)
    found = []
    for field, scope in (item if isinstance(item, tuple | list) else (item, 0) for item in wanted):
        kind, read = reads.get(field, (UNSIGNED, lambda d, scope: None))
        number = read(d, scope)
        found.append(
            struct(
                fieldId=field,
                scopeId=scope,
                timestamp=0,
                latencyUsec=0,
                value=value(number or 0),
                valueType=kind,
                nvmlReturn=pynvml.NVML_ERROR_NOT_SUPPORTED if number is None else 0,
            )
        )
    return found


@answers(COUNTERS, "nvmlDeviceGetSamples")
@whole_only
def _samples(d: ResolvedDevice, kind: int, since: int) -> tuple[int, list[SimpleNamespace]]:
    """The buffered moments newer than `since` (microseconds)."""
    wanted = {
        pynvml.NVML_TOTAL_POWER_SAMPLES: lambda moment: 1000 * moment.power,
        pynvml.NVML_GPU_UTILIZATION_SAMPLES: lambda moment: 100 * min(1.0, moment.busy),
    }.get(kind)
    if wanted is None:
        refuse()
    found = [
        struct(timeStamp=stamp, sampleValue=value(round(wanted(moment))))
        for moment in d.physics.history
        if (stamp := _microseconds(d, moment.t)) > since
    ]
    if not found:
        refuse(pynvml.NVML_ERROR_NOT_FOUND)
    return UNSIGNED, found


def _microseconds(d: ResolvedDevice, t: float) -> int:
    """The driver's time stamp of a simulated second."""
    return round(1e6 * d.nvml.replica.wall_time(t))


def _processes(kind: str, d: ResolvedDevice) -> list[SimpleNamespace]:
    units = [d.unit] if d.unit is not None else d.gpu.units
    return [
        struct(
            pid=process.pid,
            usedGpuMemory=round(unit.memory * process.workload.memory) * MIB,
            gpuInstanceId=unit.gi if unit.profile else NO_INSTANCE,
            computeInstanceId=0 if unit.profile else NO_INSTANCE,
        )
        for unit in units
        for process in unit.processes
        if process.workload.kind == kind
    ]


for name, kind in (("Compute", "compute"), ("Graphics", "graphics"), ("MPSCompute", "mps")):
    for suffix in ("", "_v2", "_v3"):
        COUNTERS[f"nvmlDeviceGet{name}RunningProcesses{suffix}"] = partial(_processes, kind)


@answers(COUNTERS, "nvmlDeviceGetProcessUtilization")
@whole_only
def _process_utilization(d: ResolvedDevice, since: int) -> list[SimpleNamespace]:
    """The newest sample of each process that works; fails with NVML_SUCCESS when there is none, as pynvml does."""
    moment = d.physics.time
    stamp = _microseconds(d, moment)
    found = []
    for _, process in d.gpu.processes if stamp > since else ():
        load = process.load(moment)
        if load.busy or load.encoder:
            found.append(
                struct(
                    pid=process.pid,
                    timeStamp=stamp,
                    smUtil=round(100 * min(1.0, load.busy)),
                    memUtil=round(60 * min(1.0, load.dram)),
                    encUtil=round(100 * load.encoder),
                    decUtil=round(100 * load.decoder),
                )
            )
    if not found:
        refuse(pynvml.NVML_SUCCESS)
    return found
