"""The condition GPUHealthy and the Events that go with it, each Event created exactly once.

The problem. An Event shows people that a GPU failed, a node was quarantined, a pod may be affected. Created twice it is
noise, and alerts count it twice; not created it is lost. The remediator plans again and again from the same findings,
may crash before or after any request, may lose an answer to a request that was carried out, and may lose its disk.

What does not work. Remembering what was created: the memory is written after the request, so a crash between the two
repeats the Event. Writing the memory first loses the Event instead. Asking the API server for existing Events costs a
list request in every cycle, and Events expire after an hour.

The solution has two parts. The name of an Event is a digest of what it reports (`digest`): a quarantine's id, a pod's
uid with the XID and the day. Creating it again is answered with AlreadyExists, which counts as done; so memory
(`not_yet_created`) only saves requests and is not needed for correctness. And an Event that reports a change of the
condition is created before the condition is written: while the condition is old, the change is still due, so a crash
between the two creates the same name again. The condition on the Node is the record that the Event was created.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum

from gpuwatch.health.xid.classify import RECOVERY_CHANGED
from gpuwatch.kube.objects import CONDITION, Condition, NodeObject, PodObject
from gpuwatch.model.clock import rfc3339, unix_time
from gpuwatch.model.finding import UNCONFIRMED_CHECKS, Health, Response
from gpuwatch.model.text import visible
from gpuwatch.model.view import View
from gpuwatch.remediation.model import (
    BlockReason,
    CreateEvent,
    Fault,
    Ownership,
    Plan,
    RemediatorMemory,
    SetCondition,
    Step,
)
from gpuwatch.remediation.planning.evidence import in_force
from gpuwatch.remediation.planning.inputs import CONFINED, PlanDraft, PlanInputs, digest
from gpuwatch.remediation.planning.policy import Policy

MAX_TEXT = 1024

MESSAGE_SECONDS = 300.0
"""Least seconds between two writes for a new message alone: figures in it may change with every View."""

UNKNOWN_AFTER = 60.0
"""Seconds without a fresh View after which the condition is Unknown: an agent restarts in less time."""

STEADY_SECONDS = 60.0
"""Seconds without a fault before a condition that was False becomes True again: an intermittent fault on a node that
may not be tainted must not become a stream of Events. Never longer than `recovery_hold`.
"""

MONITOR = "monitoring_degraded"

DAY = 86400.0
REMEMBERED = 2 * DAY
MAX_REMEMBERED = 1000
MAX_POD_EVENTS = 8
"""In one plan: a storm of XIDs must not become a storm of Events."""


class ConditionReason(StrEnum):
    """Reasons of the condition; most are reasons of Events, too."""

    HEALTHY = "GPUHealthy"
    UNKNOWN = "GPUUnknown"
    DEGRADED = "GPUDegraded"
    QUARANTINED = "GPUQuarantined"
    BLOCKED = "GPUQuarantineBlocked"
    RECOVERED = "GPURecovered"  # of an Event only


STATUS = {ConditionReason.HEALTHY: "True", ConditionReason.UNKNOWN: "Unknown"}
"""Every other reason means False."""

PREVENTS_TAINT = frozenset(
    {
        BlockReason.BUDGET,
        BlockReason.BUDGET_UNREADABLE,
        BlockReason.FOREIGN,
        BlockReason.OPT_OUT,
        BlockReason.MAINTENANCE,
        BlockReason.RATE,
    }
)


def condition_steps(inputs: PlanInputs, draft: PlanDraft) -> tuple[Step, ...]:
    """The condition that goes with the draft, if it has to be written, after the Event that reports its change."""
    reason, text = _verdict(inputs, draft)
    if reason is None:
        return ()
    findings = inputs.view.judgement.findings if inputs.is_fresh else ()
    monitor = (f"{found.check}: {found.message}" for found in findings if found.check == MONITOR)
    message = "; ".join((text, *monitor, *inputs.observation.remarks))  # a reader of the Node does not read the log
    heartbeat = inputs.policy.config.heartbeat * (2 if draft.quarantined else 1)  # the slot's renewal is a write, too
    condition = condition_update(inputs.node, reason, message, inputs.now, heartbeat)
    if condition is None:
        return ()
    old = inputs.node.condition
    if reason is ConditionReason.HEALTHY:
        is_news = old is not None and old.status == "False"
    else:
        before = (old.status, old.reason) if old else None
        is_news = reason is not ConditionReason.UNKNOWN and before != (condition.status, condition.reason)
    event = node_event(inputs.node, reason, text, draft.faults, draft.owner if draft.quarantined else None)
    events = not_yet_created((event,), inputs.memory) if is_news else ()
    return (*events, SetCondition(condition=condition))


def condition_update(
    node: NodeObject, reason: ConditionReason, text: str, now: float, heartbeat: float
) -> Condition | None:
    """The condition to write; None when the one on the Node is up to date. `heartbeat` 0: never refreshed.

    lastTransitionTime changes with the status only, not with alternating reasons: other programs rely on it.
    """
    status, text, old = STATUS.get(reason, "False"), visible(text)[:MAX_TEXT], node.condition
    moved = rfc3339(now)
    if old is not None and old.status == status:
        moved = old.last_transition or moved
        age = now - (unix_time(old.last_heartbeat) or 0.0)
        due = bool(heartbeat) and not 0 <= age < heartbeat
        rewritten = text != old.message and not 0 <= age < max(heartbeat, MESSAGE_SECONDS)
        if old.reason == reason and not (due or rewritten):
            return None
    return Condition(
        type=CONDITION, status=status, reason=reason, message=text, last_heartbeat=rfc3339(now), last_transition=moved
    )


def node_event(
    node: NodeObject, reason: ConditionReason, text: str, faults: tuple[Fault, ...], owner: Ownership | None
) -> CreateEvent:
    """The Event that reports a change of the condition to `reason`."""
    if STATUS.get(reason) == "True":
        moved = node.condition.last_transition if node.condition else ""
        name = digest("recovered", node.uid, moved)
        return CreateEvent(name=name, reason=ConditionReason.RECOVERED, message=text, warning=False)
    subject = owner.id if owner else digest(*(f"{fault.key}@{fault.last}" for fault in faults))
    return CreateEvent(name=digest(reason, node.uid, subject), reason=reason, message=text)


def pod_events(view: View, policy: Policy) -> Iterator[CreateEvent]:
    """For every XID, an Event on each pod that held the GPU: it may be affected, and need not be the cause. One a day
    for each pod and code, however many GPUs report it. None for the driver's advice (154): its cause has been reported
    already; none for what only the kernel log reports.
    """
    for finding in view.judgement.findings:
        if finding.check in UNCONFIRMED_CHECKS or finding.xid in (None, RECOVERY_CHANGED):
            continue
        if not policy.response(finding).reaches(Response.OBSERVE):
            continue
        for pod in finding.pods:
            if pod.namespace and pod.pod and pod.pod_uid:
                yield CreateEvent(
                    name=digest("pod", pod.pod_uid, finding.xid, int(finding.latest // DAY)),
                    reason=f"GPUXid{finding.xid}",
                    message=f"{finding.message} ({finding.gpu}; this pod had it and may be affected)",
                    pod=(pod.namespace, pod.pod, pod.pod_uid),
                )


def case_events(inputs: PlanInputs) -> Iterator[CreateEvent]:
    """Events on the Node: a support bundle of its fault is kept there."""
    for case in inputs.view.support_cases:
        if inputs.now - case.at < DAY:
            message = f"kept on this node in state_dir: support/{case.file} ({case.bytes >> 10} KiB)"
            name = digest("support_case", inputs.node.uid, case.file)
            yield CreateEvent(name=name, reason="GPUSupportCase", message=visible(message), warning=False)


def eviction_event(pod: PodObject, faults: tuple[Fault, ...], owner: Ownership) -> CreateEvent:
    """An Event on a pod that is evicted: why, and which object starts it again. One for each quarantine."""
    reasons = "; ".join(f"{fault.place}: {fault.message}" for fault in faults if fault.response.reaches(Response.DRAIN))
    again = f"; {pod.group.kind} {pod.group.name} decides what starts again" if pod.group else ""
    return CreateEvent(
        name=digest("evicted", pod.uid, owner.id),
        reason="GPUEviction",
        message=visible(f"asked to leave this node: {reasons}{again}")[:MAX_TEXT],
        pod=(pod.namespace, pod.name, pod.uid),
    )


def not_yet_created(events: Iterable[CreateEvent], memory: RemediatorMemory) -> tuple[CreateEvent, ...]:
    """Those that are not remembered as created, each once."""
    return tuple({event.name: event for event in events if event.name not in memory.announced}.values())


def with_created(plan: Plan, created: dict[str, float], now: float) -> dict[str, float]:
    """Names of Events and when they were created, after the plan's steps; old entries are dropped."""
    new = created | {step.name: now for step in plan.steps if isinstance(step, CreateEvent)}
    latest = sorted(new.items(), key=lambda entry: entry[1])[-MAX_REMEMBERED:]
    return {name: at for name, at in latest if abs(now - at) < REMEMBERED}


