"""What NVML's numbers, masks and structs mean: enumerations under nvidia-smi's names, and units made base units."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from gpuwatch.collect.nvml.library import text

CLOCK_EVENT_REASONS = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clock_setting": 0x100,
}
"""nvmlClocksEventReason* bits (nvml.h), under the names nvidia-smi uses."""

COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
VIRTUALIZATION_MODES = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host_vgpu", 4: "host_vsga"}
ARCHITECTURES = {
    2: "Kepler", 3: "Maxwell", 4: "Pascal", 5: "Volta", 6: "Turing", 7: "Ampere", 8: "Ada Lovelace", 9: "Hopper",
    10: "Blackwell", 13: "Rubin",
}  # fmt: skip
BRANDS = {
    1: "Quadro", 2: "Tesla", 3: "NVS", 4: "GRID", 5: "GeForce", 6: "Titan", 7: "NVIDIA vApps", 8: "NVIDIA vPC",
    9: "NVIDIA vCS", 10: "NVIDIA vWS", 11: "NVIDIA CloudGaming", 12: "Quadro RTX", 13: "NVIDIA RTX", 14: "NVIDIA",
    15: "GeForce RTX", 16: "Titan RTX",
}  # fmt: skip


def milli(value: float) -> float:
    """Milliwatts or millijoules to watts or joules."""
    return value / 1e3


def megahertz(value: float) -> float:
    """MHz to Hz."""
    return value * 1e6


def nanoseconds(value: float) -> float:
    """Nanoseconds to seconds."""
    return value / 1e9


def first_percent(answer: tuple[int, int]) -> float:
    """Utilization calls that answer [percent, sampling period]."""
    return answer[0] / 100


def rates(answer: Any) -> tuple[float | None, ...]:
    """Utilization of the GPU and of its memory; a recording may have only one of them."""
    return tuple(None if share is None else share / 100 for share in (answer.gpu, answer.memory))


def clock_events(mask: int) -> dict[str, bool]:
    """Every known reason of the bit mask, on or off."""
    return {reason: bool(mask & bit) for reason, bit in CLOCK_EVENT_REASONS.items()}


SRAM_STATUS = {
    "counts.uncorrected/volatile/sram_parity": "volatileUncParity",
    "counts.uncorrected/volatile/sram_secded": "volatileUncSecDed",
    "counts.uncorrected/aggregate/sram_parity": "aggregateUncParity",
    "counts.uncorrected/aggregate/sram_secded": "aggregateUncSecDed",
    "counts.uncorrected/aggregate/sram_l2": "aggregateUncBucketL2",
    "counts.uncorrected/aggregate/sram_sm": "aggregateUncBucketSm",
    "counts.uncorrected/aggregate/sram_pcie": "aggregateUncBucketPcie",
    "counts.uncorrected/aggregate/sram_mcu": "aggregateUncBucketMcu",
    "counts.uncorrected/aggregate/sram_other": "aggregateUncBucketOther",
    "sram_threshold_exceeded": "bThresholdExceeded",
}


def sram_status(status: Any) -> tuple[int | bool, ...]:
    """The members of nvmlEccSramErrorStatus in the order of SRAM_STATUS."""
    values = tuple(int(getattr(status, member)) for member in SRAM_STATUS.values())
    return (*values[:-1], bool(values[-1]))


def remapped_rows(info: Any) -> tuple[int, int, bool, bool]:
    """The second version separates rows in use from rows given up since; both were remapped."""
    return (
        info.corrActiveRemaps + info.corrInactiveRemaps,
        info.uncActiveRemaps + info.uncInactiveRemaps,
        bool(info.bPending),
        bool(info.bfailureOccurred),
    )


def reset_status(reset: int | None, drain_and_reset: int | None) -> int:
    """The recovery action (nvmlDeviceGpuRecoveryAction_t) of a driver that has only the two fields before it."""
    return 1 if reset else 4 if drain_and_reset else 0


def bit_error_rate(value: float) -> float | None:
    """NVML_NVLINK_ERROR_COUNTER_BER_GET (nvml.h): four bits of mantissa, eight of a negative power of ten, all of them
    set where nothing was counted.
    """
    mantissa, exponent = int(value) >> 8 & 0xF, int(value) & 0xFF
    return None if (mantissa, exponent) == (0xF, 0xFF) else mantissa * 10.0**-exponent


def video_sessions(count: int, frames: int, microseconds: int) -> tuple[int, int | None, float | None]:
    """Sessions, and the means of frames per second and latency, None without a session."""
    return (count, frames, microseconds / 1e6) if count else (count, None, None)


def platform(info: Any) -> tuple[str | int | None, ...]:
    """Chassis, slot, tray, host and module of nvmlPlatformInfo_v2, by its bytes: the bindings decode each as text."""
    raw, layout = bytes(info), type(info)
    serial = raw[layout.chassisSerialNumber.offset :][:16].partition(b"\0")[0].decode(errors="replace").strip()
    numbers = (layout.slotNumber, layout.trayIndex, layout.hostId, layout.moduleId)
    return (serial or None, *(raw[number.offset] for number in numbers))


_HAS_EXPIRY = 2
"""The `valid` of nvmlGridLicenseExpiry_t's status (nvml.h)."""


def vgpu_license(features: Any) -> tuple[str | None, bool | None, float | None]:
    """Product, state and expiry of the licensed feature of nvmlGridLicensableFeatures, else of one that is enabled."""
    found = features.gridLicensableFeatures[
        : features.licensableFeaturesCount if features.isGridLicenseSupported else 0
    ]
    chosen = max(found, key=lambda each: (each.featureState > 0, each.featureEnabled > 0), default=None)
    if chosen is None or not (chosen.featureState or chosen.featureEnabled):
        return None, None, None
    until, expires = chosen.licenseExpiry, None
    if until.status == _HAS_EXPIRY:
        with suppress(ValueError):  # a driver or a dump may give a date that does not exist
            when = (until.year, until.month, until.day, until.hour, until.min, until.sec)
            expires = datetime(*when, tzinfo=UTC).timestamp()
    return text(chosen.productName), bool(chosen.featureState), expires


FABRIC_FIELDS = ("state", "status", "clique_id", "cluster_uuid", "health_mask")


def fabric(info: Any) -> tuple[Any, ...]:
    """The members of nvmlGpuFabricInfo in the order of FABRIC_FIELDS; an unregistered GPU has no cluster yet."""
    cluster = bytes(info.clusterUuid).hex()
    dashed = "-".join((cluster[:8], cluster[8:12], cluster[12:16], cluster[16:20], cluster[20:]))
    registered = info.state == 3
    return (
        info.state,
        info.status if registered else None,
        info.cliqueId if registered else None,
        dashed if registered else None,
        getattr(info, "healthMask", None),
    )
