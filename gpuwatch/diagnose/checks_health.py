"""The GPUs themselves: memory, XIDs, temperature, clocks, modes, leftovers."""

from gpuwatch.diagnose.check import Check

HEALTH: tuple[Check, ...] = ()
