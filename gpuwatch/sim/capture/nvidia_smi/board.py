"""Dump rows of power, temperature, clocks and the PCIe link, and the NVSwitch fabric registration."""

from typing import Any

import pynvml

from gpuwatch.collect.nvml.decode import CLOCK_EVENT_REASONS
from gpuwatch.sim.capture.nvidia_smi.parse import DumpNode
from gpuwatch.sim.capture.nvidia_smi.row import DumpRow, Source, at, bits, call, calls, field, pair
from gpuwatch.sim.capture.nvidia_smi.values import NoValue, count, flag, integer, milliwatts, nanoseconds, one_of, plain

_READINGS = ("gpu_power_readings", "power_readings")
_LIMITS = tuple(section + ceiling for section in _READINGS for ceiling in ("/gpu_ceiling_power_limit", ""))
"""Drivers from 610 on print limits in a section of their own, beside that of the base power."""


def _power(*labels: str, sections: tuple[str, ...] = _READINGS) -> Source:
    return at(milliwatts, *(f"{section}/{label}" for section in sections for label in labels))


def _limit(*names: str) -> Source:
    return _power(*(f"{name}power_limit" for name in names), sections=_LIMITS)


def _scope(section: str, scope: int) -> list[DumpRow]:
    return [
        field("DEV_POWER_AVERAGE", at(milliwatts, f"{section}/average_power_draw", f"{section}/power_draw"), scope),
        field(
            "DEV_POWER_INSTANT",
            at(milliwatts, f"{section}/instantaneous_power_draw", f"{section}/instant_power_draw"),
            scope,
        ),
    ]


POWER = [
    call("nvmlDeviceGetPowerUsage", _power("average_power_draw", "power_draw")),
    *_scope("gpu_power_readings", 0),
    *_scope("module_power_readings", 1),
    *_scope("gpu_memory_power_readings", 2),
    call("nvmlDeviceGetEnforcedPowerLimit", _limit("current_", "enforced_")),
    call("nvmlDeviceGetPowerManagementLimit", _limit("requested_", "")),
    call("nvmlDeviceGetPowerManagementDefaultLimit", _limit("default_")),
    DumpRow("nvmlDeviceGetPowerManagementLimitConstraints", (), (_limit("min_"), _limit("max_")), pair),
]

_GPU_TEMP = at(integer, "temperature/gpu_current_temp", "temperature/gpu_temp", "temperature/gpu")


def _specified(label: str) -> tuple[str, str]:
    """Drivers from 610 on call a fixed threshold a specification."""
    return f"temperature/{label}", f"temperature/{label}_specification"


def _threshold(constant: str, field_name: str | None, text: str, xml: str) -> list[DumpRow]:
    threshold = at(integer, *_specified(f"{text}_temp"), f"temperature/gpu_temp_{xml}_threshold")
    rows = [call("nvmlDeviceGetTemperatureThreshold", threshold, "NVML_TEMPERATURE_THRESHOLD_" + constant)]
    if field_name:
        paths = (*_specified(f"{text}_t_limit_temp"), f"temperature/gpu_temp_{xml}_tlimit_threshold")
        rows.append(field(field_name, at(integer, *paths)))
    return rows


TEMPERATURE = [
    *calls(("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"), _GPU_TEMP, "NVML_TEMPERATURE_GPU"),
    field("DEV_MEMORY_TEMP", at(integer, "temperature/memory_current_temp", "temperature/memory_temp")),
    call(
        "nvmlDeviceGetMarginTemperature",
        at(
            integer,
            "temperature/gpu_t_limit_temp",
            "temperature/gpu_current_t_limit_temp",
            "temperature/gpu_temp_tlimit",
        ),
    ),
    *_threshold("SHUTDOWN", "DEV_TEMPERATURE_SHUTDOWN_TLIMIT", "gpu_shutdown", "max"),
    *_threshold("SLOWDOWN", "DEV_TEMPERATURE_SLOWDOWN_TLIMIT", "gpu_slowdown", "slow"),
    *_threshold("GPU_MAX", "DEV_TEMPERATURE_GPU_MAX_TLIMIT", "gpu_max_operating", "max_gpu"),
    *_threshold("MEM_MAX", "DEV_TEMPERATURE_MEM_MAX_TLIMIT", "memory_max_operating", "max_mem"),
    call(
        "nvmlDeviceGetTemperatureThreshold",
        at(integer, *_specified("gpu_target_temperature"), "temperature/gpu_target_temp"),
        "NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_CURR",
    ),
]


