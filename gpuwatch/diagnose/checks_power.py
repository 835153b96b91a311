"""Who has set limits and clocks, and whether the power figures can be relied on."""

from gpuwatch.diagnose.check import Check

POWER: tuple[Check, ...] = ()
