"""The next steps for this node's GPUs: a pure function of the View, the live Node, the policy and what is remembered.

Any step may be the last one before a crash, and the plan made from the Node as it then is must be right. Hence the
order: a claim before a slot, a slot before the taint, and what belongs together in one PATCH; in a release the taint
first and the slot last. The rules by subject are beside this file.
"""

from msgspec.structs import replace

from gpuwatch.kube.objects import NodeObject
from gpuwatch.model.finding import Response
from gpuwatch.remediation.model import (
    ACKNOWLEDGED,
    Blocked,
    BlockReason,
    FreeSlot,
    NodeStage,
    PatchNode,
    Plan,
    RemediatorMemory,
    SetCondition,
    SetRebootSentinel,
    Step,
    TakeSlot,
)
from gpuwatch.remediation.planning.device_plugin import restart_plugin
from gpuwatch.remediation.planning.draining import EvictionHistory
from gpuwatch.remediation.planning.evidence import Observation, identity_mismatch, in_force, is_clean
from gpuwatch.remediation.planning.inputs import PlanDraft, PlanInputs, blocked, latest_of
from gpuwatch.remediation.planning.labels import publication
from gpuwatch.remediation.planning.node_events import (
    MAX_POD_EVENTS,
    case_events,
    condition_steps,
    not_yet_created,
    pod_events,
    seconds_until_healthy,
    with_created,
)
from gpuwatch.remediation.planning.ownership import ClaimState, acknowledged, encode, read_claim, recorded_faults
from gpuwatch.remediation.planning.quarantine import begin
from gpuwatch.remediation.planning.recovery import accept_override, keep_quarantine, remove_sentinel
from gpuwatch.remediation.planning.scope import open_faults, why_node
from gpuwatch.remediation.planning.slots import Slots

__all__ = ["EvictionHistory", "Observation", "PlanInputs", "Slots", "is_clean", "plan", "remember"]

CYCLE_SECONDS = 60.0
"""Seconds after which the Node is read again when nothing happens: other writers may have changed it."""

SOON = 1.0


def plan(inputs: PlanInputs) -> Plan:
    """The steps to do now, in order; where slots or pods cannot be read, the steps that are right without them."""
    node, memory = inputs.node, inputs.memory
    obstacle: Blocked | None
    if inputs.policy.config.mode == "off":
        obstacle = blocked(BlockReason.MODE, "remediation.mode is off")
    elif inputs.observation.view is None:
        obstacle = blocked(BlockReason.STALE, "the agent has sent no View yet; is `gpuwatch agent` running?")
    else:
        obstacle = identity_mismatch(node, inputs.view)
    if obstacle is not None:
        return Plan(
            node=node.name,
            at=inputs.now,
            stage=NodeStage.UNKNOWN,
            blocked=(obstacle,),
            next_cycle=CYCLE_SECONDS,
            message=obstacle.message,
        )
    inputs = replace(inputs, memory=memory if memory.node_uid in (None, node.uid) else _of_the_machine(memory))
    match inputs.claim:
        case ClaimState.APPLIED:
            draft = keep_quarantine(inputs)
        case ClaimState.OVERRULED:
            draft = accept_override(inputs)
        case _:
            draft = begin(inputs)
            draft = restart_plugin(inputs, draft.replace(after=(*draft.after, *remove_sentinel(inputs))))
    if draft.needs & inputs.unread:
        return Plan(
            node=node.name, at=inputs.now, stage=draft.stage, message=draft.message, needs=tuple(sorted(draft.needs))
        )
    return _finished(inputs, _with_acknowledgements(inputs, draft))


def remember(
    memory: RemediatorMemory, node: NodeObject, done: Plan, now: float, window: float = 30 * 86400.0
) -> RemediatorMemory:
    """The memory after the steps in `done` were carried out (leave out those that were not) on `node`, as it was before
    them. Nothing is kept of another Node of the same name. Times of quarantines expire after `window` seconds.
    """
    if memory.node_uid != node.uid:
        memory = replace(_of_the_machine(memory), node_uid=node.uid)
    state = read_claim(node)
    times = {key: set(at) for key, at in memory.quarantined.items()}
    slot, sentinel = memory.slot, memory.sentinel
    if state.claim is ClaimState.APPLIED and state.owner is not None:
        slot = state.owner.slot or slot
        for fault in recorded_faults(node):
            times.setdefault(fault.key, set()).add(state.owner.since)
    for step in done.steps:
        match step:
            case TakeSlot():
                slot = step.name
            case FreeSlot():
                slot = None
            case SetRebootSentinel():
                sentinel = step.sentinel if step.wanted else None
            case PatchNode(step="taint"):  # counted at once: the taint may be gone before the next cycle
                for fault in done.faults:
                    times.setdefault(fault.key, set()).add(done.at)
    quarantined = {key: tuple(sorted(t for t in at if abs(now - t) < window)) for key, at in times.items()}
    return replace(
        memory,
        boot_id=node.host.boot_id,
        acknowledged=_acknowledged_after(memory, node, done),
        quarantined={key: at for key, at in quarantined.items() if at},
        announced=with_created(done, memory.announced, now),
        slot=slot,
        sentinel=sentinel,
    )


