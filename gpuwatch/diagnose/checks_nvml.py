"""The driver's management library: does it load, answer, and count the GPUs the bus has."""

from gpuwatch.diagnose.check import Check

NVML: tuple[Check, ...] = ()
