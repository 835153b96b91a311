"""The memory of each GPU: ECC, and how far its repairs have come."""

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, passed
from gpuwatch.diagnose.checks.per_gpu import agent_verdict, count_gpus, no_reading, verdict_on_gpus
from gpuwatch.diagnose.checks.remedies import CONTACT_SUPPORT, DRAIN, RESET, RESET_GPU
from gpuwatch.diagnose.model import CheckStage

UNCORRECTED = "uncorrected/aggregate/total"


def check_ecc_mode(context: CheckContext) -> CheckVerdict:
    known = [gpu for gpu in context.gpus if gpu.ecc.enabled is not None]
    if not known:
        return no_reading(context, "no GPU reports ECC (GeForce has none)")
    pending = {
        gpu.identity.index: f"ECC is to be {'on' if gpu.ecc.pending else 'off'} after the next reset"
        for gpu in context.gpus
        if gpu.ecc.pending is not None and gpu.ecc.pending != gpu.ecc.enabled
    }
    if pending:
        return verdict_on_gpus(pending)
    names = {gpu.identity.name for gpu in known if gpu.ecc.enabled}
    mixed = {
        gpu.identity.index: "ECC is off, and on for others of its model"
        for gpu in known
        if not gpu.ecc.enabled and gpu.identity.name in names
    }
    if mixed:
        return verdict_on_gpus(mixed, remedy=MIXED, commands=("nvidia-smi -i {gpu} -e 1", DRAIN, RESET))
    on = sum(bool(gpu.ecc.enabled) for gpu in known)
    return passed(f"on for {on} of {count_gpus(len(known))}")


MIXED = "Memory errors of these GPUs go unseen. Switch ECC on, as for the others; it takes a reset."


def check_errors(context: CheckContext) -> CheckVerdict:
    if not any(gpu.ecc.counts for gpu in context.gpus):
        return no_reading(context, "no GPU counts memory errors")
    checks = ("ecc_sram_threshold", "memory_unrepairable", "ecc_uncorrected", "ecc_correctable_rate")
    if found := agent_verdict(context, *checks):
        return found
    ever = sum(gpu.ecc.counts.get(UNCORRECTED, 0) for gpu in context.gpus)
    return passed(f"none since the driver was loaded{f', {ever} ever' if ever else ''}")


def check_remaps(context: CheckContext) -> CheckVerdict:
    if not any(gpu.row_remap.failure is not None for gpu in context.gpus):
        return no_reading(context, "no GPU reports row remaps (Ampere and newer do, but not in MIG mode)")
    if found := agent_verdict(context, "row_remap_failure", "row_remap_pending", "repair_pending"):
        return found
    worn = {gpu.identity.index: gpu.row_remap.banks.get("none", 0) for gpu in context.gpus}
    problems = {
        index: f"{banks} memory banks have no spare row left"
        for index, banks in sorted(worn.items(), key=lambda each: -each[1])
        if banks
    }
    if problems:
        return verdict_on_gpus(problems, remedy=WORN, commands=CONTACT_SUPPORT.commands)
    rows = sum((gpu.row_remap.corrected or 0) + (gpu.row_remap.uncorrected or 0) for gpu in context.gpus)
    return passed(f"{rows} rows remapped, none waits")


WORN = "The next fault in such a bank cannot be repaired. Have the GPU replaced at the next occasion; it still works."


def check_pages(context: CheckContext) -> CheckVerdict:
    known = [gpu for gpu in context.gpus if gpu.retired_pages.double_bit is not None]
    if not known:
        return no_reading(context, "no GPU retires pages (Turing and older do)")
    if found := agent_verdict(context, "retired_pages_limit", "retired_pages_pending"):
        return found
    return passed(f"{sum((g.retired_pages.single_bit or 0) + (g.retired_pages.double_bit or 0) for g in known)} pages")


MEMORY: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "G01", CheckStage.HEALTH, "ECC is as it will be after a reset, and alike on all GPUs",
        how="nvmlDeviceGetEccMode: current against pending",
        remedy="It was switched with nvidia-smi -e. To keep the mode in force, switch it back (-e 1: on, -e 0: off); "
        "to change it, reset the GPU when its work is done.",
        commands=("nvidia-smi -i {gpu} -q -d ECC", DRAIN, RESET),
        judge=check_ecc_mode, needs=("N04",), reads=("view",), each=True,
    ),
    DiagnosticCheck(
        "G02", CheckStage.HEALTH, "memory has no errors that ECC could not correct",
        how="nvmlDeviceGetTotalEccErrors (volatile), SRAM threshold and unrepairable-memory flag, corrected errors an "
        "hour",
        remedy=RESET_GPU.text + " If errors come back after it, have the GPU replaced.",
        commands=("nvidia-smi -i {gpu} -q -d ECC", *RESET_GPU.commands),
        judge=check_errors, needs=("N04",), reads=("view",), each=True,
    ),
    DiagnosticCheck(
        "G03", CheckStage.HEALTH, "no memory row waits for, or has failed, its repair",
        how="nvmlDeviceGetRemappedRows, nvmlDeviceGetRowRemapperHistogram, nvmlDeviceGetRepairStatus",
        remedy="A failed remap is NVIDIA's criterion for a replacement. One that waits is done by a "
        "reset. " + RESET_GPU.text,
        commands=("nvidia-smi -i {gpu} -q -d ROW_REMAPPER", *RESET_GPU.commands),
        judge=check_remaps, needs=("N04",), reads=("view",), each=True,
    ),
    DiagnosticCheck(
        "G04", CheckStage.HEALTH, "few memory pages are retired, and none waits for it",
        how="nvmlDeviceGetRetiredPages, nvmlDeviceGetRetiredPagesPendingStatus (Turing and older)",
        remedy="There is room for 64: have the GPU replaced. Pages that wait are retired by a reset. " + RESET_GPU.text,
        commands=("nvidia-smi -i {gpu} -q -d PAGE_RETIREMENT", *RESET_GPU.commands),
        judge=check_pages, needs=("N04",), reads=("view",), each=True,
    ),
)  # fmt: skip
"""Errors, then their repair."""