def _clock(domain: str, constant: str) -> list[DumpRow]:
    def printed(section: str) -> Source:
        xml = "mem" if domain == "memory" else domain
        return at(count, f"{section}/{domain}", f"{section}/{xml}_clock")

    return [
        call("nvmlDeviceGetClockInfo", printed("clocks"), constant),
        call("nvmlDeviceGetMaxClockInfo", printed("max_clocks"), constant),
        call("nvmlDeviceGetApplicationsClock", printed("applications_clocks"), constant),
        call("nvmlDeviceGetDefaultApplicationsClock", printed("default_applications_clocks"), constant),
        call("nvmlDeviceGetMaxCustomerBoostClock", printed("max_customer_boost_clocks"), constant),
    ]


_REASON_LABELS = {
    "gpu_idle": ("idle",),
    "hw_thermal_slowdown": ("hw_slowdown/hw_thermal_slowdown", "hw_thermal_slowdown"),
    "hw_power_brake_slowdown": ("hw_slowdown/hw_power_brake_slowdown", "hw_power_brake_slowdown"),
    "display_clock_setting": ("display_clock_setting", "display_clocks_setting"),
}


def _reason_paths(reason: str) -> tuple[str, ...]:
    """Text nests two reasons under a third; XML prefixes each with the section's name in the singular."""
    labels = _REASON_LABELS.get(reason, (reason,))
    names = (*labels, reason, reason.replace("clock_setting", "clocks_setting"))
    return tuple(
        path
        for era in ("event", "throttle")
        for name in dict.fromkeys(names)
        for path in (f"clocks_{era}_reasons/{name}", f"clocks_{era}_reasons/clocks_{era}_reason_{name}")
    )


_REASON_PATHS = {bit: _reason_paths(reason) for reason, bit in CLOCK_EVENT_REASONS.items()}
_REASONS = bits(flag, _REASON_PATHS)
_KNOWN_REASONS = bits(lambda printed: flag(printed) | 1, _REASON_PATHS)
"""The GPU supports every reason that is printed as on or off."""


def _held(field_name: str, text: str, xml: str) -> DumpRow:
    sections = ("clocks_event_reasons_counters", "clocks_throttle_reasons_counters")
    names = (text, f"clocks_event_reasons_counters_{xml}", f"clocks_throttle_reasons_counters_{xml}")
    return field(field_name, at(nanoseconds, *(f"{section}/{name}" for section in sections for name in names)))


CLOCKS = [
    *_clock("graphics", "NVML_CLOCK_GRAPHICS"),
    *_clock("sm", "NVML_CLOCK_SM"),
    *_clock("memory", "NVML_CLOCK_MEM"),
    *_clock("video", "NVML_CLOCK_VIDEO"),
    *calls(("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"), _REASONS),
    *calls(("nvmlDeviceGetSupportedClocksEventReasons", "nvmlDeviceGetSupportedClocksThrottleReasons"), _KNOWN_REASONS),
    _held("DEV_PERF_POLICY_POWER", "sw_power_capping", "sw_power_cap"),
    _held("DEV_PERF_POLICY_SYNC_BOOST", "sync_boost", "sync_boost"),
    _held("DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN", "sw_thermal_slowdown", "sw_therm_slowdown"),
    _held("DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN", "hw_thermal_slowdown", "hw_therm_slowdown"),
    _held("DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN", "hw_power_braking", "hw_power_brake"),
]


def _link(text: str, xml: str) -> Source:
    return at(count, f"pci/gpu_link_info/{text}", f"pci/pci_gpu_link_info/{xml}")


_REPLAYS = at(count, "pci/replays_since_reset", "pci/replay_counter")

