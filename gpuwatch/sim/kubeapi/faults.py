"""Faults of an API server and of the network to it; switched while it runs."""

import random
from collections.abc import Collection
from typing import Literal

import msgspec

from gpuwatch.sim.kubeapi.resources import ServerCall

ApiFault = Literal["throttle", "internal_error", "unavailable", "reset_before", "reset_after", "hang"]


class ApiFaults(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of the requests concerned, 0 to 1; together at most 1, without `slow` and `stale`, drawn separately."""

    throttle: float = 0.0
    """429 with Retry-After."""
    retry_after: int = 1
    """Seconds named with 429 and 503; 0 names none."""
    internal_error: float = 0.0
    """500, nothing written."""
    unavailable: float = 0.0
    """503, nothing written."""
    reset_before: float = 0.0
    """The connection breaks and nothing is written."""
    reset_after: float = 0.0
    """The connection breaks after the write: the answer is lost, but the request is done."""
    hang: float = 0.0
    """No answer ever, nothing written."""
    slow: float = 0.0
    """Answers held back after the write for `delay` seconds."""
    delay: float = 1.0
    stale: float = 0.0
    """Of reads from the server's cache (`resourceVersion` 0): the object as it was before its last write."""
    gone: bool = False
    """The port is closed, and every connection is cut."""
    verbs: Collection[str] = ()
    """Only these verbs; empty is all."""
    resources: Collection[str] = ()
    """Only these resources (`nodes`, `nodes/status`); empty is all."""
    users: Collection[str] = ()
    """Only these users; empty is all."""

    def concern(self, call: ServerCall, user: str) -> bool:
        """Whether the faults can hit a request."""
        asked = ((self.verbs, call.verb), (self.resources, call.target), (self.users, user))
        return all(not wanted or value in wanted for wanted, value in asked)

    def draw(self, chance: random.Random) -> tuple[ApiFault | None, float]:
        """Draw the fault of one request, and the seconds by which its answer is late."""
        late = self.delay if self.slow and chance.random() < self.slow else 0.0
        shares: dict[ApiFault, float] = {
            "throttle": self.throttle,
            "internal_error": self.internal_error,
            "unavailable": self.unavailable,
            "reset_before": self.reset_before,
            "reset_after": self.reset_after,
            "hang": self.hang,
        }
        point = chance.random() if any(shares.values()) else 1.0
        for fault, share in shares.items():
            point -= share
            if point < 0:
                return fault, late
        return None, late
