"""The kernel modules and the driver's user-space half: loaded, matching, fit for the GPUs."""

from gpuwatch.diagnose.check import DiagnosticCheck
from gpuwatch.diagnose.checks.driver.fit import FIT
from gpuwatch.diagnose.checks.driver.state import STATE

DRIVER: tuple[DiagnosticCheck, ...] = tuple(sorted((*STATE, *FIT), key=lambda check: check.id))
