"""The memory of each GPU: ECC, and how far its repairs have come."""

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, passed
from gpuwatch.diagnose.checks.per_gpu import believed, blame, many, told, untold
from gpuwatch.diagnose.checks.remedies import CONTACT_SUPPORT, DRAIN, RESET, RESET_GPU
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.model.snapshot import Gpu

UNCORRECTED = "uncorrected/aggregate/total"


def _ecc_mode(context: CheckContext) -> CheckVerdict:
    known = [gpu for gpu in context.gpus if gpu.ecc.enabled is not None]
    if not known:
        return untold(context, "no GPU tells of ECC (GeForce has none)")
    if waiting := told(context, _ecc_waits):
        return blame(waiting)
    names = {gpu.identity.name for gpu in known if gpu.ecc.enabled}
    if mixed := told(context, lambda gpu: _ecc_differs(gpu, names)):
        return blame(mixed, remedy=MIXED, commands=("nvidia-smi -i {gpu} -e 1", DRAIN, RESET))
    on = sum(bool(gpu.ecc.enabled) for gpu in known)
    return passed(f"on for {on} of {many(len(known))}")


def _ecc_waits(gpu: Gpu) -> str | None:
    if gpu.ecc.pending is None or gpu.ecc.pending == gpu.ecc.enabled:
        return None
    return f"ECC is to be {'on' if gpu.ecc.pending else 'off'} after the next reset"


def _ecc_differs(gpu: Gpu, with_ecc: set[str | None]) -> str | None:
    differs = gpu.ecc.enabled is False and gpu.identity.name in with_ecc
    return "ECC is off, and on for others of its model" if differs else None


MIXED = "Memory errors of these GPUs go unseen. Switch ECC on, as for the others; it takes a reset."


def _errors(context: CheckContext) -> CheckVerdict:
    if not any(gpu.ecc.counts for gpu in context.gpus):
        return untold(context, "no GPU counts memory errors")
    checks = ("ecc_sram_threshold", "memory_unrepairable", "ecc_uncorrected", "ecc_correctable_rate")
    if found := believed(context, *checks):
        return found
    ever = sum(gpu.ecc.counts.get(UNCORRECTED, 0) for gpu in context.gpus)
    return passed(f"none since the driver was loaded{f', {ever} ever' if ever else ''}")


def _remaps(context: CheckContext) -> CheckVerdict:
    if not any(gpu.row_remap.failure is not None for gpu in context.gpus):
        return untold(context, "no GPU tells of row remaps (Ampere and newer do, but not in MIG mode)")
    if found := believed(context, "row_remap_failure", "row_remap_pending", "repair_pending"):
        return found
    if worn := told(context, _worn, worst=_without_spares):
        return blame(worn, remedy=WORN, commands=CONTACT_SUPPORT.commands)
    rows = sum((gpu.row_remap.corrected or 0) + (gpu.row_remap.uncorrected or 0) for gpu in context.gpus)
    return passed(f"{rows} rows remapped, none waits")


def _worn(gpu: Gpu) -> str | None:
    banks = _without_spares(gpu)
    return f"{banks} memory banks have no spare row left" if banks else None


def _without_spares(gpu: Gpu) -> int:
    return gpu.row_remap.banks.get("none", 0)


WORN = "The next fault in such a bank cannot be repaired. Have the GPU replaced at the next occasion; it still works."


def _pages(context: CheckContext) -> CheckVerdict:
    known = [gpu for gpu in context.gpus if gpu.retired_pages.double_bit is not None]
    if not known:
        return untold(context, "no GPU retires pages (Turing and older do)")
    if found := believed(context, "retired_pages_limit", "retired_pages_pending"):
        return found
    return passed(f"{sum((g.retired_pages.single_bit or 0) + (g.retired_pages.double_bit or 0) for g in known)} pages")


MEMORY: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "G01",
        CheckStage.HEALTH,
        "ECC is as it will be after a reset, and alike on all GPUs",
        "nvmlDeviceGetEccMode: current against pending",
        "GPU 2: ECC is to be off after the next reset",
        "Somebody has switched it with nvidia-smi -e. To keep what is in force, switch it back (-e 1: on, -e 0: off); "
        "to have the change, reset the GPU when its work is done.",
        _ecc_mode,
        needs=("N04",),
        reads=("view",),
        commands=("nvidia-smi -i {gpu} -q -d ECC", DRAIN, RESET),
        each=True,
    ),
    DiagnosticCheck(
        "G02",
        CheckStage.HEALTH,
        "memory has no errors that ECC could not correct",
        "nvmlDeviceGetTotalEccErrors (volatile), SRAM threshold and unrepairable-memory flag, corrected errors an hour",
        "GPU 1: uncorrected ECC errors since the driver was loaded: 2",
        RESET_GPU.words + " If errors come back after it, have the GPU replaced.",
        _errors,
        needs=("N04",),
        reads=("view",),
        commands=("nvidia-smi -i {gpu} -q -d ECC", *RESET_GPU.commands),
        each=True,
    ),
    DiagnosticCheck(
        "G03",
        CheckStage.HEALTH,
        "no memory row waits for, or has failed, its repair",
        "nvmlDeviceGetRemappedRows, nvmlDeviceGetRowRemapperHistogram, nvmlDeviceGetRepairStatus",
        "GPU 5: a row could not be remapped | a row remap waits for a reset",
        "A failed remap is NVIDIA's criterion for a replacement. One that waits is done by a reset. " + RESET_GPU.words,
        _remaps,
        needs=("N04",),
        reads=("view",),
        commands=("nvidia-smi -i {gpu} -q -d ROW_REMAPPER", *RESET_GPU.commands),
        each=True,
    ),
    DiagnosticCheck(
        "G04",
        CheckStage.HEALTH,
        "few memory pages are retired, and none waits for it",
        "nvmlDeviceGetRetiredPages, nvmlDeviceGetRetiredPagesPendingStatus (Turing and older)",
        "GPU 0: 62 memory pages are retired",
        "There is room for 64: have the GPU replaced. Pages that wait are retired by a reset. " + RESET_GPU.words,
        _pages,
        needs=("N04",),
        reads=("view",),
        commands=("nvidia-smi -i {gpu} -q -d PAGE_RETIREMENT", *RESET_GPU.commands),
        each=True,
    ),
)
"""Errors, then their repair."""