def seconds_until_healthy(inputs: PlanInputs) -> float:
    """Seconds until a condition that is False may be True again, if nothing is wrong; 0: it may."""
    before, steady = inputs.node.condition, min(STEADY_SECONDS, inputs.policy.config.recovery_hold)
    return max(0.0, steady - inputs.observation.clean_for) if before and before.status == "False" else 0.0


def _verdict(inputs: PlanInputs, draft: PlanDraft) -> tuple[ConditionReason | None, str]:
    """Reason and message that the condition should have. None: leave it as it is."""
    if draft.quarantined:
        stuck = [each.message for each in draft.blocked if each.reason is BlockReason.DEADLINE]
        message = _listed(draft.faults, inputs.view) or "quarantined by a person"
        reason = ConditionReason.QUARANTINED
        if draft.owner is not None and draft.owner.scope == "gpu":
            reason, message = ConditionReason.DEGRADED, f"{message}; {CONFINED}"
        return (ConditionReason.BLOCKED, stuck[0]) if stuck else (reason, message)
    if not inputs.is_fresh:
        late = inputs.observation.age >= UNKNOWN_AFTER
        return (ConditionReason.UNKNOWN if late else None), "no fresh view of the GPUs"
    found = in_force(inputs.view, inputs.policy, Response.CONDITION)
    obstacles = tuple(each.message for each in draft.blocked if each.reason in PREVENTS_TAINT)
    if inputs.taint_reasons().wanted and obstacles:
        return ConditionReason.BLOCKED, "; ".join((_listed(found, inputs.view), *obstacles))
    gpus = len(inputs.view.snapshot.gpus)
    if found:
        return ConditionReason.DEGRADED, _listed(found, inputs.view)
    if not gpus or Health.UNKNOWN in inputs.view.judgement.gpus.values():
        return ConditionReason.UNKNOWN, "not every GPU can be read" if gpus else "no GPU can be read"
    return (None, "") if seconds_until_healthy(inputs) else (ConditionReason.HEALTHY, f"{gpus} GPUs are healthy")


def _listed(found: tuple[Fault, ...], view: View) -> str:
    """Faults, each with the number of those that follow from it instead of their texts."""
    causes = {finding.key: finding.caused_by for finding in view.judgement.findings}
    keys = {fault.key for fault in found}
    effects = Counter(causes[key] for key in keys if causes.get(key) in keys)
    return "; ".join(
        f"{fault.place}: {fault.message}" + (f" (and {effects[fault.key]} that follow)" if effects[fault.key] else "")
        for fault in found
        if causes.get(fault.key) not in keys
    )
