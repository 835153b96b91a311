"""What is to be done about this node's GPUs now: a pure function of what is seen, of the live Node and of the policy.

Every step may be the last thing that ever happens, and the next plan, made from the Node as it then is, is right. Hence
the order: a claim before a slot, a slot before the taint, and what belongs together in one PATCH; when giving back, the
taint first and the slot last. The rules by subject are beside this file.
"""

from msgspec.structs import replace

from gpuwatch.kube.objects import NodeObject
from gpuwatch.model.finding import Health, Response
from gpuwatch.remediation.model import (
    ACKNOWLEDGED,
    Blocked,
    BlockReason,
    CreateEvent,
    Fault,
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
from gpuwatch.remediation.planning.draining import EvictionHistory
from gpuwatch.remediation.planning.evidence import Observation, identity_mismatch, in_force, is_clean
from gpuwatch.remediation.planning.inputs import PlanDraft, PlanInputs, blocked
from gpuwatch.remediation.planning.labels import publication
from gpuwatch.remediation.planning.node_events import (
    MAX_POD_EVENTS,
    ConditionReason,
    condition_update,
    node_event,
    not_yet_created,
    pod_events,
    with_created,
)
from gpuwatch.remediation.planning.ownership import ClaimState, acknowledged, encode, read_claim, recorded_faults
from gpuwatch.remediation.planning.quarantine import begin
from gpuwatch.remediation.planning.recovery import accept_override, keep_quarantine, remove_sentinel
from gpuwatch.remediation.planning.slots import Slots

__all__ = ["EvictionHistory", "Observation", "PlanInputs", "Slots", "is_clean", "plan", "remember"]

UNKNOWN_AFTER = 60.0
"""Seconds without a fresh View after which the condition says so: an agent that restarts is quicker."""

STEADY_SECONDS = 60.0
"""For so long nothing may be wrong before a condition that was False is True again: a fault that comes and goes on a
node that may not be tainted must not become a stream of Events. Never longer than `recovery_hold`.
"""

MONITOR = "monitoring_degraded"

LOOK_AGAIN = 60.0
"""Seconds after which the Node is looked at anew when nothing happens: others may have changed it."""

SOON = 1.0


def plan(inputs: PlanInputs) -> Plan:
    """What to do now, in order; where `slots` or `pods` cannot be read, what to do without them."""
    node, memory = inputs.node, inputs.memory
    unseen = _unseen(inputs)
    if unseen is not None:
        return Plan(
            node=node.name,
            at=inputs.now,
            stage=NodeStage.UNKNOWN,
            blocked=(unseen,),
            look_again=LOOK_AGAIN,
            message=unseen.message,
        )
    inputs = replace(inputs, memory=memory if memory.node_uid in (None, node.uid) else _of_the_machine(memory))
    return _finished(inputs, _with_acknowledgements(inputs, _draft(inputs)))


def remember(
    memory: RemediatorMemory, node: NodeObject, done: Plan, now: float, window: float = 30 * 86400.0
) -> RemediatorMemory:
    """What to remember after the steps in `done` were carried out (leave out those that were not) on `node`, as it was
    before them. Nothing is kept of another Node of the same name. Times of quarantines go after `window` seconds.
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
            case PatchNode(step="taint"):  # counted at once: it may be gone before the next look
                for fault in done.faults:
                    times.setdefault(fault.key, set()).add(done.at)
    quarantined = {key: tuple(sorted(t for t in at if abs(now - t) < window)) for key, at in times.items()}
    return replace(
        memory,
        boot_id=node.host.boot_id,
        acknowledged=_overruled_after(memory, node, done),
        quarantined={key: at for key, at in quarantined.items() if at},
        announced=with_created(done, memory.announced, now),
        slot=slot,
        sentinel=sentinel,
    )


def _of_the_machine(memory: RemediatorMemory) -> RemediatorMemory:
    """What stays when its Node was created anew: a slot is held by the name, and a file lies where it lay."""
    return RemediatorMemory(slot=memory.slot, sentinel=memory.sentinel)


def _overruled_after(memory: RemediatorMemory, node: NodeObject, done: Plan) -> dict[str, float]:
    """What people have overruled: as a step has just written it, else by the Node's word and by memory."""
    for step in done.steps:
        if isinstance(step, PatchNode) and ACKNOWLEDGED in step.annotations:
            return acknowledged(replace(node, annotations={ACKNOWLEDGED: step.annotations[ACKNOWLEDGED] or "{}"}))
    both = (acknowledged(node), memory.acknowledged)
    return {key: max(acks.get(key, 0.0) for acks in both) for acks in both for key in acks}


def _unseen(inputs: PlanInputs) -> Blocked | None:
    """Why nothing can be planned for this Node."""
    if inputs.policy.config.mode == "off":
        return blocked(BlockReason.MODE, "remediation.mode is off")
    if inputs.observation.view is None:
        return blocked(BlockReason.STALE, "the agent has sent no View yet; is `gpuwatch agent` running?")
    return identity_mismatch(inputs.node, inputs.view)


def _draft(inputs: PlanInputs) -> PlanDraft:
    match inputs.claim:
        case ClaimState.APPLIED:
            return keep_quarantine(inputs)
        case ClaimState.OVERRULED:
            return accept_override(inputs)
        case _:
            draft = begin(inputs)
            return draft.replace(after=(*draft.after, *remove_sentinel(inputs)))


def _with_acknowledgements(inputs: PlanInputs, draft: PlanDraft) -> PlanDraft:
    """Forget what people have overruled once its finding has been gone for the whole hold."""
    if draft.quarantined or draft.steps or inputs.observation.clean_for < inputs.policy.config.recovery_hold:
        return draft
    if inputs.claim not in (ClaimState.NONE, ClaimState.FOREIGN) or not is_clean(
        inputs.observation, inputs.node, inputs.policy
    ):
        return draft
    there = {finding.key for finding in inputs.view.judgement.findings}
    before = inputs.overruled
    left = {key: at for key, at in before.items() if key in there}
    if left == before:
        return draft
    text = encode(left) if left else None
    return draft.replace(steps=(PatchNode(step="refresh", annotations={ACKNOWLEDGED: text}),))


def _finished(inputs: PlanInputs, draft: PlanDraft) -> Plan:
    """The draft with its condition and Events. Events come first: the condition is the record that they were told."""
    events, condition = _condition(inputs, draft)
    pods = (
        not_yet_created(pod_events(inputs.view, inputs.policy), inputs.memory)[:MAX_POD_EVENTS]
        if inputs.is_fresh
        else ()
    )
    steps: tuple[Step, ...] = (*draft.steps, *events, *condition, *draft.after, *pods)
    label = publication(inputs, draft)
    if label is not None and not any(isinstance(step, PatchNode | SetCondition) for step in steps):
        steps, label = (*steps, label), None  # last, for what comes after a patch that is refused is not done
    obstacles = draft.blocked
    if steps and inputs.policy.config.mode == "observe":
        message = "mode is observe: nothing is written; set remediation.mode to enforce to act"
        obstacles = (blocked(BlockReason.MODE, message), *obstacles)
    return Plan(
        node=inputs.node.name,
        at=inputs.now,
        stage=draft.stage,
        faults=draft.faults,
        steps=steps,
        blocked=obstacles,
        release_at=draft.release_at,
        look_again=_look_again(inputs, draft, labels_wait=label is not None),
        pods=draft.pods,
        message=draft.message,
        wants=tuple(sorted(draft.wants)),
    )


def _look_again(inputs: PlanInputs, draft: PlanDraft, *, labels_wait: bool) -> float:
    if draft.wants:
        return 0.0
    if draft.steps or draft.after or (labels_wait and inputs.policy.config.mode == "enforce"):
        return SOON
    is_well = not draft.quarantined and inputs.is_fresh and not in_force(inputs.view, inputs.policy, Response.CONDITION)
    soon = _unsteady(inputs) if is_well else 0.0
    return min(LOOK_AGAIN, draft.look_again if draft.look_again is not None else LOOK_AGAIN, soon or LOOK_AGAIN)


def _condition(inputs: PlanInputs, draft: PlanDraft) -> tuple[tuple[CreateEvent, ...], tuple[SetCondition, ...]]:
    """The condition that goes with the draft, if it has to be written, and the Event that goes with its change."""
    why, text = _verdict(inputs, draft)
    if why is None:
        return (), ()
    heartbeat = inputs.policy.config.heartbeat * (2 if draft.quarantined else 1)  # the slot's renewal is a write, too
    condition = condition_update(inputs.node, why, "; ".join((text, *_remarks(inputs))), inputs.now, heartbeat)
    if condition is None:
        return (), ()
    old = inputs.node.condition
    news = (
        (old.status, old.reason) != (condition.status, condition.reason) if old else why is not ConditionReason.HEALTHY
    )
    mention = (
        news
        and why is not ConditionReason.UNKNOWN
        and not (why is ConditionReason.HEALTHY and old and old.status != "False")
    )
    event = node_event(inputs.node, why, text, draft.faults, draft.owner if draft.quarantined else None)
    events = not_yet_created(iter((event,)), inputs.memory) if mention else ()
    return events, (SetCondition(condition=condition),)


DRAIN_STUCK = frozenset({BlockReason.DEADLINE})
BARS = frozenset(
    {
        BlockReason.BUDGET,
        BlockReason.BUDGET_UNREADABLE,
        BlockReason.FOREIGN,
        BlockReason.OPT_OUT,
        BlockReason.MAINTENANCE,
        BlockReason.RATE,
    }
)
"""Reasons for which a node that should be tainted is not."""


def _verdict(inputs: PlanInputs, draft: PlanDraft) -> tuple[ConditionReason | None, str]:
    """What the condition should say. None: leave it as it is."""
    if draft.quarantined:
        stuck = tuple(obstacle.message for obstacle in draft.blocked if obstacle.reason in DRAIN_STUCK)
        return (ConditionReason.BLOCKED, stuck[0]) if stuck else (ConditionReason.QUARANTINED, _told(draft))
    if not inputs.is_fresh:
        late = inputs.observation.age >= UNKNOWN_AFTER
        return (ConditionReason.UNKNOWN, "no fresh view of the GPUs") if late else (None, "")
    found = in_force(inputs.view, inputs.policy, Response.CONDITION)
    bars = tuple(obstacle.message for obstacle in draft.blocked if obstacle.reason in BARS)
    if inputs.reasons().wanted and bars:
        return ConditionReason.BLOCKED, "; ".join((_listed(found), *bars))
    return (ConditionReason.DEGRADED, _listed(found)) if found else _well(inputs)


def _remarks(inputs: PlanInputs) -> tuple[str, ...]:
    """What the monitor lacks: said beside the verdict, for a person who looks at the Node sees no log."""
    findings = inputs.view.judgement.findings if inputs.is_fresh else ()
    return (*(f"{f.check}: {f.message}" for f in findings if f.check == MONITOR), *inputs.observation.remarks)


def _well(inputs: PlanInputs) -> tuple[ConditionReason | None, str]:
    """Nothing is wrong: well, unless that is not certain, or too new."""
    if not inputs.view.snapshot.gpus:
        return ConditionReason.UNKNOWN, "no GPU can be read"
    if Health.UNKNOWN in inputs.view.judgement.gpus.values():
        return ConditionReason.UNKNOWN, "not every GPU can be read"
    if _unsteady(inputs):
        return None, ""
    return ConditionReason.HEALTHY, f"{len(inputs.view.snapshot.gpus)} GPUs are well"


def _unsteady(inputs: PlanInputs) -> float:
    """Seconds until a condition that is False may be True again, if nothing is wrong; 0: it may."""
    before, steady = inputs.node.condition, min(STEADY_SECONDS, inputs.policy.config.recovery_hold)
    return max(0.0, steady - inputs.observation.clean_for) if before and before.status == "False" else 0.0


def _told(draft: PlanDraft) -> str:
    return _listed(draft.faults) if draft.faults else "quarantined by a person"


def _listed(found: tuple[Fault, ...]) -> str:
    return "; ".join(f"{f.place}: {f.message}" for f in found)
