"""Others who read the same counters: DCGM and its exporter."""

from gpuwatch.diagnose.check import Check

EXPORTERS: tuple[Check, ...] = ()
