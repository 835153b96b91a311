"""The names that dcgm-exporter gives to gpuwatch's readings, before and after DCGM renamed its fields: one row each.

Profile dcgm-4.8 is the output of dcgm-exporter 4.8 and older: MHz, MiB, percent. dcgm-4.9 has base units and their
names where DCGM 4.7 has them, else the old ones. The unit decides scale and number format, as DCGM's field types do.
"""

from collections.abc import Callable
from math import floor
from operator import attrgetter
from typing import Any, NamedTuple

from gpuwatch.metrics.metric import Type

KIB = 1024
MIB = 1024**2


class Rates(NamedTuple):
    """Bytes per second between the two newest samples of a GPU; None when a counter is unknown or was reset."""

    nvlink: float | None = None
    pcie_transmit: float | None = None
    pcie_receive: float | None = None


class DcgmSource(NamedTuple):
    """The input of a row's source: a Gpu, or for rows with `mig` a MigInstance, and the rates of the GPU."""

    gpu: Any
    rates: Rates


class DcgmColumn(NamedTuple):
    """A family of one profile: `name` without `DCGM_FI_`, `unit` a key of UNITS."""

    name: str
    unit: str = ""
    type: Type = "gauge"


class DcgmRow(NamedTuple):
    """`source` gives base units. `new` None: DCGM 4.7 kept name and unit. `mig`: GPU instances have it too."""

    help: str
    source: Callable[[Any], float | None]
    old: DcgmColumn
    new: DcgmColumn | None = None
    mig: bool = False

    def column(self, profile: str) -> DcgmColumn:
        """Name, unit and type in a profile."""
        return self.new if self.new is not None and profile == "dcgm-4.9" else self.old


def whole(scale: float) -> Callable[[float], float]:
    """Integer fields: rounded down, but without errors of binary fractions (57 percent is 0.57 * 100 = 56.99...)."""
    return lambda value: floor(value * scale + 1e-6)


UNITS: dict[str, Callable[[float], float]] = {
    "": whole(1),
    "MHz": whole(1e-6),
    "Hz": whole(1),
    "C": whole(1),
    "W": float,
    "mJ": whole(1e3),
    "J": whole(1),
    "%": whole(100),
    "ratio": float,
    "MiB": whole(1 / MIB),
    "B": whole(1),
    "B/s": whole(1),
    "MB/s": whole(1 / KIB / 1000),  # DCGM divides the driver's KiB/s by 1000
    "ns": whole(1e9),
    "s": float,
}
"""Unit -> conversion of a value in the base unit to the number that DCGM gives."""

CLOCK_EVENTS = {
    "gpu_idle": (0x1, "gpu_idle"),
    "applications_clocks_setting": (0x2, "clocks_setting"),
    "sw_power_cap": (0x4, "power_cap"),
    "hw_slowdown": (0x8, "hw_slowdown"),
    "sync_boost": (0x10, "sync_boost"),
    "sw_thermal_slowdown": (0x20, "sw_thermal"),
    "hw_thermal_slowdown": (0x40, "hw_thermal"),
    "hw_power_brake_slowdown": (0x80, "hw_power_brake"),
    "display_clock_setting": (0x100, "display_clocks"),
}
"""gpuwatch's reason -> bit of nvmlClocksEventReason*, dcgm-exporter's name."""


def number(value: float) -> str:
    """The text of a number as Go's %d and %f write it."""
    return repr(value) if isinstance(value, int) else f"{value:.6f}"


def _entry(path: str, key: str) -> Callable[[DcgmSource], float | None]:
    get = attrgetter(path)
    return lambda reading: get(reading).get(key)


def _link_errors(kind: str) -> Callable[[DcgmSource], float | None]:
    def total(reading: DcgmSource) -> float | None:
        counts = [link.errors[kind] for link in reading.gpu.nvlinks if kind in link.errors]
        return sum(counts) if counts else None

    return total


def _fb_used_ratio(reading: DcgmSource) -> float | None:
    memory = reading.gpu.memory
    if memory.used is None or not memory.total or memory.reserved is None:
        return None
    ratio: float = memory.used / (memory.total - memory.reserved)
    return ratio


def _field(
    help_: str,
    path: str | Callable[[DcgmSource], float | None],
    old: DcgmColumn,
    new: DcgmColumn | None = None,
    *,
    mig: bool = False,
) -> DcgmRow:
    return DcgmRow(help_, attrgetter(path) if isinstance(path, str) else path, old, new, mig)


