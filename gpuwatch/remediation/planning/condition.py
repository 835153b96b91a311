"""The condition GPUHealthy: changed at once when it says something else, else refreshed now and then.

It is also the record of which Events were told: an Event is due when status or reason change. Reasons that alternate do
not move lastTransitionTime, on which others count.
"""

from datetime import UTC, datetime
from enum import StrEnum

from gpuwatch.kube.objects import CONDITION, Condition, NodeObject

MAX_TEXT = 1024

MESSAGE_SECONDS = 300.0
"""A text alone is rewritten no more often, heartbeat or not: figures in it may change at every look."""


class Why(StrEnum):
    """Reasons of the condition; those that people should hear of are reasons of Events, too."""

    HEALTHY = "GPUHealthy"
    UNKNOWN = "GPUUnknown"
    DEGRADED = "GPUDegraded"
    QUARANTINED = "GPUQuarantined"
    BLOCKED = "GPUQuarantineBlocked"
    RECOVERED = "GPURecovered"  # of an Event only


STATUS = {Why.HEALTHY: "True", Why.UNKNOWN: "Unknown"}
"""Every other reason means False."""


def changed(node: NodeObject, why: Why, text: str, now: float, heartbeat: float) -> Condition | None:
    """The condition to write, None when what the Node has will do. `heartbeat` 0: never refreshed."""
    status, text = STATUS.get(why, "False"), text[:MAX_TEXT]
    old = node.condition
    if old is None:
        return _condition(why, status, text, now, rfc3339(now))
    if (old.status, old.reason) != (status, why):
        moved = rfc3339(now) if old.status != status else old.last_transition or rfc3339(now)
        return _condition(why, status, text, now, moved)
    age = now - (parsed(old.last_heartbeat) or 0.0)
    due = bool(heartbeat) and not 0 <= age < heartbeat
    rewritten = text != old.message and not 0 <= age < max(heartbeat, MESSAGE_SECONDS)
    return _condition(why, status, text, now, old.last_transition or rfc3339(now)) if due or rewritten else None


def rfc3339(at: float) -> str:
    """A unix time as the API writes it."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def parsed(text: str | None) -> float | None:
    """The unix time of the API's text; None when there is none."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:  # not written by us
        return None


def _condition(why: Why, status: str, text: str, now: float, moved: str) -> Condition:
    return Condition(
        type=CONDITION,
        status=status,
        reason=why,
        message=text,
        last_heartbeat=rfc3339(now),
        last_transition=moved,
    )
