"""What a GPU draws when nobody holds it, and when a node draws more than it may."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from gpuwatch.model.snapshot import Record

WINDOW_SECONDS = 60.0
ENOUGH_SECONDS = 30.0
"""A window in which readings span less tells nothing."""

HELD = 0.9
"""Of its limit: a GPU that draws as much may well be held by it, and would draw more."""

DRIFT = 1.05
"""A draw so much higher than the known one is another load's."""

PATIENCE_SECONDS = 3.0
REST_SECONDS = 60.0
"""After more was drawn than the budget, the emergency lasts so long."""


class Reading(NamedTuple):
    """Watts at a monotonic second."""

    at: float
    watts: float


def p95(readings: Sequence[Reading], now: float) -> float | None:
    """Watts that 95 % of the readings of the last minute do not exceed; None: there are not enough."""
    recent = [each for each in readings if 0 <= now - each.at <= WINDOW_SECONDS]
    if not recent or max(each.at for each in recent) - min(each.at for each in recent) < ENOUGH_SECONDS:
        return None
    ranked = sorted(each.watts for each in recent)
    return ranked[math.ceil(0.95 * len(ranked)) - 1]


def natural(known: float | None, draw: float | None, limit: float | None) -> float | None:
    """Watts a GPU draws unheld. `known`: the answer of before, None after its owner changed; `draw`: its p95 of now
    under `limit`. None: not known, it could draw more than it may.
    """
    if draw is None or limit is None:
        return known
    if draw < HELD * limit:
        return draw
    if known is not None and draw <= known * DRIFT:
        return max(known, draw)
    return None


class Overdraw(Record, frozen=True, kw_only=True):
    """Monotonic seconds. `since`: first of the unbroken readings above the budget; `last`: newest of those that made
    it an emergency.
    """

    since: float | None = None
    last: float | None = None

    def is_emergency(self, now: float) -> bool:
        """Whether the node is to be capped at once, or still is."""
        return self.last is not None and now - self.last < REST_SECONDS


def watch(seen: Overdraw, reading: Reading | None, budget: float) -> Overdraw:
    """Add what all GPUs draw together; None: it could not be read, which neither raises nor ends an alarm."""
    if reading is None:
        return seen
    if reading.watts <= budget:
        return Overdraw(last=seen.last)
    since = reading.at if seen.since is None else seen.since
    lasts = reading.at - since >= PATIENCE_SECONDS
    return Overdraw(since=since, last=reading.at if lasts else seen.last)