def _throttle(what: str, reason: str, name: str) -> DcgmRow:
    return _field(
        f"Time clocks were held down for {what}",
        _entry("gpu.clock_events.seconds", reason),
        DcgmColumn(f"DEV_{name}_VIOLATION", "ns", "counter"),
        DcgmColumn(f"DEV_GPU_{name.removeprefix('BOARD_')}_THROTTLE_SECONDS_TOTAL", "s", "counter"),
    )


def _ecc(scope: str, kind: str, name: str) -> DcgmRow:
    return _field(
        f"{kind} ECC errors, {scope}".capitalize(),
        _entry("gpu.ecc.counts", f"{kind}/{scope}/total"),
        DcgmColumn(f"DEV_ECC_{name}_TOTAL", "", "counter"),
    )


def _activity(what: str, member: str, old: str, new: str) -> DcgmRow:
    return _field(
        f"Share of cycles in which {what}",
        f"gpu.activity.{member}",
        DcgmColumn(f"PROF_{old}", "ratio"),
        DcgmColumn(f"PROF_{new}_RATIO", "ratio"),
        mig=True,
    )


DCGM: tuple[DcgmRow, ...] = (
    _field("SM clock", "gpu.clocks.sm", DcgmColumn("DEV_SM_CLOCK", "MHz"), DcgmColumn("DEV_SM_CLOCK_HERTZ", "Hz")),
    _field(
        "Memory clock",
        "gpu.clocks.memory",
        DcgmColumn("DEV_MEM_CLOCK", "MHz"),
        DcgmColumn("DEV_MEMORY_CLOCK_HERTZ", "Hz"),
    ),
    *(
        _field(
            f"{what} temperature",
            f"gpu.temperature.{what.lower()}",
            DcgmColumn(f"DEV_{what.upper()}_TEMP", "C"),
            DcgmColumn(f"DEV_{what.upper()}_TEMP_CELSIUS", "C"),
        )
        for what in ("Memory", "GPU")
    ),
    _field(
        "Power draw", "gpu.power.average", DcgmColumn("DEV_POWER_USAGE", "W"), DcgmColumn("DEV_BOARD_POWER_WATTS", "W")
    ),
    _field("Power limit", "gpu.power.limit_configured", DcgmColumn("DEV_POWER_MGMT_LIMIT", "W")),
    _field(
        "Energy used since the driver was loaded",
        "gpu.power.energy",
        DcgmColumn("DEV_TOTAL_ENERGY_CONSUMPTION", "mJ", "counter"),
        DcgmColumn("DEV_GPU_ENERGY_JOULES_TOTAL", "J", "counter"),
    ),
    _field(
        "PCIe packets sent again",
        "gpu.pcie.replays",
        DcgmColumn("DEV_PCIE_REPLAY_COUNTER", "", "counter"),
        DcgmColumn("DEV_PCIE_REPLAY_TOTAL", "", "counter"),
    ),
    *(
        _field(
            f"{what} utilization",
            f"gpu.utilization.{what.lower()}",
            DcgmColumn(f"DEV_{old}_UTIL", "%"),
            DcgmColumn(f"DEV_{new}_UTIL_RATIO", "ratio"),
        )
        for what, old, new in (
            ("GPU", "GPU", "GPU"),
            ("Memory", "MEM_COPY", "MEMORY"),
            ("Encoder", "ENC", "ENC"),
            ("Decoder", "DEC", "DEC"),
        )
    ),
    _field(
        "Clock event reasons, a bit mask",
        lambda source: (
            sum(CLOCK_EVENTS[reason][0] for reason, on in active.items() if on and reason in CLOCK_EVENTS)
            if (active := source.gpu.clock_events.active)
            else None
        ),
        DcgmColumn("DEV_CLOCKS_EVENT_REASONS"),
    ),
    _throttle("power", "sw_power_cap", "POWER"),
    _throttle("heat", "thermal", "THERMAL"),
    _throttle("sync boost", "sync_boost", "SYNC_BOOST"),
    _throttle("the board's limit", "board_limit", "BOARD_LIMIT"),
    _throttle("low utilization", "low_utilization", "LOW_UTIL"),
    _throttle("reliability", "reliability", "RELIABILITY"),
    *(
        _field(
            f"Memory {name}".removesuffix(" total"),
            f"gpu.memory.{name}",
            DcgmColumn(f"DEV_FB_{name.upper()}", "MiB"),
            DcgmColumn(f"DEV_FB_{'CAPACITY' if name == 'total' else name.upper()}_BYTES", "B"),
            mig=True,
        )
        for name in ("total", "free", "used", "reserved")
    ),
    _field("Memory used / (total - reserved)", _fb_used_ratio, DcgmColumn("DEV_FB_USED_PERCENT", "ratio"), mig=True),
    _ecc("volatile", "corrected", "SBE_VOL"),
    _ecc("volatile", "uncorrected", "DBE_VOL"),
    _ecc("aggregate", "corrected", "SBE_AGG"),
    _ecc("aggregate", "uncorrected", "DBE_AGG"),
    *(
        _field(
            f"Pages retired for {bits}-bit errors",
            f"gpu.retired_pages.{bits}_bit",
            DcgmColumn(f"DEV_RETIRED_{short}", "", "counter"),
            DcgmColumn(f"DEV_PAGE_RETIRED_{short}_TOTAL", "", "counter"),
        )
        for bits, short in (("single", "SBE"), ("double", "DBE"))
    ),
    _field(
        "Whether a page retirement waits for a reset",
        "gpu.retired_pages.pending",
        DcgmColumn("DEV_RETIRED_PENDING", "", "counter"),
        DcgmColumn("DEV_PAGE_RETIRED_PENDING", "", "counter"),
    ),
    *(
        _field(
            f"Rows remapped for {kind}able errors",
            f"gpu.row_remap.{kind}ed",
            DcgmColumn(f"DEV_{kind.upper()}ABLE_REMAPPED_ROWS", "", "counter"),
            DcgmColumn(f"DEV_ROW_REMAP_{kind.upper()}ABLE_TOTAL", "", "counter"),
        )
        for kind in ("uncorrect", "correct")
    ),
    _field(
        "Whether a row remap has failed",
        "gpu.row_remap.failure",
        DcgmColumn("DEV_ROW_REMAP_FAILURE"),
        DcgmColumn("DEV_ROW_REMAP_FAILED"),
    ),
    _field("Whether a row remap waits for a reset", "gpu.row_remap.pending", DcgmColumn("DEV_ROW_REMAP_PENDING")),
    *(
        _field(
            f"NVLink {kind.replace('_', ' ')} errors",
            _link_errors(kind),
            DcgmColumn(f"DEV_NVLINK_{kind.upper()}_ERROR_COUNT_TOTAL", "", "counter"),
        )
        for kind in ("crc_flit", "crc_data", "replay", "recovery")
    ),
    _field(
        "NVLink traffic of all links, both ways: a rate, whatever the type says",
        "rates.nvlink",
        DcgmColumn("DEV_NVLINK_BANDWIDTH_TOTAL", "MB/s", "counter"),
        DcgmColumn("DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND", "B/s"),
    ),
    _field(
        "vGPU license status",
        lambda source: (
            all(known) if (known := [vgpu.licensed for vgpu in source.gpu.vgpus if vgpu.licensed is not None]) else None
        ),
        DcgmColumn("DEV_VGPU_LICENSE_STATUS"),
    ),
    _activity("the graphics engine worked", "graphics", "GR_ENGINE_ACTIVE", "GR_ENGINE_UTIL"),
    _activity("a multiprocessor had a warp", "sm", "SM_ACTIVE", "SM_UTIL"),
    _activity("warp slots were taken", "sm_occupancy", "SM_OCCUPANCY", "SM_OCCUPANCY"),
    _activity("the tensor pipe worked", "tensor", "PIPE_TENSOR_ACTIVE", "TENSOR_UTIL"),
    _activity("the FP64 pipe worked", "fp64", "PIPE_FP64_ACTIVE", "FP64_UTIL"),
    _activity("the FP32 pipe worked", "fp32", "PIPE_FP32_ACTIVE", "FP32_UTIL"),
    _activity("the FP16 pipe worked", "fp16", "PIPE_FP16_ACTIVE", "FP16_UTIL"),
    _activity("device memory moved data", "dram", "DRAM_ACTIVE", "DRAM_UTIL"),
    _field("PCIe traffic sent", "rates.pcie_transmit", DcgmColumn("PROF_PCIE_TX_BYTES", "B/s")),
    _field("PCIe traffic received", "rates.pcie_receive", DcgmColumn("PROF_PCIE_RX_BYTES", "B/s")),
)
"""Fields with one value per GPU; XIDs and the DCGM_EXP windows have labels of their own, see `dcgm_profile`."""
