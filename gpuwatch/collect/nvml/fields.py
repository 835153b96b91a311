"""FIELDS: which NVML call fills which path of `model.snapshot.Gpu`. Adding a reading is adding a row here.

A row lists the ways to get its values in order of preference: a field before a call, a newer symbol before those of
older drivers. A `FieldId` is read in one batch with all others (nvmlDeviceGetFieldValues); a `NvmlCall` costs a driver
call of its own, and the cost of a sample grows with its number of calls.
"""

from collections.abc import Callable
from enum import IntEnum
from typing import Any

import msgspec

from gpuwatch.collect.nvml.decode import (
    ARCHITECTURES,
    BRANDS,
    COMPUTE_MODES,
    FABRIC_FIELDS,
    SRAM_STATUS,
    VIRTUALIZATION_MODES,
    clock_events,
    fabric,
    first_percent,
    megahertz,
    milli,
    nanoseconds,
    platform,
    rates,
    remapped_rows,
    reset_status,
    sram_status,
    vgpu_license,
    video_sessions,
)
from gpuwatch.collect.nvml.library import text


class Tier(IntEnum):
    """How often a value is read, in samples."""

    STATIC = 0  # once per registration
    FAST = 1  # every sample
    STEADY = 2  # every sample at an interval of two seconds and more, else as SLOW
    SLOW = 5  # every fifth sample, and at once after an event


STEADY_SECONDS = 2.0


def tiers_due(count: int, *, interval: float = STEADY_SECONDS, force: bool = False) -> frozenset[Tier]:
    """The tiers that sample `count` of a GPU reads, with `interval` seconds between samples; `force`: all of them.
    Static values are read once in any case.
    """
    if force or count % Tier.SLOW == 0:
        return frozenset({Tier.FAST, Tier.STEADY, Tier.SLOW})
    return frozenset({Tier.FAST} if interval < STEADY_SECONDS else {Tier.FAST, Tier.STEADY})


class NvmlCall(msgspec.Struct, frozen=True, eq=False):
    """One NVML function of a handle; string arguments name constants of the module."""

    name: str
    args: tuple[Any, ...] = ()
    get: Callable[[Any], Any] = lambda answer: answer


