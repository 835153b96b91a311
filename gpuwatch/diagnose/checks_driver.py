"""The kernel modules and the driver's user-space half: loaded, matching, fit for the GPUs."""

from gpuwatch.diagnose.check import Check

DRIVER: tuple[Check, ...] = ()