PCIE = [
    call("nvmlDeviceGetCurrPcieLinkGeneration", _link("pcie_generation/current", "pcie_gen/current_link_gen")),
    call("nvmlDeviceGetMaxPcieLinkGeneration", _link("pcie_generation/max", "pcie_gen/max_link_gen")),
    call("nvmlDeviceGetGpuMaxPcieLinkGeneration", _link("pcie_generation/device_max", "pcie_gen/max_device_link_gen")),
    call("nvmlDeviceGetCurrPcieLinkWidth", _link("link_width/current", "link_widths/current_link_width")),
    call("nvmlDeviceGetMaxPcieLinkWidth", _link("link_width/max", "link_widths/max_link_width")),
    call("nvmlDeviceGetPcieReplayCounter", _REPLAYS),
    field("DEV_PCIE_REPLAY_COUNTER", _REPLAYS),
    field("DEV_PCIE_REPLAY_ROLLOVER_COUNTER", at(count, "pci/replay_number_rollovers", "pci/replay_rollover_counter")),
    call("nvmlDeviceGetPcieThroughput", at(count, "pci/tx_throughput", "pci/tx_util"), "NVML_PCIE_UTIL_TX_BYTES"),
    call("nvmlDeviceGetPcieThroughput", at(count, "pci/rx_throughput", "pci/rx_util"), "NVML_PCIE_UTIL_RX_BYTES"),
]


STATES = {"Not Supported": 0, "Not Started": 1, "In Progress": 2, "Completed": 3}
TRUTH = {"True": 1, "Yes": 1, "Degraded": 1, "False": 2, "No": 2, "Full": 2}
"""NVML_GPU_FABRIC_HEALTH_MASK_*_TRUE and _FALSE."""

CONFIGURATION = {
    "None": 1,
    "Incorrect SysGUID": 2,
    "Incorrect Chassis SN": 3,
    "No Partition": 4,
    "Insufficient Nvlinks": 5,
    "Incompatible GPU FW": 6,
    "Incompatible GPU Firmware": 6,
    "Invalid Location": 7,
    "GPU State Invalid": 8,
}
HEALTH = {
    1 << 0: ("bandwidth", "degraded_bandwidth"),
    1 << 2: ("route_recovery_in_progress", "route_recovery"),
    1 << 4: ("route_unhealthy",),
    1 << 6: ("access_timeout_recovery",),
}
"""Place in the health mask -> labels."""

_INCORRECT = bits(
    one_of(CONFIGURATION, 0),
    {1 << 8: ("fabric/health/incorrect_configuration", "fabric/health/incorrect_config")},
    required=False,
)
_HEALTH = bits(
    one_of(TRUTH), {place: tuple(f"fabric/health/{label}" for label in labels) for place, labels in HEALTH.items()}
)
_STATUS = one_of({"Success": 0} | {text: code for code, text in pynvml.NVMLError._errcode_to_string.items()})


def fabric(gpu: DumpNode) -> dict[str, Any]:
    """Call -> answer: the older call without health, and the newer one where a health is printed.

    Raises:
        NoValue: the GPU has no fabric.
    """
    state = at(one_of(STATES), "fabric/state")(gpu)
    info = {
        "state": state,
        "status": _optional(at(_STATUS, "fabric/status"), gpu),
        "cliqueId": _optional(at(count, "fabric/cliqueid", "fabric/clique_id"), gpu),
        "clusterUuid": cluster(gpu),
    }
    answers = {"nvmlDeviceGetGpuFabricInfo": {"fills": [info]}}
    try:
        health = _HEALTH(gpu) | _INCORRECT(gpu)
    except NoValue:
        return answers
    return answers | {"nvmlDeviceGetGpuFabricInfoV": {"fills": [info | {"healthMask": health}]}}


def cluster(gpu: DumpNode) -> list[int]:
    """The 16 bytes of the cluster's UUID; zeros where none is printed, as NVML gives them."""
    try:
        digits = at(plain, "fabric/clusteruuid", "fabric/cluster_uuid")(gpu).replace("-", "")
        return list(bytes.fromhex(digits)[:16])
    except (NoValue, ValueError):
        return [0] * 16


def _optional(source: Any, gpu: DumpNode) -> int:
    try:
        return int(source(gpu))
    except NoValue:
        return 0
