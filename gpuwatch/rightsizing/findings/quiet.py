"""Whether a pod does nothing with a device, for how long, and what the device draws for that.

What cannot be read is never quiet. Draw and PCIe are the physical GPU's: they say nothing of one MIG instance.
"""

from collections.abc import Iterable

from gpuwatch.rightsizing.findings.workload import Ground
from gpuwatch.rightsizing.model.usage import Fleet, Hold

PCIE_IDLE = 1 << 20
"""Bytes a second. Processes that wait still poll and report."""

DRAW = 1.15
"""Times the lowest draw while it was held: more is work that no counter shows."""

DRAW_AT_REST = 0.4
"""Of the power limit: no GPU at rest draws more, whatever the lowest draw was before it had a context."""

BEGIN_SECONDS = 600.0
"""What happened in so short a time before it was seen is taken to be what was seen."""

OLD_SECONDS = 3 * 3600.0
"""Who was seen last so long ago may have worked since."""


def quiet_seconds(hold: Hold, ground: Ground) -> float | None:
    """For how long it surely did nothing, after its grace. None: it works, or nobody can tell.

    The ledger has left out the time that nobody saw.
    """
    if hold.idle_since is None or hold.busy is None or _does_something(hold):
        return None
    if ground.now - hold.last > OLD_SECONDS:
        return None
    return hold.last - max(hold.idle_since, hold.since + ground.config.grace)


def is_seen_whole(hold: Hold) -> bool:
    """Whether it was seen from its begin: else it may have worked before."""
    if hold.worked or hold.idle_since is None:
        return hold.worked
    return hold.idle_since - hold.unseen - hold.since <= BEGIN_SECONDS


def works(hold: Hold, ground: Ground) -> bool:
    """Also where nobody can tell."""
    seconds = quiet_seconds(hold, ground)
    return seconds is None or seconds < ground.config.idle_after


def draw_above_idle(holds: Iterable[Hold], fleet: Fleet) -> float | None:
    """Watts that whole GPUs draw for being held without work. None: of any that is not known."""
    idle = {gpu.uuid: gpu.idle_watts for gpu in fleet.gpus}
    total = 0.0
    for hold in holds:
        rest = idle.get(hold.gpu)
        if hold.watts is None or rest is None or hold.device or hold.holders > 1:
            return None
        total += max(0.0, hold.watts - rest)
    return total


def _does_something(hold: Hold) -> bool:
    if hold.device:
        return hold.asked
    return hold.asked or (hold.pcie is not None and hold.pcie >= PCIE_IDLE) or _draws(hold)


def _draws(hold: Hold) -> bool:
    if hold.watts is None or hold.loaded_idle_watts is None or hold.watts < DRAW * hold.loaded_idle_watts:
        return False
    return hold.power_limit is None or hold.watts > DRAW_AT_REST * hold.power_limit
