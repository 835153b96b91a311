"""What NVML lets gpuwatch read and set, beside the plain readings."""

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, passed, skipped, warned
from gpuwatch.diagnose.checks.per_gpu import (
    WORKSTATION_BRANDS,
    count_gpus,
    no_reading,
    problems_by_gpu,
    verdict_on_gpus,
)
from gpuwatch.diagnose.model import CheckStage

WITHOUT_GPM = frozenset({"Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Ampere", "Ada Lovelace"})


def check_gpm(context: CheckContext) -> CheckVerdict:
    able = [
        gpu
        for gpu in context.gpus
        if gpu.identity.architecture not in (None, *WITHOUT_GPM)
        and gpu.identity.brand not in WORKSTATION_BRANDS
        and gpu.virtualization_mode != "vgpu"
    ]
    if not able:
        return no_reading(context, "no GPU has GPM counters (Hopper and newer do); DCGM has such metrics of older ones")
    without = {  # in MIG mode only instances have them, and a GPU may be cut into none
        gpu.identity.index: "it should have activity counters, but its driver offers none"
        for gpu in able
        if gpu.activity.sm is None and not gpu.mig_enabled and "activity" not in gpu.errors
    }
    return verdict_on_gpus(without) if without else passed(count_gpus(len(able)))


def check_readable(context: CheckContext) -> CheckVerdict:
    params = context.facts.kernel.params if context.facts.kernel else {}
    rule = params.get("RmProfilingAdminOnly")
    refused = problems_by_gpu(
        context, lambda gpu: f"activity counters are refused: {e}" if (e := gpu.errors.get("activity")) else None
    )
    limits = context.facts.limits
    if refused and limits is not None and limits.euid != 0 and not context.facts.agent:
        return skipped("not read: counters may be for root only (RmProfilingAdminOnly); run as root")
    if refused:
        verdict = verdict_on_gpus(refused)
        return verdict._replace(evidence={**verdict.evidence, **({"RmProfilingAdminOnly": rule} if rule else {})})
    read = sum(
        gpu.activity.sm is not None or any(mig.activity.sm is not None for mig in gpu.mig) for gpu in context.gpus
    )
    if not read:
        return no_reading(context, "no GPU gives activity counters to read")
    return passed(f"of {count_gpus(read)}{'; other programs need CAP_SYS_ADMIN for theirs' if rule == '1' else ''}")


def check_actuation(context: CheckContext) -> CheckVerdict:
    limits = context.facts.limits
    if limits is None:
        return skipped("the permissions of this process were not read")
    may = limits.euid == 0 and "CAP_SYS_ADMIN" in limits.capabilities
    if context.config.tuning.mode == "enforce" and not may:
        return warned(
            "the tuner is to set clocks and limits, and a process like this one may not", {"euid": str(limits.euid)}
        )
    if not may:
        return skipped("this process may not set clocks or limits, and does not need to (tuning.mode is not enforce)")
    fixed = problems_by_gpu(
        context, lambda gpu: None if gpu.power.limit_min is not None else "its power limit cannot be set"
    )
    return passed(f"it could be done{f'; not the power limit of {count_gpus(len(fixed))}' if fixed else ''}")


ACCESS: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "N05", CheckStage.NVML, "GPUs that have activity counters offer them",
        how="nvmlGpmQueryDeviceSupport (Hopper and newer)",
        remedy="SM, tensor and memory activity are missing from the metrics. Update the driver to 535 or newer; in a "
        "virtual machine the host may withhold them.",
        commands=("nvidia-smi --query-gpu=index,name,driver_version --format=csv",),
        judge=check_gpm, needs=("N04",), reads=("view", "kernel"), level="full", each=True,
    ),
    DiagnosticCheck(
        "N06", CheckStage.NVML, "activity counters may be read",
        how="two GPM samples (nvmlGpmSampleGet); RmProfilingAdminOnly of /proc/driver/nvidia/params",
        remedy="If another program holds the counters (ncu, nsys, DCGM with profiling), end it or dcgmi profile "
        "--pause. If this process may not read them, run it as root, or load the module with "
        "NVreg_RestrictProfilingToAdminUsers=0.",
        commands=("grep RmProfilingAdminOnly /proc/driver/nvidia/params", "ps -eo pid,comm | grep -E 'ncu|nsys|dcgm'"),
        judge=check_readable, needs=("N04",), reads=("view",), level="full", each=True,
    ),
    DiagnosticCheck(
        "N07", CheckStage.NVML, "who is to tune may set clocks and limits",
        how="capabilities and user of this process, power constraints of the GPUs; nothing is written",
        remedy="Run the tuner as root with CAP_SYS_ADMIN: switch the tuner on in the chart's values, or add SYS_ADMIN "
        "to its securityContext. Or leave tuning.mode at observe: it only recommends.",
        commands=("grep CapEff /proc/self/status", "gpuwatch tune status"),
        judge=check_actuation, needs=("N02",),
    ),
)  # fmt: skip
"""No problem that these checks find keeps work from running."""
