"""The memory of each GPU: ECC, and how far its repairs have come."""

from gpuwatch.diagnose.check import Case, Check, Verdict, passed
from gpuwatch.diagnose.checks.per_gpu import believed, blame, many, told, untold
from gpuwatch.diagnose.checks.remedies import CONTACT_SUPPORT, DRAIN, RESET, RESET_GPU
from gpuwatch.diagnose.model.diagnosis import Stage
from gpuwatch.model.snapshot import Gpu

UNCORRECTED = "uncorrected/aggregate/total"


def _ecc_mode(case: Case) -> Verdict:
    known = [gpu for gpu in case.gpus if gpu.ecc.enabled is not None]
    if not known:
        return untold(case, "no GPU tells of ECC (GeForce has none)")
    if waiting := told(case, _ecc_waits):
        return blame(waiting)
    names = {gpu.identity.name for gpu in known if gpu.ecc.enabled}
    if mixed := told(case, lambda gpu: _ecc_differs(gpu, names)):
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


def _errors(case: Case) -> Verdict:
    if not any(gpu.ecc.counts for gpu in case.gpus):
        return untold(case, "no GPU counts memory errors")
    checks = ("ecc_sram_threshold", "memory_unrepairable", "ecc_uncorrected", "ecc_correctable_rate")
    if found := believed(case, *checks):
        return found
    ever = sum(gpu.ecc.counts.get(UNCORRECTED, 0) for gpu in case.gpus)
    return passed(f"none since the driver was loaded{f', {ever} ever' if ever else ''}")


def _remaps(case: Case) -> Verdict:
    if not any(gpu.row_remap.failure is not None for gpu in case.gpus):
        return untold(case, "no GPU tells of row remaps (Ampere and newer do, but not in MIG mode)")
    if found := believed(case, "row_remap_failure", "row_remap_pending", "repair_pending"):
        return found
    if worn := told(case, _worn, worst=_without_spares):
        return blame(worn, remedy=WORN, commands=CONTACT_SUPPORT.commands)
    rows = sum((gpu.row_remap.corrected or 0) + (gpu.row_remap.uncorrected or 0) for gpu in case.gpus)
    return passed(f"{rows} rows remapped, none waits")


def _worn(gpu: Gpu) -> str | None:
    banks = _without_spares(gpu)
    return f"{banks} memory banks have no spare row left" if banks else None


def _without_spares(gpu: Gpu) -> int:
    return gpu.row_remap.banks.get("none", 0)


WORN = "The next fault in such a bank cannot be repaired. Have the GPU replaced at the next occasion; it still works."


def _pages(case: Case) -> Verdict:
    known = [gpu for gpu in case.gpus if gpu.retired_pages.double_bit is not None]
    if not known:
        return untold(case, "no GPU retires pages (Turing and older do)")
    if found := believed(case, "retired_pages_limit", "retired_pages_pending"):
        return found
    return passed(f"{sum((g.retired_pages.single_bit or 0) + (g.retired_pages.double_bit or 0) for g in known)} pages")


MEMORY: tuple[Check, ...] = (
    Check(
        "G01",
        Stage.HEALTH,
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
    Check(
        "G02",
        Stage.HEALTH,
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
    Check(
        "G03",
        Stage.HEALTH,
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
    Check(
        "G04",
        Stage.HEALTH,
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
