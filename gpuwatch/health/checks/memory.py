"""CHECKS of memory errors and their repair. Counters since the driver was loaded and levels, never lifetime totals."""

from gpuwatch.health.check import Check, Sighting, when
from gpuwatch.health.gpu_history import GpuHistory
from gpuwatch.model.finding import Remedy, Severity
from gpuwatch.model.response import Response

UNCORRECTED = "ecc.counts.uncorrected/volatile/total"
CORRECTED = "ecc.counts.corrected/volatile/total"


def _uncorrected(past: GpuHistory) -> Sighting | None:
    count = past.gpu.ecc.counts.get("uncorrected/volatile/total") if past.gpu else None
    return Sighting(f"uncorrected ECC errors since the driver was loaded: {count}", level=count) if count else None


def _corrected(past: GpuHistory) -> Sighting | None:
    grown = past.corrected.amount
    if grown < past.config.ecc_corrected_per_hour:
        return None
    return Sighting(f"{grown:.0f} memory errors were corrected within an hour", {"grown": f"{grown:.0f}"})


def _repair_pending(past: GpuHistory) -> Sighting | None:
    ecc = past.gpu.ecc if past.gpu else None
    waiting = [
        part
        for part, pending in (("memory channel", ecc.channel_repair_pending), ("TPC", ecc.tpc_repair_pending))
        if pending
    ] if ecc else []  # fmt: skip
    return Sighting(f"the repair of a {' and a '.join(waiting)} waits for a reset") if waiting else None


def _pages(past: GpuHistory) -> Sighting | None:
    pages = past.gpu.retired_pages if past.gpu else None
    count = (pages.single_bit or 0) + (pages.double_bit or 0) if pages else 0
    return Sighting(f"{count} memory pages are retired", level=count) if count >= past.config.retired_pages else None


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
        gpu=_repair_pending,
        reads=("ecc.channel_repair_pending", "ecc.tpc_repair_pending"),
    ),
    Check(
        "ecc_uncorrected",
        "uncorrected memory errors since the driver was loaded",
        Severity.WARNING,
        Remedy.RESET_GPU,
        "look at the XIDs beside it; reset the GPU when its work is done",
        Response.CONDITION,
        gpu=_uncorrected,
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
        gpu=_corrected,
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
        gpu=_pages,
        reads=("retired_pages.single_bit", "retired_pages.double_bit"),
    ),
)
"""What can be replaced only, then what a reset repairs."""
