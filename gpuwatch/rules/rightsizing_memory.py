"""Work that takes most of a GPU's memory as it starts and keeps it: how much it needs cannot be seen from outside."""

from gpuwatch.rules.rightsizing_case import Case

PREALLOCATED = 0.7
"""Of the device, within two minutes of the start."""

FLAT = 0.01
"""Standard deviation over mean."""


def is_preallocating(case: Case) -> bool:
    """Any of its pods, also of those that are gone. What is not known is not said: see `Hold.memory_at_start`."""
    total = case.summary.memory_total
    return total is not None and any(
        hold.memory_at_start is not None
        and hold.memory_spread is not None
        and hold.memory_at_start >= PREALLOCATED * total
        and hold.memory_spread < FLAT
        for hold in case.summary.holds
    )
