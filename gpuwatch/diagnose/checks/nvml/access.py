"""What NVML lets gpuwatch read and set, beside the plain readings."""

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, passed, skipped, warned
from gpuwatch.diagnose.checks.per_gpu import FOR_SCREENS, blame, many, told, untold
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.model.snapshot import Gpu

WITHOUT_GPM = frozenset({"Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Ampere", "Ada Lovelace"})


def _gpm(context: CheckContext) -> CheckVerdict:
    able = [gpu for gpu in context.gpus if gpu.identity.architecture not in (None, *WITHOUT_GPM) and _is_whole(gpu)]
    if not able:
        return untold(context, "no GPU has GPM counters (Hopper and newer do); DCGM has such metrics of older ones")
    without = {gpu.identity.index: NO_GPM for gpu in able if not _counts(gpu) and "activity" not in gpu.errors}
    return blame(without) if without else passed(many(len(able)))


def _is_whole(gpu: Gpu) -> bool:
    """A board of a data center that is not a slice of one: only of those NVIDIA says so."""
    return gpu.identity.brand not in FOR_SCREENS and gpu.virtualization_mode != "vgpu"


NO_GPM = "it should have activity counters, but its driver offers none"


def _counts(gpu: Gpu) -> bool:
    """In MIG mode only instances have them; and GPUs may be cut into none."""
    return gpu.activity.sm is not None or bool(gpu.mig_enabled)


def _readable(context: CheckContext) -> CheckVerdict:
    params = context.facts.kernel.params if context.facts.kernel else {}
    rule = params.get("RmProfilingAdminOnly")
    refused = told(context, _refused)
    limits = context.facts.limits
    if refused and limits is not None and limits.euid != 0 and not context.facts.agent:
        return skipped("not seen: counters may be for root only (RmProfilingAdminOnly); run as root")
    if refused:
        verdict = blame(refused)
        return verdict._replace(evidence={**verdict.evidence, **({"RmProfilingAdminOnly": rule} if rule else {})})
    read = sum(
        gpu.activity.sm is not None or any(mig.activity.sm is not None for mig in gpu.mig) for gpu in context.gpus
    )
    if not read:
        return untold(context, "no GPU gives activity counters to read")
    return passed(f"of {many(read)}{'; other programs need CAP_SYS_ADMIN for theirs' if rule == '1' else ''}")


def _refused(gpu: Gpu) -> str | None:
    error = gpu.errors.get("activity")
    return f"activity counters are refused: {error}" if error else None


def _actuation(context: CheckContext) -> CheckVerdict:
    limits = context.facts.limits
    if limits is None:
        return skipped("what this process may do was not seen")
    may = limits.euid == 0 and "CAP_SYS_ADMIN" in limits.capabilities
    if context.config.tuning.mode == "enforce" and not may:
        return warned(
            "the tuner is to set clocks and limits, and a process like this one may not", {"euid": str(limits.euid)}
        )
    if not may:
        return skipped("this process may not set clocks or limits, and nobody asks it to (tuning.mode is not enforce)")
    fixed = told(context, lambda gpu: None if gpu.power.limit_min is not None else "its power limit cannot be set")
    return passed(f"it could be done{f'; not the power limit of {many(len(fixed))}' if fixed else ''}")


ACCESS: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "N05",
        CheckStage.NVML,
        "GPUs that have activity counters offer them",
        "nvmlGpmQueryDeviceSupport (Hopper and newer)",
        "GPU 0: it should have activity counters, but its driver offers none",
        "SM, tensor and memory activity are missing from the metrics; all else works. Update the driver to 535 or "
        "newer; in a virtual machine the host may withhold them.",
        _gpm,
        needs=("N04",),
        reads=("view", "kernel"),  # a recording of the driver alone need not have them
        commands=("nvidia-smi --query-gpu=index,name,driver_version --format=csv",),
        level="full",
        each=True,
    ),
    DiagnosticCheck(
        "N06",
        CheckStage.NVML,
        "activity counters may be read",
        "two GPM samples (nvmlGpmSampleGet); RmProfilingAdminOnly of /proc/driver/nvidia/params",
        "GPU 0: activity counters are refused: Insufficient Permissions",
        "Either another program holds the counters (ncu, nsys, DCGM with profiling): end it or dcgmi profile --pause. "
        "Or this process may not read them: run it as root, or load the module with "
        "NVreg_RestrictProfilingToAdminUsers=0.",
        _readable,
        needs=("N04",),
        reads=("view",),
        commands=("grep RmProfilingAdminOnly /proc/driver/nvidia/params", "ps -eo pid,comm | grep -E 'ncu|nsys|dcgm'"),
        level="full",
        each=True,
    ),
    DiagnosticCheck(
        "N07",
        CheckStage.NVML,
        "who is to tune may set clocks and limits",
        "capabilities and user of this process, power constraints of the GPUs; nothing is written",
        "the tuner is to set clocks and limits, and a process like this one may not",
        "Run the tuner as root with CAP_SYS_ADMIN: in the chart's values switch the tuner on, by hand add SYS_ADMIN to "
        "its securityContext. Or leave tuning.mode at observe: it then recommends only.",
        _actuation,
        needs=("N02",),
        commands=("grep CapEff /proc/self/status", "gpuwatch tune status"),
    ),
)
"""None of them keeps work from running."""
