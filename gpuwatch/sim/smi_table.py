"""ROWS: which NVML answer each line of an nvidia-smi dump came from. Reading another line is adding a row here.

Paths are labels in lower case, words joined by `_`; text and XML, older and newer drivers use different ones.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from gpuwatch.sim.capture_data import Answer
from gpuwatch.sim.smi_sources import Source, at, bits, either, total
from gpuwatch.sim.smi_values import (
    count,
    flag,
    integer,
    memory,
    milliwatts,
    nanoseconds,
    one_of,
    percentage,
    performance_state,
    plain,
)
from gpuwatch.sources.nvml_fields import (
    ARCHITECTURES,
    BRANDS,
    CLOCK_EVENT_REASONS,
    COMPUTE_MODES,
    SRAM_STATUS,
    VIRTUALIZATION_MODES,
)


class Row(NamedTuple):
    """One NVML call: its arguments after the handle (strings name constants), what goes into the answer, and how."""

    call: str
    args: tuple[Any, ...]
    sources: tuple[Source, ...]
    build: Callable[..., Answer] = lambda value: value


def struct(name: str, *names: str) -> Callable[..., Answer]:
    """Build an answer that is a pynvml struct with these members."""
    return lambda *values: {"struct": name, "members": dict(zip(names, values, strict=True))}


def call(name: str, source: Source, *args: Any) -> Row:
    """A call that answers one value."""
    return Row(name, args, (source,))


def calls(names: tuple[str, ...], source: Source, *args: Any) -> list[Row]:
    """Several calls with the same answer."""
    return [call(name, source, *args) for name in names]


def field(name: str, source: Source, scope: int = 0) -> Row:
    """A field value by the name of its constant."""
    return Row("nvmlDeviceGetFieldValues", ("NVML_FI_" + name, scope), (source,), field_value)


def field_value(value: int) -> Answer:
    """A field value with the nvmlValueType_t that holds it."""
    return {"type": 3 if value >= 0 else 4, "value": value}


def pair(*values: Any) -> Answer:
    """Calls that answer a list."""
    return list(values)


def reverse(names: dict[int, str]) -> dict[str, int]:
    """Words to codes."""
    return {word: code for code, word in names.items()}


IDENTITY = [
    call("nvmlDeviceGetName", at(plain, "product_name")),
    call("nvmlDeviceGetBrand", at(one_of(reverse(BRANDS), 0), "product_brand")),
    call("nvmlDeviceGetArchitecture", at(one_of({"Ada": 8} | reverse(ARCHITECTURES)), "product_architecture")),
    call("nvmlDeviceGetSerial", at(plain, "serial_number", "serial")),
    call("nvmlDeviceGetBoardPartNumber", at(plain, "board_part_number")),
    call("nvmlDeviceGetVbiosVersion", at(plain, "vbios_version")),
    call("nvmlDeviceGetInforomImageVersion", at(plain, "inforom_version/image_version", "inforom_version/img_version")),
    Row("nvmlDeviceGetGspFirmwareVersion", (), (at(plain, "gsp_firmware_version"),), lambda v: {"bytes": v}),
    call("nvmlDeviceGetMinorNumber", at(count, "minor_number")),
]

MODES = [
    call("nvmlDeviceGetPersistenceMode", at(flag, "persistence_mode")),
    call("nvmlDeviceGetDisplayActive", at(flag, "display_active")),
    call("nvmlDeviceGetDisplayMode", at(flag, "display_attached", "display_mode")),
    call("nvmlDeviceGetAccountingMode", at(flag, "accounting_mode")),
    call("nvmlDeviceGetComputeMode", at(one_of(reverse(COMPUTE_MODES)), "compute_mode")),
    call(
        "nvmlDeviceGetVirtualizationMode",
        at(one_of(reverse(VIRTUALIZATION_MODES)), "gpu_virtualization_mode/virtualization_mode"),
    ),
    Row(
        "nvmlDeviceGetMigMode",
        (),
        (
            at(flag, "mig_mode/current", "mig_mode/current_mig"),
            either(
                at(flag, "mig_mode/pending", "mig_mode/pending_mig"),
                at(flag, "mig_mode/current", "mig_mode/current_mig"),
            ),
        ),
        pair,
    ),
    call("nvmlDeviceGetPerformanceState", at(performance_state, "performance_state")),
    field(
        "DEV_GET_GPU_RECOVERY_ACTION",
        at(
            one_of(
                {
                    "None": 0,
                    "Reset": 1,
                    "GPU Reset": 1,
                    "Reboot": 2,
                    "Node Reboot": 2,
                    "Drain P2P": 3,
                    "Drain and Reset": 4,
                    "Recover IMEX Domain": 5,
                    "Bus Reset": 6,
                    "System Reboot": 7,
                }
            ),
            "gpu_recovery_action",
        ),
    ),
    # one speed is printed, whatever the number of fans
    Row("nvmlDeviceGetNumFans", (), (at(percentage, "fan_speed"),), lambda _: 1),
    call("nvmlDeviceGetFanSpeed", at(percentage, "fan_speed")),
    call("nvmlDeviceGetFanSpeed_v2", at(percentage, "fan_speed"), 0),
]


def _engine(name: str, *labels: str) -> Row:
    source = at(percentage, *(f"utilization/{label}" for label in labels))
    return Row(f"nvmlDeviceGet{name}Utilization", (), (source,), lambda value: [value, 0])


USE = [
    Row(
        "nvmlDeviceGetUtilizationRates",
        (),
        (
            at(percentage, "utilization/gpu", "utilization/gpu_util"),
            at(percentage, "utilization/memory", "utilization/memory_util"),
        ),
        struct("c_nvmlUtilization_t", "gpu", "memory"),
    ),
    _engine("Encoder", "encoder", "encoder_util"),
    _engine("Decoder", "decoder", "decoder_util"),
    _engine("Jpg", "jpeg", "jpeg_util"),
    _engine("Ofa", "ofa", "ofa_util"),
]


def _memory(section: str, *, shared: str = "") -> dict[str, Source]:
    sections = (shared, section) if shared else (section,)
    return {
        name: at(memory, *(f"{found}/{name}" for found in sections)) for name in ("total", "used", "free", "reserved")
    }


_FB = _memory("fb_memory_usage", shared="shared_fb_memory_usage")
_BAR1 = _memory("bar1_memory_usage", shared="shared_bar1_memory")

MEMORY = [
    Row(
        "nvmlDeviceGetMemoryInfo",
        ("nvmlMemory_v2",),
        (_FB["total"], _FB["used"], _FB["free"], _FB["reserved"]),
        struct("c_nvmlMemory_v2_t", "total", "used", "free", "reserved"),
    ),
    Row(
        "nvmlDeviceGetMemoryInfo",
        (),
        (_FB["total"], _FB["used"], _FB["free"]),
        struct("c_nvmlMemory_t", "total", "used", "free"),
    ),
    Row(
        "nvmlDeviceGetBAR1MemoryInfo",
        (),
        (_BAR1["total"], _BAR1["used"], _BAR1["free"]),
        struct("c_nvmlBAR1Memory_t", "bar1Total", "bar1Used", "bar1Free"),
    ),
]


def _power(*labels: str) -> Source:
    sections = ("gpu_power_readings", "power_readings")
    return at(milliwatts, *(f"{section}/{label}" for section in sections for label in labels))


def _scope(section: str, scope: int) -> list[Row]:
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
    call("nvmlDeviceGetEnforcedPowerLimit", _power("current_power_limit", "enforced_power_limit")),
    call("nvmlDeviceGetPowerManagementLimit", _power("requested_power_limit", "power_limit")),
    call("nvmlDeviceGetPowerManagementDefaultLimit", _power("default_power_limit")),
    Row(
        "nvmlDeviceGetPowerManagementLimitConstraints",
        (),
        (_power("min_power_limit"), _power("max_power_limit")),
        pair,
    ),
]

_GPU_TEMP = at(integer, "temperature/gpu_current_temp", "temperature/gpu_temp", "temperature/gpu")


def _threshold(constant: str, field_name: str | None, text: str, xml: str) -> list[Row]:
    rows = [
        call(
            "nvmlDeviceGetTemperatureThreshold",
            at(integer, f"temperature/{text}_temp", f"temperature/gpu_temp_{xml}_threshold"),
            "NVML_TEMPERATURE_THRESHOLD_" + constant,
        )
    ]
    if field_name:
        paths = (f"temperature/{text}_t_limit_temp", f"temperature/gpu_temp_{xml}_tlimit_threshold")
        rows.append(field(field_name, at(integer, *paths)))
    return rows


TEMPERATURE = [
    *calls(("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"), _GPU_TEMP, "NVML_TEMPERATURE_GPU"),
    field("DEV_MEMORY_TEMP", at(integer, "temperature/memory_current_temp", "temperature/memory_temp")),
    call("nvmlDeviceGetMarginTemperature", at(integer, "temperature/gpu_t_limit_temp", "temperature/gpu_temp_tlimit")),
    *_threshold("SHUTDOWN", "DEV_TEMPERATURE_SHUTDOWN_TLIMIT", "gpu_shutdown", "max"),
    *_threshold("SLOWDOWN", "DEV_TEMPERATURE_SLOWDOWN_TLIMIT", "gpu_slowdown", "slow"),
    *_threshold("GPU_MAX", "DEV_TEMPERATURE_GPU_MAX_TLIMIT", "gpu_max_operating", "max_gpu"),
    *_threshold("MEM_MAX", "DEV_TEMPERATURE_MEM_MAX_TLIMIT", "memory_max_operating", "max_mem"),
    call(
        "nvmlDeviceGetTemperatureThreshold",
        at(integer, "temperature/gpu_target_temperature", "temperature/gpu_target_temp"),
        "NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_CURR",
    ),
]


def _clock(domain: str, constant: str) -> list[Row]:
    def printed(section: str) -> Source:
        return at(count, f"{section}/{domain}", f"{section}/{domain}_clock")

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


_REASONS = bits(flag, {bit: _reason_paths(reason) for reason, bit in CLOCK_EVENT_REASONS.items()})


def _held(field_name: str, text: str, xml: str) -> Row:
    sections = ("clocks_event_reasons_counters", "clocks_throttle_reasons_counters")
    names = (text, f"clocks_event_reasons_counters_{xml}", f"clocks_throttle_reasons_counters_{xml}")
    return field(field_name, at(nanoseconds, *(f"{section}/{name}" for section in sections for name in names)))


CLOCKS = [
    *_clock("graphics", "NVML_CLOCK_GRAPHICS"),
    *_clock("sm", "NVML_CLOCK_SM"),
    *_clock("memory", "NVML_CLOCK_MEM"),
    *_clock("video", "NVML_CLOCK_VIDEO"),
    *calls(("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"), _REASONS),
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
    field(
        "DEV_PCIE_REPLAY_ROLLOVER_COUNTER",
        at(count, "pci/replay_number_rollovers", "pci/replay_rollover_counter"),
    ),
    call("nvmlDeviceGetPcieThroughput", at(count, "pci/tx_throughput", "pci/tx_util"), "NVML_PCIE_UTIL_TX_BYTES"),
    call("nvmlDeviceGetPcieThroughput", at(count, "pci/rx_throughput", "pci/rx_util"), "NVML_PCIE_UTIL_RX_BYTES"),
]

_KINDS = {
    "NVML_MEMORY_ERROR_TYPE_CORRECTED": ("correctable", "single_bit"),
    "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": ("uncorrectable", "double_bit"),
}
_SCOPES = {"NVML_VOLATILE_ECC": "volatile", "NVML_AGGREGATE_ECC": "aggregate"}
_OLD_LOCATIONS = {
    "L1_CACHE": ("l1_cache",),
    "L2_CACHE": ("l2_cache",),
    "REGISTER_FILE": ("register_file",),
    "TEXTURE_MEMORY": ("texture_memory",),
    "TEXTURE_SHM": ("texture_shared", "texture_shm"),
    "CBU": ("cbu",),
}
"""Volta and older print one counter per location."""


def _ecc_counters(kind: str, scope: str) -> list[Row]:
    word, bit = _KINDS[kind]
    section = f"ecc_errors/{_SCOPES[scope]}"
    parts = (
        at(count, f"{section}/sram_uncorrectable_parity"),
        at(count, f"{section}/sram_uncorrectable_sec_ded", f"{section}/sram_uncorrectable_secded"),
    )
    plain_sram = at(count, f"{section}/sram_{word}")
    sram = either(plain_sram, total(*parts)) if word == "uncorrectable" else plain_sram
    dram = at(count, f"{section}/dram_{word}", f"{section}/{bit}/device_memory")
    counter = "nvmlDeviceGetMemoryErrorCounter"
    return [
        call(counter, sram, kind, scope, "NVML_MEMORY_LOCATION_SRAM"),
        call(counter, dram, kind, scope, "NVML_MEMORY_LOCATION_DRAM"),
        *(
            call(counter, at(count, *(f"{section}/{bit}/{label}" for label in labels)), kind, scope, constant)
            for location, labels in _OLD_LOCATIONS.items()
            for constant in ["NVML_MEMORY_LOCATION_" + location]
        ),
        call(
            "nvmlDeviceGetTotalEccErrors", either(at(count, f"{section}/{bit}/total"), total(sram, dram)), kind, scope
        ),
    ]


_SRAM = {
    "volatileUncParity": ("volatile/sram_uncorrectable_parity",),
    "volatileUncSecDed": ("volatile/sram_uncorrectable_sec_ded", "volatile/sram_uncorrectable_secded"),
    "aggregateUncParity": ("aggregate/sram_uncorrectable_parity",),
    "aggregateUncSecDed": ("aggregate/sram_uncorrectable_sec_ded", "aggregate/sram_uncorrectable_secded"),
    "aggregateUncBucketL2": ("aggregate_uncorrectable_sram_sources/sram_l2",),
    "aggregateUncBucketSm": ("aggregate_uncorrectable_sram_sources/sram_sm",),
    "aggregateUncBucketPcie": ("aggregate_uncorrectable_sram_sources/sram_pcie",),
    "aggregateUncBucketMcu": ("aggregate_uncorrectable_sram_sources/sram_microcontroller",),
    "aggregateUncBucketOther": ("aggregate_uncorrectable_sram_sources/sram_other",),
    "bThresholdExceeded": ("aggregate/sram_threshold_exceeded",),
}


def _sram(member: str) -> Source:
    convert = flag if member == "bThresholdExceeded" else count
    return at(convert, *(f"ecc_errors/{path}" for path in _SRAM[member]))


ECC = [
    Row(
        "nvmlDeviceGetEccMode",
        (),
        (
            at(flag, "ecc_mode/current", "ecc_mode/current_ecc"),
            either(
                at(flag, "ecc_mode/pending", "ecc_mode/pending_ecc"),
                at(flag, "ecc_mode/current", "ecc_mode/current_ecc"),
            ),
        ),
        pair,
    ),
    *(row for kind in _KINDS for scope in _SCOPES for row in _ecc_counters(kind, scope)),
    Row(
        "nvmlDeviceGetSramEccErrorStatus",
        (),
        tuple(_sram(member) for member in SRAM_STATUS.values()),
        lambda *values: {"fills": [dict(zip(SRAM_STATUS.values(), values, strict=True))]},
    ),
    Row(
        "nvmlDeviceGetRepairStatus",
        (),
        (at(flag, "ecc_errors/channel_repair_pending"), at(flag, "ecc_errors/tpc_repair_pending")),
        pair,
    ),
    call("nvmlDeviceGetUnrepairableMemoryFlag_v1", at(flag, "ecc_errors/unrepairable_memory")),
]


def _banks(name: str) -> Source:
    return at(
        count,
        f"remapped_rows/bank_remap_availability_histogram/{name}",
        f"remapped_rows/row_remapper_histogram/row_remapper_histogram_{name}",
    )


def _remapped(convert: Callable[[str], int], text: str, xml: str) -> Source:
    return at(convert, f"remapped_rows/{text}", f"remapped_rows/remapped_row_{xml}")


MAX_RETIRED = 4096
"""No GPU retires more pages than some dozens."""


def _pages(number: int) -> Answer:
    """The dump counts pages; their addresses it does not print."""
    return [0] * min(number, MAX_RETIRED)


REPAIRS = [
    Row(
        "nvmlDeviceGetRemappedRows",
        (),
        (
            _remapped(count, "correctable_error", "corr"),
            _remapped(count, "uncorrectable_error", "unc"),
            _remapped(flag, "pending", "pending"),
            _remapped(flag, "remapping_failure_occurred", "failure"),
        ),
        pair,
    ),
    Row(
        "nvmlDeviceGetRowRemapperHistogram",
        (),
        tuple(_banks(name) for name in ("max", "high", "partial", "low", "none")),
        struct("c_nvmlRowRemapperHistogramValues", "max", "high", "partial", "low", "none"),
    ),
    Row(
        "nvmlDeviceGetRetiredPages",
        ("NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS",),
        (at(count, "retired_pages/single_bit_ecc", "retired_pages/multiple_single_bit_retirement/retired_count"),),
        _pages,
    ),
    Row(
        "nvmlDeviceGetRetiredPages",
        ("NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR",),
        (at(count, "retired_pages/double_bit_ecc", "retired_pages/double_bit_retirement/retired_count"),),
        _pages,
    ),
    call(
        "nvmlDeviceGetRetiredPagesPendingStatus",
        at(
            flag,
            "retired_pages/pending_page_blacklist",
            "retired_pages/pending",
            "retired_pages/pending_blacklist",
            "retired_pages/pending_retirement",
        ),
    ),
]

ROWS: tuple[Row, ...] = (
    *IDENTITY,
    *MODES,
    *USE,
    *MEMORY,
    *POWER,
    *TEMPERATURE,
    *CLOCKS,
    *PCIE,
    *ECC,
    *REPAIRS,
)
"""Answers about a whole GPU; fabric, processes, NVLinks and MIG devices have their own files."""

MIG_ROWS: tuple[Row, ...] = (
    *MEMORY,
    call(
        "nvmlDeviceGetMemoryErrorCounter",
        at(count, "ecc_errors/volatile/sram_uncorrectable", "ecc_error_count/volatile_count/sram_uncorrectable"),
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED",
        "NVML_VOLATILE_ECC",
        "NVML_MEMORY_LOCATION_SRAM",
    ),
    call("nvmlDeviceGetGpuInstanceId", at(count, "gpu_instance_id")),
    call("nvmlDeviceGetComputeInstanceId", at(count, "compute_instance_id")),
)
"""Answers about a MIG device."""
