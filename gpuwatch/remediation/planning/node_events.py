"""The condition GPUHealthy and the Events that go with it, each created exactly once."""

from collections.abc import Iterator
from enum import StrEnum
from hashlib import sha256

from gpuwatch.health.xid.classify import RECOVERY_CHANGED
from gpuwatch.kube.objects import CONDITION, Condition, NodeObject
from gpuwatch.model.clock import rfc3339, unix_time
from gpuwatch.model.finding import Response
from gpuwatch.model.view import View
from gpuwatch.remediation.model import CreateEvent, Fault, Ownership, Plan, RemediatorMemory
from gpuwatch.remediation.planning.policy import Policy

MAX_TEXT = 1024

MESSAGE_SECONDS = 300.0
"""A text alone is rewritten no more often, heartbeat or not: figures in it may change at every look."""


class ConditionReason(StrEnum):
    """Reasons of the condition; those that people should hear of are reasons of Events, too."""

    HEALTHY = "GPUHealthy"
    UNKNOWN = "GPUUnknown"
    DEGRADED = "GPUDegraded"
    QUARANTINED = "GPUQuarantined"
    BLOCKED = "GPUQuarantineBlocked"
    RECOVERED = "GPURecovered"  # of an Event only


STATUS = {ConditionReason.HEALTHY: "True", ConditionReason.UNKNOWN: "Unknown"}
"""Every other reason means False."""


def condition_update(
    node: NodeObject, why: ConditionReason, text: str, now: float, heartbeat: float
) -> Condition | None:
    """The condition to write, None when what the Node has will do. `heartbeat` 0: never refreshed."""
    status, text = STATUS.get(why, "False"), text[:MAX_TEXT]
    old = node.condition
    if old is None:
        return _condition(why, status, text, now, rfc3339(now))
    if (old.status, old.reason) != (status, why):
        moved = rfc3339(now) if old.status != status else old.last_transition or rfc3339(now)
        return _condition(why, status, text, now, moved)
    age = now - (unix_time(old.last_heartbeat) or 0.0)
    due = bool(heartbeat) and not 0 <= age < heartbeat
    rewritten = text != old.message and not 0 <= age < max(heartbeat, MESSAGE_SECONDS)
    return _condition(why, status, text, now, old.last_transition or rfc3339(now)) if due or rewritten else None


def _condition(why: ConditionReason, status: str, text: str, now: float, moved: str) -> Condition:
    return Condition(
        type=CONDITION,
        status=status,
        reason=why,
        message=text,
        last_heartbeat=rfc3339(now),
        last_transition=moved,
    )


DAY = 86400.0
REMEMBERED = 2 * DAY
MAX_REMEMBERED = 1000
MAX_POD_EVENTS = 8
"""In one plan: a storm of XIDs is no reason for a storm of Events."""


def node_event(
    node: NodeObject, why: ConditionReason, text: str, faults: tuple[Fault, ...], owner: Ownership | None
) -> CreateEvent:
    """The Event that goes with a change of the condition to `why`."""
    if STATUS.get(why) == "True":
        moved = node.condition.last_transition if node.condition else ""
        return CreateEvent(
            name=digest("recovered", node.uid, moved), reason=ConditionReason.RECOVERED, message=text, warning=False
        )
    what = owner.id if owner else digest(*(f"{fault.key}@{fault.last}" for fault in faults))
    return CreateEvent(name=digest(why, node.uid, what), reason=why, message=text)


def pod_events(view: View, policy: Policy) -> Iterator[CreateEvent]:
    """For every XID, an Event on each pod that had the GPU: possibly affected, not to blame. One a day for each
    pod and code, however many GPUs tell of it. None for the driver's advice (154): what it is about is told already."""
    for finding in view.judgement.findings:
        if finding.xid in (None, RECOVERY_CHANGED) or not policy.response(finding).reaches(Response.OBSERVE):
            continue
        for pod in finding.pods:
            if pod.namespace and pod.pod and pod.pod_uid:
                day = int(finding.latest // DAY)
                yield CreateEvent(
                    name=digest("pod", pod.pod_uid, finding.xid, day),
                    reason=f"GPUXid{finding.xid}",
                    message=f"{finding.message} ({finding.gpu}; this pod had it and may be affected)",
                    pod=(pod.namespace, pod.pod, pod.pod_uid),
                )


def not_yet_created(announcements: Iterator[CreateEvent], memory: RemediatorMemory) -> tuple[CreateEvent, ...]:
    """Those that were not told yet, each once."""
    return tuple({a.name: a for a in announcements if a.name not in memory.announced}.values())


def with_created(plan: Plan, announced: dict[str, float], now: float) -> dict[str, float]:
    """What has been told after the plan's steps; old entries go."""
    new = announced | {step.name: now for step in plan.steps if isinstance(step, CreateEvent)}
    latest = sorted(new.items(), key=lambda entry: entry[1])[-MAX_REMEMBERED:]
    return {name: at for name, at in latest if abs(now - at) < REMEMBERED}


def digest(*parts: object) -> str:
    """A name from what it stands for: the same parts, the same name."""
    return f"gpuwatch-{sha256('|'.join(map(str, parts)).encode()).hexdigest()[:20]}"
