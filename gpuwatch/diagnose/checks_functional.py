"""Real work on the GPUs."""

from gpuwatch.diagnose.check import Check

FUNCTIONAL: tuple[Check, ...] = ()
