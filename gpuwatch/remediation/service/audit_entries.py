"""What each step of a plan is called in the audit trail: action, target, and what was before and will be after."""

from gpuwatch.kube.objects import Condition, NodeObject, Taint
from gpuwatch.remediation.model.plan import (
    FAULTS,
    LABELS,
    OWNER,
    Announce,
    Evict,
    FreeSlot,
    HandOver,
    PatchNode,
    Plan,
    SetCondition,
    Step,
    TakeSlot,
)
from gpuwatch.storage.audit import Deed

_BY_KIND: dict[type[Step], str] = {
    TakeSlot: "slot",
    FreeSlot: "free_slot",
    SetCondition: "condition",
    Announce: "event",
    Evict: "evict",
    HandOver: "handover",
}


def action_of(step: Step) -> str:
    """The one of ACTIONS that a step is."""
    return step.step if isinstance(step, PatchNode) else _BY_KIND[type(step)]


def summary(step: Step, plan: Plan) -> tuple[str, str]:
    """What a step does to whom, whatever it writes there."""
    return action_of(step), _target(step, plan)


def deed_of(step: Step, plan: Plan, node: NodeObject) -> Deed:
    """The audit line of a step that is about to be done to `node`."""
    before, after = _change(step, node)
    return Deed(
        action=action_of(step),
        target=_target(step, plan),
        why=plan.words,
        evidence=tuple(fault.key for fault in plan.faults),
        before=before,
        after=after,
    )


def is_routine(step: Step, node: NodeObject) -> bool:
    """Whether it only says again what stands there: a heartbeat, or the renewal of a slot. It leaves no audit line."""
    match step:
        case SetCondition(condition=wanted):
            there = node.condition
            return (
                wanted is not None
                and there is not None
                and (wanted.status, wanted.reason, wanted.message) == (there.status, there.reason, there.message)
            )
        case TakeSlot():
            return node.taint is not None
    return False


def _target(step: Step, plan: Plan) -> str:
    match step:
        case TakeSlot(name=name) | FreeSlot(name=name):
            return f"lease/{name}"
        case Evict(pod=pod):
            return f"pod/{pod.path}"
        case Announce(pod=(namespace, name, _)):
            return f"pod/{namespace}/{name}"
        case HandOver(sentinel=sentinel):
            return f"file/{sentinel}"
    return f"node/{plan.node}"


def _change(step: Step, node: NodeObject) -> tuple[str, str]:
    match step:
        case PatchNode():
            return _node_change(step, node)
        case SetCondition(condition=wanted):
            return _told(node.condition), _told(wanted)
        case Announce():
            return "", f"{step.reason}: {step.message}"
        case HandOver(wanted=wanted):
            return "", "file" if wanted else "no file"
    return "", ""


def _node_change(step: PatchNode, node: NodeObject) -> tuple[str, str]:
    """Only what the step names; what our own annotations say is told by the action's name and its evidence."""
    before: list[str] = []
    after: list[str] = []
    if step.taints is not None:
        before.append(f"taints {_taints(node.taints)}")
        after.append(f"taints {_taints(step.taints)}")
    if step.unschedulable is not None:
        before.append(f"unschedulable {str(node.unschedulable).lower()}")
        after.append(f"unschedulable {str(step.unschedulable).lower()}")
    for kind, changes, there in (
        ("label", step.labels, node.labels),
        ("annotation", step.annotations, node.annotations),
    ):
        for key in sorted(changes.keys() - {OWNER, FAULTS, LABELS}):
            before.append(f"{kind} {key}={there.get(key, '')}")
            after.append(f"{kind} {key}={changes[key] or ''}")
    return "; ".join(before), "; ".join(after)


def _taints(taints: tuple[Taint, ...]) -> str:
    return "[" + ", ".join(f"{taint.key}={taint.value}:{taint.effect}" for taint in taints) + "]"


def _told(condition: Condition | None) -> str:
    return f"{condition.type}={condition.status} {condition.reason}" if condition else "none"
