"""The kernel modules and the driver's user-space half: loaded, matching, fit for the GPUs."""

from gpuwatch.diagnose.check import Case, Check, Verdict, failed, passed
from gpuwatch.model.diagnosis import Stage


def _loaded(case: Case) -> Verdict:
    kernel = case.facts.kernel
    if kernel is None or not kernel.is_loaded:
        return failed("the nvidia module is not loaded")
    return passed(kernel.driver or kernel.module or "loaded")


DRIVER: tuple[Check, ...] = (
    Check(
        id="D01",
        stage=Stage.DRIVER,
        title="the nvidia module is loaded",
        how="/proc/driver/nvidia/version, /proc/modules, /sys/module/nvidia",
        failure="the nvidia module is not loaded",
        remedy="Load it.",
        commands=("modprobe nvidia",),
        judge=_loaded,
        needs=("H01",),
        reads=("kernel",),
    ),
)
