"""CHECKS of one GPU: what its driver asks for, heat, power, clocks, work left undone; memory errors and their repair.

Memory checks read counters since the driver was loaded and levels, never lifetime totals.
"""

from collections.abc import Callable

from gpuwatch.health.check import UNDECIDED, Check, Detection, is_paced, when
from gpuwatch.health.gpu_history import GpuHistory
from gpuwatch.health.xid.classify import FATAL_ACTIONS, RECOVERY_REMEDIES
from gpuwatch.model.finding import Remedy, Response, Severity
from gpuwatch.model.xid_catalogue import recovery_action

IMPLAUSIBLY_COOL = 50.0
"""Degrees: a GPU this cool that claims to be at its limit has a margin that cannot be trusted."""

UNFORCED = frozenset({"gpu_idle"})
"""Reasons for low clocks that do not hold down a GPU at work."""


def recovery_asked(past: GpuHistory) -> Detection | None:
    """A recovery action of the driver that takes the GPU out of service."""
    asked = past.gpu.recovery_action if past.gpu else None
    known = recovery_action(asked) if asked else None
    if not asked or known is None or not known.taint:
        return None
    helps = RECOVERY_REMEDIES[asked]
    return Detection(f"the driver asks: {known.meaning}", remedy=helps, action=FATAL_ACTIONS[helps], level=asked)


def recovery_advised(past: GpuHistory) -> Detection | None:
    """A recovery action of the driver with which the GPU stays in service."""
    asked = past.gpu.recovery_action if past.gpu else None
    known = recovery_action(asked) if asked else None
    if not asked or (known is not None and known.taint):
        return None
    words = known.meaning if known else f"action {asked}, which this version does not know"
    return Detection(f"the driver asks: {words}", remedy=RECOVERY_REMEDIES.get(asked, Remedy.INSPECT), level=asked)


def _slowed(reason: str, text: str) -> Callable[[GpuHistory], Detection | None]:
    def held(past: GpuHistory) -> Detection | None:
        active = past.gpu.clock_events.active.get(reason) if past.gpu else None
        return Detection(text, {f"clock_events.active.{reason}": "True"}) if active else None

    return held


def at_thermal_limit(past: GpuHistory) -> Detection | None:
    """Too few degrees are left to the GPU's own limit."""
    heat = past.gpu.temperature if past.gpu else None
    if heat is None or heat.margin is None or (heat.gpu or 0.0) < IMPLAUSIBLY_COOL:
        return None
    where = (
        f"{heat.margin:.0f} °C below" if heat.margin > 0 else f"{-heat.margin:.0f} °C above" if heat.margin else "at"
    )
    return Detection(f"{where} its limit") if heat.margin <= past.config.thermal_margin else None


def clocks_stuck(past: GpuHistory) -> Detection | None:
    """A busy GPU with low clocks for which the driver gives no reason."""
    gpu, config = past.gpu, past.config
    if gpu is None or gpu.clocks.sm is None or not gpu.clocks.sm_max:
        return None
    if (gpu.utilization.gpu or 0.0) < config.stuck_utilization or is_paced(gpu):
        return UNDECIDED
    if any(on and reason not in UNFORCED for reason, on in gpu.clock_events.active.items()):
        return None
    share = gpu.clocks.sm / gpu.clocks.sm_max
    return (
        Detection(f"at work with {share:.0%} of its highest clock, and no reason given")
        if share < config.stuck_clock
        else None
    )


def inforom_corrupt(past: GpuHistory) -> Detection | None:
    """NVML or an XID reports the configuration memory."""
    if past.gpu is None or not past.is_new:
        return UNDECIDED
    corrupt = [path for path, error in past.gpu.errors.items() if "inforom" in error.lower()]
    if corrupt:
        return Detection("NVML calls its infoROM corrupt", {path: "corrupted infoROM" for path in corrupt})
    if past.inforom is None:
        return None
    order, xid = past.inforom
    repaired = past.repair is not None and past.repair.order > order
    return None if repaired else Detection(f"XID {xid} speaks of its infoROM", {"xid": str(xid)})


def mig_change_pending(past: GpuHistory) -> Detection | None:
    """The MIG mode in force differs from the one set."""
    gpu = past.gpu
    if gpu is None or gpu.mig_pending == gpu.mig_enabled:
        return None
    return Detection(f"MIG mode is to be {'on' if gpu.mig_pending else 'off'} after the next reset")


