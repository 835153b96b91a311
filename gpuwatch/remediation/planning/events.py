"""Events, each told once: its name is made from what it tells, so one told again after a crash is the same Event."""

from collections.abc import Iterator
from hashlib import sha256

from gpuwatch.health.xid.classify import RECOVERY_CHANGED
from gpuwatch.kube.objects import NodeObject
from gpuwatch.model.response import Response
from gpuwatch.model.view import View
from gpuwatch.remediation.model.plan import Announce, Fault, Memory, Ownership, Plan
from gpuwatch.remediation.planning.condition import STATUS, Why
from gpuwatch.remediation.planning.policy import Policy

DAY = 86400.0
REMEMBERED = 2 * DAY
MAX_REMEMBERED = 1000
MAX_POD_EVENTS = 8
"""In one plan: a storm of XIDs is no reason for a storm of Events."""


def about_node(node: NodeObject, why: Why, text: str, faults: tuple[Fault, ...], owner: Ownership | None) -> Announce:
    """The Event that goes with a change of the condition to `why`."""
    if STATUS.get(why) == "True":
        moved = node.condition.last_transition if node.condition else ""
        return Announce(name=digest("recovered", node.uid, moved), reason=Why.RECOVERED, message=text, warning=False)
    what = owner.id if owner else digest(*(f"{fault.key}@{fault.last}" for fault in faults))
    return Announce(name=digest(why, node.uid, what), reason=why, message=text)


def about_pods(view: View, policy: Policy) -> Iterator[Announce]:
    """For every XID, an Event on each pod that had the GPU: possibly affected, not to blame. One a day for each
    pod and code, however many GPUs tell of it. None for the driver's advice (154): what it is about is told already."""
    for finding in view.judgement.findings:
        if finding.xid in (None, RECOVERY_CHANGED) or not policy.response(finding).reaches(Response.OBSERVE):
            continue
        for pod in finding.pods:
            if pod.namespace and pod.pod and pod.pod_uid:
                day = int(finding.latest // DAY)
                yield Announce(
                    name=digest("pod", pod.pod_uid, finding.xid, day),
                    reason=f"GPUXid{finding.xid}",
                    message=f"{finding.message} ({finding.gpu}; this pod had it and may be affected)",
                    pod=(pod.namespace, pod.pod, pod.pod_uid),
                )


def untold(announcements: Iterator[Announce], memory: Memory) -> tuple[Announce, ...]:
    """Those that were not told yet, each once."""
    return tuple({a.name: a for a in announcements if a.name not in memory.announced}.values())


def told(plan: Plan, announced: dict[str, float], now: float) -> dict[str, float]:
    """What has been told after the plan's steps; old entries go."""
    new = announced | {step.name: now for step in plan.steps if isinstance(step, Announce)}
    latest = sorted(new.items(), key=lambda entry: entry[1])[-MAX_REMEMBERED:]
    return {name: at for name, at in latest if abs(now - at) < REMEMBERED}


def digest(*parts: object) -> str:
    """A name from what it stands for: the same parts, the same name."""
    return f"gpuwatch-{sha256('|'.join(map(str, parts)).encode()).hexdigest()[:20]}"
