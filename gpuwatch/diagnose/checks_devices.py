"""The device files programs and containers open."""

from gpuwatch.diagnose.check import Check

DEVICES: tuple[Check, ...] = ()