def zombie_memory(past: GpuHistory) -> Detection | None:
    """Memory in use without a process or a container. A busy GPU has processes that the driver does not list."""
    gpu = past.gpu
    used = gpu.memory.used if gpu else None
    if gpu is None or used is None or gpu.mig_enabled or gpu.vgpus or gpu.virtualization_mode in VIRTUAL:
        return None
    if gpu.processes or gpu.utilization.gpu or past.is_in_use:
        return None
    return Detection(f"{used / 2**30:.1f} GiB in use by no process") if used > past.config.zombie_memory else None


VIRTUAL = frozenset({"vgpu", "host_vgpu", "host_vsga"})

BOARD_CHECKS: tuple[Check, ...] = (
    Check(
        "recovery_action",
        "the driver asks for a reset or a reboot (NVML field 230: 1, 2, 4, 6, 7)",
        Severity.CRITICAL,
        Remedy.RESET_GPU,
        "drain the node and do what the driver asks",
        Response.TAINT,
        gpu=recovery_asked,
        reads=("recovery_action",),
    ),
    Check(
        "recovery_advised",
        "the driver asks for less than that (3, 5), or for something this version does not know",
        Severity.WARNING,
        Remedy.INSPECT,
        "do what the driver asks; the GPU still works",
        Response.CONDITION,
        gpu=recovery_advised,
        reads=("recovery_action",),
    ),
    Check(
        "hw_thermal_slowdown",
        "the hardware halves the clocks because of heat",
        Severity.WARNING,
        Remedy.INSPECT,
        "check air flow, fans and inlet temperature",
        Response.CONDITION,
        gpu=_slowed("hw_thermal_slowdown", "too hot: the hardware halves the clocks"),
        reads=("clock_events.active",),
        raise_after=(2, 4),
        clear_after=5,
    ),
    Check(
        "hw_power_brake",
        "the power supply holds the board back",
        Severity.WARNING,
        Remedy.INSPECT,
        "check power supplies and the rack's power budget",
        Response.CONDITION,
        gpu=_slowed("hw_power_brake_slowdown", "the power supply asks for less power"),
        reads=("clock_events.active",),
        raise_after=(2, 4),
        clear_after=5,
    ),
    Check(
        "thermal_margin",
        "at most {thermal_margin} °C are left to its limit",
        Severity.WARNING,
        Remedy.INSPECT,
        "check air flow, fans and inlet temperature",
        Response.CONDITION,
        gpu=at_thermal_limit,
        reads=("temperature.margin", "temperature.gpu"),
        raise_after=(8, 10),
        clear_after=5,
    ),
    Check(
        "clocks_stuck",
        "busier than {stuck_utilization} with less than {stuck_clock} of its highest clock, and no reason given",
        Severity.WARNING,
        Remedy.RESET_GPU,
        "compare with the node's other GPUs; reset the GPU when its work is done",
        gpu=clocks_stuck,
        reads=("utilization.gpu", "clocks.sm", "clocks.sm_max", "clock_events.active"),
        raise_after=(10, 12),
        clear_after=3,
    ),
    Check(
        "inforom",
        "its configuration memory is corrupt or worn (NVML errors, XIDs 93 and 125)",
        Severity.WARNING,
        Remedy.CONTACT_SUPPORT,
        "ask NVIDIA's support whether the GPU must be replaced",
        gpu=inforom_corrupt,
        clear_after=3,
    ),
    Check(
        "mig_pending",
        "a change of the MIG mode waits for a reset",
        Severity.INFO,
        Remedy.RESET_GPU,
        "reset the GPU when its work is done",
        gpu=mig_change_pending,
        reads=("mig_enabled", "mig_pending"),
        raise_after=(3, 3),
    ),
    Check(
        "zombie_memory",
        "more than {zombie_memory} bytes in use on an idle GPU that no process and no pod has",
        Severity.WARNING,
        Remedy.RESET_GPU,
        "look for processes that died uncleanly (fuser -v /dev/nvidia*); reset the GPU",
        gpu=zombie_memory,
        reads=("memory.used", "processes", "utilization.gpu"),
        raise_after=(15, 15),
        clear_after=2,
    ),
)
"""The recovery action that the driver asks for, first."""

UNCORRECTED = "ecc.counts.uncorrected/volatile/total"
CORRECTED = "ecc.counts.corrected/volatile/total"


def ecc_uncorrected(past: GpuHistory) -> Detection | None:
    """Uncorrected errors since the driver was loaded."""
    count = past.gpu.ecc.counts.get("uncorrected/volatile/total") if past.gpu else None
    return Detection(f"uncorrected ECC errors since the driver was loaded: {count}", level=count) if count else None


