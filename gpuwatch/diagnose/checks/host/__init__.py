"""The machine below the driver: PCI bus, kernel, firmware."""

from gpuwatch.diagnose.check import DiagnosticCheck
from gpuwatch.diagnose.checks.host.bus import BUS
from gpuwatch.diagnose.checks.host.kernel import KERNEL
from gpuwatch.diagnose.checks.host.traffic import TRAFFIC

HOST: tuple[DiagnosticCheck, ...] = (*BUS, *TRAFFIC, *KERNEL)