class FieldId(msgspec.Struct, frozen=True, eq=False):
    """A field value by the name of its constant (without the NVML_FI_ prefix), or several of which one must answer.

    `get` takes their values in order, None for a field that is not supported.
    """

    name: str
    get: Callable[..., Any] = lambda answer: answer
    others: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All its constants."""
        return (self.name, *self.others)


class FieldRow(msgspec.Struct, frozen=True, eq=False):
    """One row: `ways[0].get(answer)` gives one value for one path, a tuple of values for several.

    Rows and ways are keys that every sample looks up, hence compared by identity: the hash of a tuple visits all of it.
    """

    paths: tuple[str, ...]
    tier: Tier
    ways: tuple[NvmlCall | FieldId, ...]


def _one(path: str, tier: Tier, *ways: NvmlCall | FieldId) -> FieldRow:
    return FieldRow((path,), tier, ways)


def _clock(domain: str, constant: str, tier: Tier) -> list[FieldRow]:
    return [
        _one(f"clocks.{domain}", tier, NvmlCall("nvmlDeviceGetClockInfo", (constant,), megahertz)),
        _one(f"clocks.{domain}_max", Tier.STATIC, NvmlCall("nvmlDeviceGetMaxClockInfo", (constant,), megahertz)),
    ]


def _threshold(name: str, constant: str, tlimit_field: str | None) -> list[FieldRow]:
    """A threshold in degrees, and where the GPU states thresholds as margins, the margin."""
    rows = [
        _one(
            f"temperature.threshold_{name}",
            Tier.STATIC,
            NvmlCall("nvmlDeviceGetTemperatureThreshold", (constant,), float),
        )
    ]
    if tlimit_field:
        rows.append(_one(f"temperature.margin_{name}", Tier.STATIC, FieldId(tlimit_field, float)))
    return rows


ECC_KINDS = {"corrected": "NVML_MEMORY_ERROR_TYPE_CORRECTED", "uncorrected": "NVML_MEMORY_ERROR_TYPE_UNCORRECTED"}
ECC_SCOPES = {"volatile": "NVML_VOLATILE_ECC", "aggregate": "NVML_AGGREGATE_ECC"}
ECC_LOCATIONS = {
    "dram": "NVML_MEMORY_LOCATION_DRAM",
    "sram": "NVML_MEMORY_LOCATION_SRAM",
    "l1_cache": "NVML_MEMORY_LOCATION_L1_CACHE",
    "l2_cache": "NVML_MEMORY_LOCATION_L2_CACHE",
    "register_file": "NVML_MEMORY_LOCATION_REGISTER_FILE",
    "texture_memory": "NVML_MEMORY_LOCATION_TEXTURE_MEMORY",
    "cbu": "NVML_MEMORY_LOCATION_CBU",
}


ECC_FIELDS = {
    "corrected/volatile/total": "DEV_ECC_SBE_VOL_TOTAL",
    "corrected/volatile/dram": "DEV_ECC_SBE_VOL_DEV",
    "corrected/aggregate/total": "DEV_ECC_SBE_AGG_TOTAL",
    "corrected/aggregate/dram": "DEV_ECC_SBE_AGG_DEV",
    "uncorrected/volatile/total": "DEV_ECC_DBE_VOL_TOTAL",
    "uncorrected/volatile/dram": "DEV_ECC_DBE_VOL_DEV",
    "uncorrected/aggregate/total": "DEV_ECC_DBE_AGG_TOTAL",
    "uncorrected/aggregate/dram": "DEV_ECC_DBE_AGG_DEV",
}
"""Counters that also have a field, which names corrected errors SBE (single bit) and uncorrected ones DBE."""


def _ecc() -> list[FieldRow]:
    rows = []
    for kind, kind_constant in ECC_KINDS.items():
        for scope, scope_constant in ECC_SCOPES.items():
            calls = {"total": NvmlCall("nvmlDeviceGetTotalEccErrors", (kind_constant, scope_constant))}
            for location, constant in ECC_LOCATIONS.items():
                arguments = kind_constant, scope_constant, constant
                calls[location] = NvmlCall("nvmlDeviceGetMemoryErrorCounter", arguments)
            for location, call in calls.items():
                key = f"{kind}/{scope}/{location}"
                field = (FieldId(ECC_FIELDS[key]),) if key in ECC_FIELDS else ()
                rows.append(_one(f"ecc.counts.{key}", Tier.SLOW, *field, call))
    status = NvmlCall("nvmlDeviceGetSramEccErrorStatus", (), sram_status)
    return [*rows, FieldRow(tuple(f"ecc.{path}" for path in SRAM_STATUS), Tier.SLOW, (status,))]


IDENTITY: tuple[FieldRow, ...] = (
    _one("name", Tier.STATIC, NvmlCall("nvmlDeviceGetName", (), text)),
    _one("brand", Tier.STATIC, NvmlCall("nvmlDeviceGetBrand", (), BRANDS.get)),
    _one("architecture", Tier.STATIC, NvmlCall("nvmlDeviceGetArchitecture", (), ARCHITECTURES.get)),
    _one(
        "compute_capability",
        Tier.STATIC,
        NvmlCall("nvmlDeviceGetCudaComputeCapability", (), lambda pair: f"{pair[0]}.{pair[1]}"),
    ),
    _one("serial", Tier.STATIC, NvmlCall("nvmlDeviceGetSerial", (), text)),
    _one("board_part_number", Tier.STATIC, NvmlCall("nvmlDeviceGetBoardPartNumber", (), text)),
    _one("vbios", Tier.STATIC, NvmlCall("nvmlDeviceGetVbiosVersion", (), text)),
    _one("inforom_image", Tier.STATIC, NvmlCall("nvmlDeviceGetInforomImageVersion", (), text)),
    *(
        _one(f"inforom_{name}", Tier.STATIC, NvmlCall("nvmlDeviceGetInforomVersion", (constant,), text))
        for name, constant in (
            ("oem", "NVML_INFOROM_OEM"),
            ("ecc", "NVML_INFOROM_ECC"),
            ("power", "NVML_INFOROM_POWER"),
        )
    ),
    _one("gsp_firmware", Tier.STATIC, NvmlCall("nvmlDeviceGetGspFirmwareVersion", (), text)),
    _one("gsp_enabled", Tier.STATIC, NvmlCall("nvmlDeviceGetGspFirmwareMode", (), lambda pair: bool(pair[0]))),
    _one("minor", Tier.STATIC, NvmlCall("nvmlDeviceGetMinorNumber")),
    _one("cores", Tier.STATIC, NvmlCall("nvmlDeviceGetNumGpuCores")),
    _one("memory_bus_width", Tier.STATIC, NvmlCall("nvmlDeviceGetMemoryBusWidth")),
    _one("numa_node", Tier.STATIC, NvmlCall("nvmlDeviceGetNumaNodeId")),
    FieldRow(
        ("chassis_serial", "slot", "tray", "host", "module"),
        Tier.STATIC,
        (
            NvmlCall("nvmlDeviceGetPlatformInfo", (), platform),
            NvmlCall("nvmlDeviceGetModuleId", (), lambda module: (None, None, None, None, module)),
        ),
    ),
)
"""Paths of `model.snapshot.Identity`, read once per registration."""

FIELDS: tuple[FieldRow, ...] = (
    FieldRow(
        ("utilization.gpu", "utilization.memory"), Tier.FAST, (NvmlCall("nvmlDeviceGetUtilizationRates", (), rates),)
    ),
    _one("utilization.encoder", Tier.STEADY, NvmlCall("nvmlDeviceGetEncoderUtilization", (), first_percent)),
    _one("utilization.decoder", Tier.STEADY, NvmlCall("nvmlDeviceGetDecoderUtilization", (), first_percent)),
    _one("utilization.jpeg", Tier.STEADY, NvmlCall("nvmlDeviceGetJpgUtilization", (), first_percent)),
    _one("utilization.ofa", Tier.STEADY, NvmlCall("nvmlDeviceGetOfaUtilization", (), first_percent)),
    FieldRow(
        ("memory.total", "memory.used", "memory.free", "memory.reserved"),
        Tier.FAST,
        (
            NvmlCall("nvmlDeviceGetMemoryInfo", ("nvmlMemory_v2",), lambda m: (m.total, m.used, m.free, m.reserved)),
            NvmlCall("nvmlDeviceGetMemoryInfo", (), lambda m: (m.total, m.used, m.free, None)),
        ),
    ),
    # a GPU outside confidential computing protects nothing of its memory, and answers so
    FieldRow(
        ("protected_memory.total", "protected_memory.used", "protected_memory.free"),
        Tier.SLOW,
        (
            NvmlCall(
                "nvmlDeviceGetConfComputeProtectedMemoryUsage",
                (),
                lambda m: (m.total, m.used, m.free) if m.total else (None, None, None),
            ),
        ),
    ),
    FieldRow(
        ("bar1.total", "bar1.used", "bar1.free"),
        Tier.SLOW,
        (NvmlCall("nvmlDeviceGetBAR1MemoryInfo", (), lambda m: (m.bar1Total, m.bar1Used, m.bar1Free)),),
    ),
    _one(
        "power.average",
        Tier.FAST,
        FieldId("DEV_POWER_AVERAGE", milli),
        NvmlCall("nvmlDeviceGetPowerUsage", (), milli),
    ),
    _one("power.instant", Tier.FAST, FieldId("DEV_POWER_INSTANT", milli)),
    _one(
        "power.energy",
        Tier.FAST,
        FieldId("DEV_TOTAL_ENERGY_CONSUMPTION", milli),
        NvmlCall("nvmlDeviceGetTotalEnergyConsumption", (), milli),
    ),
    _one(
        "power.limit_enforced",
        Tier.FAST,
        FieldId("DEV_POWER_CURRENT_LIMIT", milli),
        NvmlCall("nvmlDeviceGetEnforcedPowerLimit", (), milli),
    ),
    _one("power.limit_configured", Tier.SLOW, NvmlCall("nvmlDeviceGetPowerManagementLimit", (), milli)),
    _one("power.limit_default", Tier.STATIC, NvmlCall("nvmlDeviceGetPowerManagementDefaultLimit", (), milli)),
    FieldRow(
        ("power.limit_min", "power.limit_max"),
        Tier.STATIC,
        (NvmlCall("nvmlDeviceGetPowerManagementLimitConstraints", (), lambda pair: (pair[0] / 1e3, pair[1] / 1e3)),),
    ),
    _one(
        "temperature.gpu",
        Tier.FAST,
        NvmlCall("nvmlDeviceGetTemperatureV", ("NVML_TEMPERATURE_GPU",), float),
        NvmlCall("nvmlDeviceGetTemperature", ("NVML_TEMPERATURE_GPU",), float),
    ),
    # the field is 0 where there is no memory sensor, and no working memory is at 0 degrees
    _one("temperature.memory", Tier.FAST, FieldId("DEV_MEMORY_TEMP", lambda c: float(c) if c > 0 else None)),
    _one("temperature.margin", Tier.STEADY, NvmlCall("nvmlDeviceGetMarginTemperature", (), float)),
    *_threshold("shutdown", "NVML_TEMPERATURE_THRESHOLD_SHUTDOWN", "DEV_TEMPERATURE_SHUTDOWN_TLIMIT"),
    *_threshold("slowdown", "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN", "DEV_TEMPERATURE_SLOWDOWN_TLIMIT"),
    *_threshold("max_operating", "NVML_TEMPERATURE_THRESHOLD_GPU_MAX", "DEV_TEMPERATURE_GPU_MAX_TLIMIT"),
    *_threshold("memory_max", "NVML_TEMPERATURE_THRESHOLD_MEM_MAX", "DEV_TEMPERATURE_MEM_MAX_TLIMIT"),
    *_threshold("target", "NVML_TEMPERATURE_THRESHOLD_ACOUSTIC_CURR", None),
    *_clock("graphics", "NVML_CLOCK_GRAPHICS", Tier.STEADY),
    *_clock("sm", "NVML_CLOCK_SM", Tier.FAST),
    *_clock("memory", "NVML_CLOCK_MEM", Tier.STEADY),
    *_clock("video", "NVML_CLOCK_VIDEO", Tier.STEADY),
    _one(
        "clock_events.active",
        Tier.FAST,
        NvmlCall("nvmlDeviceGetCurrentClocksEventReasons", (), clock_events),
        NvmlCall("nvmlDeviceGetCurrentClocksThrottleReasons", (), clock_events),
    ),
    _one(
        "clock_events.supported",
        Tier.STATIC,
        NvmlCall("nvmlDeviceGetSupportedClocksEventReasons", (), clock_events),
        NvmlCall("nvmlDeviceGetSupportedClocksThrottleReasons", (), clock_events),
    ),
    *(
        _one(f"clock_events.seconds.{reason}", Tier.FAST, FieldId(field, nanoseconds))
        for reason, field in (
            ("sw_power_cap", "DEV_PERF_POLICY_POWER"),
            ("sync_boost", "DEV_PERF_POLICY_SYNC_BOOST"),
            ("sw_thermal_slowdown", "DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN"),
            ("hw_thermal_slowdown", "DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN"),
            ("hw_power_brake_slowdown", "DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN"),
            ("board_limit", "DEV_PERF_POLICY_BOARD_LIMIT"),
            ("low_utilization", "DEV_PERF_POLICY_LOW_UTILIZATION"),
            ("reliability", "DEV_PERF_POLICY_RELIABILITY"),
            ("thermal", "DEV_PERF_POLICY_THERMAL"),
        )
    ),
    # 32 is NVML_PSTATE_UNKNOWN
    _one(
        "performance_state", Tier.STEADY, NvmlCall("nvmlDeviceGetPerformanceState", (), lambda p: p if p < 16 else None)
    ),
    # an idle GPU trains its link down: both values must be of the same sample as its utilization
    _one("pcie.generation", Tier.FAST, NvmlCall("nvmlDeviceGetCurrPcieLinkGeneration")),
    _one("pcie.width", Tier.FAST, NvmlCall("nvmlDeviceGetCurrPcieLinkWidth")),
    _one("pcie.generation_max", Tier.STATIC, NvmlCall("nvmlDeviceGetMaxPcieLinkGeneration")),
    _one("pcie.width_max", Tier.STATIC, NvmlCall("nvmlDeviceGetMaxPcieLinkWidth")),
    _one("pcie.replays", Tier.FAST, FieldId("DEV_PCIE_REPLAY_COUNTER"), NvmlCall("nvmlDeviceGetPcieReplayCounter")),
    _one("pcie.transmit_bytes", Tier.FAST, FieldId("DEV_PCIE_COUNT_TX_BYTES")),
    _one("pcie.receive_bytes", Tier.FAST, FieldId("DEV_PCIE_COUNT_RX_BYTES")),
    # the calls measure for 20 ms: they are made only where the GPU has no counters
    *(
        _one(
            f"pcie.{member}",
            Tier.SLOW,
            FieldId(field, lambda _: None),
            NvmlCall("nvmlDeviceGetPcieThroughput", (constant,), lambda kilobytes: kilobytes * 1024.0),
        )
        for member, field, constant in (
            ("transmit_rate", "DEV_PCIE_COUNT_TX_BYTES", "NVML_PCIE_UTIL_TX_BYTES"),
            ("receive_rate", "DEV_PCIE_COUNT_RX_BYTES", "NVML_PCIE_UTIL_RX_BYTES"),
        )
    ),
    _one("c2c.enabled", Tier.STATIC, NvmlCall("nvmlDeviceGetC2cModeInfoV", (), lambda mode: bool(mode.isC2cEnabled))),
    _one("c2c.links", Tier.STATIC, FieldId("DEV_C2C_LINK_COUNT", int)),
    _one("c2c.bytes_per_second", Tier.STATIC, FieldId("DEV_C2C_LINK_GET_MAX_BW", lambda megabytes: megabytes * 1e6)),
    FieldRow(
        ("encoder.sessions", "encoder.frames_per_second", "encoder.latency_seconds"),
        Tier.SLOW,
        (NvmlCall("nvmlDeviceGetEncoderStats", (), lambda answer: video_sessions(*answer)),),
    ),
    FieldRow(
        ("frame_capture.sessions", "frame_capture.frames_per_second", "frame_capture.latency_seconds"),
        Tier.SLOW,
        (
            NvmlCall(
                "nvmlDeviceGetFBCStats",
                (),
                lambda stats: video_sessions(stats.sessionsCount, stats.averageFPS, stats.averageLatency),
            ),
        ),
    ),
    _one(
        "recovery_action",
        Tier.FAST,
        FieldId("DEV_GET_GPU_RECOVERY_ACTION"),
        FieldId("DEV_RESET_STATUS", reset_status, ("DEV_DRAIN_AND_RESET_STATUS",)),
    ),
    FieldRow(
        ("ecc.enabled", "ecc.pending"),
        Tier.SLOW,
        (NvmlCall("nvmlDeviceGetEccMode", (), lambda pair: (bool(pair[0]), bool(pair[1]))),),
    ),
    *_ecc(),
    FieldRow(
        tuple(f"fabric.{name}" for name in FABRIC_FIELDS),
        Tier.SLOW,
        (NvmlCall("nvmlDeviceGetGpuFabricInfoV", (), fabric), NvmlCall("nvmlDeviceGetGpuFabricInfo", (), fabric)),
    ),
    FieldRow(
        ("ecc.channel_repair_pending", "ecc.tpc_repair_pending"),
        Tier.SLOW,
        (NvmlCall("nvmlDeviceGetRepairStatus", (), lambda pair: (bool(pair[0]), bool(pair[1]))),),
    ),
    _one("ecc.unrepairable_memory", Tier.SLOW, NvmlCall("nvmlDeviceGetUnrepairableMemoryFlag_v1", (), bool)),
    FieldRow(
        ("row_remap.corrected", "row_remap.uncorrected", "row_remap.pending", "row_remap.failure"),
        Tier.SLOW,
        (
            NvmlCall("nvmlDeviceGetRemappedRows_v2", (), remapped_rows),
            NvmlCall("nvmlDeviceGetRemappedRows", (), lambda rows: (rows[0], rows[1], bool(rows[2]), bool(rows[3]))),
        ),
    ),
    _one(
        "row_remap.banks",
        Tier.SLOW,
        NvmlCall(
            "nvmlDeviceGetRowRemapperHistogram",
            (),
            lambda h: {"max": h.max, "high": h.high, "partial": h.partial, "low": h.low, "none": h.none},
        ),
    ),
    _one(
        "retired_pages.single_bit",
        Tier.SLOW,
        NvmlCall("nvmlDeviceGetRetiredPages", ("NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS",), len),
    ),
    _one(
        "retired_pages.double_bit",
        Tier.SLOW,
        NvmlCall("nvmlDeviceGetRetiredPages", ("NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR",), len),
    ),
    _one("retired_pages.pending", Tier.SLOW, NvmlCall("nvmlDeviceGetRetiredPagesPendingStatus", (), bool)),
    _one("persistence_mode", Tier.SLOW, NvmlCall("nvmlDeviceGetPersistenceMode", (), bool)),
    _one("accounting_mode", Tier.SLOW, NvmlCall("nvmlDeviceGetAccountingMode", (), bool)),
    _one("display_active", Tier.SLOW, NvmlCall("nvmlDeviceGetDisplayActive", (), bool)),
    _one("compute_mode", Tier.SLOW, NvmlCall("nvmlDeviceGetComputeMode", (), COMPUTE_MODES.get)),
    _one("virtualization_mode", Tier.STATIC, NvmlCall("nvmlDeviceGetVirtualizationMode", (), VIRTUALIZATION_MODES.get)),
    FieldRow(
        ("license.product", "license.licensed", "license.expires"),
        Tier.SLOW,
        (NvmlCall("nvmlDeviceGetGridLicensableFeatures_v4", (), vgpu_license),),
    ),
    FieldRow(
        ("mig_enabled", "mig_pending"),
        Tier.STEADY,
        (NvmlCall("nvmlDeviceGetMigMode", (), lambda pair: (bool(pair[0]), bool(pair[1]))),),
    ),
)
"""Paths of `model.snapshot.Gpu` that one call or field gives; lists (NVLink, MIG, processes) have own readers."""