def ecc_corrected_often(past: GpuHistory) -> Detection | None:
    """Corrected errors within the last hour."""
    grown = past.corrected.amount
    if grown < past.config.ecc_corrected_per_hour:
        return None
    return Detection(f"{grown:.0f} memory errors were corrected within an hour", {"grown": f"{grown:.0f}"})


def repair_pending(past: GpuHistory) -> Detection | None:
    """A memory channel or a TPC waits for a reset."""
    ecc = past.gpu.ecc if past.gpu else None
    waiting = [
        part
        for part, pending in (("memory channel", ecc.channel_repair_pending), ("TPC", ecc.tpc_repair_pending))
        if pending
    ] if ecc else []  # fmt: skip
    return Detection(f"the repair of a {' and a '.join(waiting)} waits for a reset") if waiting else None


def pages_retired(past: GpuHistory) -> Detection | None:
    """Retired pages near the limit of 64."""
    pages = past.gpu.retired_pages if past.gpu else None
    count = (pages.single_bit or 0) + (pages.double_bit or 0) if pages else 0
    return Detection(f"{count} memory pages are retired", level=count) if count >= past.config.retired_pages else None


MEMORY_CHECKS: tuple[Check, ...] = (
    Check(
        "row_remap_failure",
        "a memory row could not be remapped: NVIDIA's criterion for a replacement",
        Severity.CRITICAL,
        Remedy.CONTACT_SUPPORT,
        "replace the GPU",
        Response.TAINT,
        gpu=when("row_remap.failure", "a row could not be remapped"),
        reads=("row_remap.failure",),
    ),
    Check(
        "row_remap_pending",
        "a row remap waits for a reset",
        Severity.WARNING,
        Remedy.RESET_GPU,
        "reset the GPU when its work is done",
        Response.CONDITION,
        gpu=when("row_remap.pending", "a row remap waits for a reset"),
        reads=("row_remap.pending",),
    ),
    Check(
        "memory_unrepairable",
        "the driver calls a memory fault beyond repair",
        Severity.CRITICAL,
        Remedy.CONTACT_SUPPORT,
        "replace the GPU",
        Response.CONDITION,
        gpu=when("ecc.unrepairable_memory", "memory has a fault that cannot be repaired"),
        reads=("ecc.unrepairable_memory",),
    ),
    Check(
        "repair_pending",
        "the repair of a memory channel or a TPC waits for a reset",
        Severity.WARNING,
        Remedy.RESET_GPU,
        "reset the GPU when its work is done",
        Response.CONDITION,
        gpu=repair_pending,
        reads=("ecc.channel_repair_pending", "ecc.tpc_repair_pending"),
    ),
    Check(
        "ecc_uncorrected",
        "uncorrected memory errors since the driver was loaded",
        Severity.WARNING,
        Remedy.RESET_GPU,
        "look at the XIDs beside it; reset the GPU when its work is done",
        Response.CONDITION,
        gpu=ecc_uncorrected,
        reads=(UNCORRECTED,),
    ),
    Check(
        "ecc_sram_threshold",
        "uncorrected SRAM errors beyond NVIDIA's threshold",
        Severity.CRITICAL,
        Remedy.CONTACT_SUPPORT,
        "replace the GPU",
        Response.TAINT,
        gpu=when("ecc.sram_threshold_exceeded", "more uncorrected SRAM errors than NVIDIA allows"),
        reads=("ecc.sram_threshold_exceeded",),
    ),
    Check(
        "ecc_correctable_rate",
        "at least {ecc_corrected_per_hour} corrected memory errors within an hour",
        Severity.WARNING,
        Remedy.INSPECT,
        "watch it; run a diagnosis when its work is done",
        gpu=ecc_corrected_often,
        reads=(CORRECTED,),
    ),
    Check(
        "retired_pages_pending",
        "the retirement of memory pages waits for a reset (Volta and older)",
        Severity.WARNING,
        Remedy.RESET_GPU,
        "reset the GPU when its work is done",
        Response.CONDITION,
        gpu=when("retired_pages.pending", "the retirement of memory pages waits for a reset"),
        reads=("retired_pages.pending",),
    ),
    Check(
        "retired_pages_limit",
        "at least {retired_pages} memory pages are retired (Volta and older)",
        Severity.WARNING,
        Remedy.CONTACT_SUPPORT,
        "replace the GPU",
        Response.CONDITION,
        gpu=pages_retired,
        reads=("retired_pages.single_bit", "retired_pages.double_bit"),
    ),
)
"""Faults that only a replacement ends, then those that a reset repairs."""
