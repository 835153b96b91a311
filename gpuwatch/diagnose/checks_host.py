"""The machine below the driver: PCI bus, kernel, firmware."""

from gpuwatch.diagnose.check import Check

HOST: tuple[Check, ...] = ()