def _acknowledged_after(memory: RemediatorMemory, node: NodeObject, done: Plan) -> dict[str, float]:
    """What people have overruled: as a step of `done` wrote it, else by the Node and by memory."""
    for step in done.steps:
        if isinstance(step, PatchNode) and ACKNOWLEDGED in step.annotations:
            return acknowledged(replace(node, annotations={ACKNOWLEDGED: step.annotations[ACKNOWLEDGED] or "{}"}))
    return latest_of(acknowledged(node), memory.acknowledged)


def _of_the_machine(memory: RemediatorMemory) -> RemediatorMemory:
    """What stays valid for a Node that was created again: the Node's name holds the slot, the machine has the file."""
    return RemediatorMemory(slot=memory.slot, sentinel=memory.sentinel)


def _with_acknowledgements(inputs: PlanInputs, draft: PlanDraft) -> PlanDraft:
    """Drop a person's acknowledgement whose finding is gone, once the node has been clean for the whole hold."""
    if draft.quarantined or draft.steps or inputs.observation.clean_for < inputs.policy.config.recovery_hold:
        return draft
    if inputs.claim not in (ClaimState.NONE, ClaimState.FOREIGN):
        return draft
    present = {finding.key for finding in inputs.view.judgement.findings}
    left = {key: at for key, at in inputs.overruled.items() if key in present}
    if left == inputs.overruled or not is_clean(inputs.observation, inputs.node, inputs.policy):
        return draft
    return draft.replace(steps=(PatchNode(step="refresh", annotations={ACKNOWLEDGED: encode(left) if left else None}),))


def _scope_reason(inputs: PlanInputs, draft: PlanDraft) -> str:
    owner = draft.owner
    if not draft.quarantined or owner is None or owner.scope == "gpu" or not inputs.is_fresh:
        return ""
    if owner.by == "operator":
        return "a person took the node out"
    if owner.distrusted:
        return "a sick GPU was given to pods though the kubelet did not list it, or a fault of the node came"
    return why_node(inputs, open_faults(inputs, draft.faults)) if draft.faults else ""


def _finished(inputs: PlanInputs, draft: PlanDraft) -> Plan:
    """The draft with condition, Events and labels, and when the next cycle is due."""
    mode, label = inputs.policy.config.mode, publication(inputs, draft)
    reports = (*case_events(inputs), *pod_events(inputs.view, inputs.policy)) if inputs.is_fresh else ()
    pods = not_yet_created(reports, inputs.memory)
    steps: tuple[Step, ...] = (*draft.steps, *condition_steps(inputs, draft), *draft.after, *pods[:MAX_POD_EVENTS])
    if label is not None and not any(isinstance(step, PatchNode | SetCondition) for step in steps):
        steps, label = (*steps, label), None  # last: the steps after a refused patch are not done
    obstacles = draft.blocked
    if steps and mode == "observe":
        message = "mode is observe: nothing is written; set remediation.mode to enforce to act"
        obstacles = (blocked(BlockReason.MODE, message), *obstacles)
    if draft.needs:
        next_cycle = 0.0
    elif draft.steps or draft.after or (label is not None and mode == "enforce"):
        next_cycle = SOON
    else:
        next_cycle = min(CYCLE_SECONDS, CYCLE_SECONDS if draft.next_cycle is None else draft.next_cycle)
        is_healthy = inputs.is_fresh and not in_force(inputs.view, inputs.policy, Response.CONDITION)
        if is_healthy and not draft.quarantined:
            next_cycle = min(next_cycle, seconds_until_healthy(inputs) or CYCLE_SECONDS)
    return Plan(
        node=inputs.node.name,
        at=inputs.now,
        stage=draft.stage,
        scope=draft.owner.scope if draft.owner and draft.quarantined else "node",
        scope_reason=_scope_reason(inputs, draft),
        faults=draft.faults,
        steps=steps,
        blocked=obstacles,
        release_at=draft.release_at,
        next_cycle=next_cycle,
        pods=draft.pods,
        message=draft.message,
        needs=tuple(sorted(draft.needs)),
    )
