"""What is to be done about this node's GPUs now: a pure function of what is seen, of the live Node and of the policy.

Every step may be the last thing that ever happens, and the next plan, made from the Node as it then is, is right. Hence
the order: a claim before a slot, a slot before the taint, and what belongs together in one PATCH; when giving back, the
taint first and the slot last. The rules by subject are beside this file.
"""

from msgspec.structs import replace

from gpuwatch.kube.objects import NodeObject, PodObject
from gpuwatch.model.finding import Health
from gpuwatch.model.response import Response
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
from gpuwatch.remediation.planning.policy import Policy
from gpuwatch.remediation.planning.quarantine import begin
from gpuwatch.remediation.planning.recovery import accept_override, keep_quarantine, remove_sentinel
from gpuwatch.remediation.planning.slots import Slots

__all__ = ["EvictionHistory", "Observation", "Slots", "is_clean", "plan", "remember"]

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


def plan(
    *,
    sight: Observation,
    node: NodeObject,
    policy: Policy,
    memory: RemediatorMemory,
    slots: Slots | None,
    pods: tuple[PodObject, ...] | None,
    now: float,
    jitter: float,
    evictions: EvictionHistory,
) -> Plan:
    """What to do now, in order. `slots` and `pods` None: not read; a plan that says so in `wants` is to
    be made again with them. Where they cannot be read, it is the plan to carry out.

    `now` is unix time; `jitter`, 0..1 and another each time, keeps nodes from doing the same at once.
    """
    unseen = _unseen(sight, node, policy)
    if sight.view is None or unseen is not None:
        return Plan(
            node=node.name,
            at=now,
            stage=NodeStage.UNKNOWN,
            blocked=(unseen,) if unseen else (),
            look_again=LOOK_AGAIN,
            words=unseen.words if unseen else "",
        )
    case = PlanInputs(
        view=sight.view,
        sight=sight,
        node=node,
        policy=policy,
        memory=memory if memory.node_uid in (None, node.uid) else _of_the_machine(memory),
        slots=slots,
        pods=pods,
        now=now,
        jitter=jitter,
        evictions=evictions,
    )
    draft = _draft(case)
    return _finished(case, _with_acknowledgements(case, draft))


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


def _unseen(sight: Observation, node: NodeObject, policy: Policy) -> Blocked | None:
    """Why nothing at all can be said about this Node."""
    if policy.config.mode == "off":
        return blocked(BlockReason.MODE, "remediation.mode is off")
    if sight.view is None:
        return blocked(BlockReason.STALE, "nothing has been heard from the agent yet; is `gpuwatch agent` running?")
    return identity_mismatch(node, sight.view)


def _draft(case: PlanInputs) -> PlanDraft:
    match case.claim:
        case ClaimState.APPLIED:
            return keep_quarantine(case)
        case ClaimState.OVERRULED:
            return accept_override(case)
        case _:
            draft = begin(case)
            return draft.but(after=(*draft.after, *remove_sentinel(case)))


def _with_acknowledgements(case: PlanInputs, draft: PlanDraft) -> PlanDraft:
    """Forget what people have overruled once its finding has been gone for the whole hold."""
    if draft.quarantined or draft.steps or case.sight.clean_for < case.policy.config.recovery_hold:
        return draft
    if case.claim not in (ClaimState.NONE, ClaimState.FOREIGN) or not is_clean(case.sight, case.node, case.policy):
        return draft
    there = {finding.key for finding in case.view.judgement.findings}
    before = case.overruled
    left = {key: at for key, at in before.items() if key in there}
    if left == before:
        return draft
    text = encode(left) if left else None
    return draft.but(steps=(PatchNode(step="refresh", annotations={ACKNOWLEDGED: text}),))


def _finished(case: PlanInputs, draft: PlanDraft) -> Plan:
    """The draft with its condition and Events. Events come first: the condition is the record that they were told."""
    events, condition = _condition(case, draft)
    pods = not_yet_created(pod_events(case.view, case.policy), case.memory)[:MAX_POD_EVENTS] if case.is_fresh else ()
    steps: tuple[Step, ...] = (*draft.steps, *events, *condition, *draft.after, *pods)
    label = publication(case, draft)
    if label is not None and not any(isinstance(step, PatchNode | SetCondition) for step in steps):
        steps, label = (*steps, label), None  # last, for what comes after a patch that is refused is not done
    obstacles = draft.blocked
    if steps and case.policy.config.mode == "observe":
        words = "mode is observe: nothing is written; set remediation.mode to enforce to act"
        obstacles = (blocked(BlockReason.MODE, words), *obstacles)
    return Plan(
        node=case.node.name,
        at=case.now,
        stage=draft.stage,
        faults=draft.faults,
        steps=steps,
        blocked=obstacles,
        release_at=draft.release_at,
        look_again=_look_again(case, draft, labels_wait=label is not None),
        pods=draft.pods,
        words=draft.words,
        wants=tuple(sorted(draft.wants)),
    )


def _look_again(case: PlanInputs, draft: PlanDraft, *, labels_wait: bool) -> float:
    if draft.wants:
        return 0.0
    if draft.steps or draft.after or (labels_wait and case.policy.config.mode == "enforce"):
        return SOON
    is_well = not draft.quarantined and case.is_fresh and not in_force(case.view, case.policy, Response.CONDITION)
    soon = _unsteady(case) if is_well else 0.0
    return min(LOOK_AGAIN, draft.look_again if draft.look_again is not None else LOOK_AGAIN, soon or LOOK_AGAIN)


def _condition(case: PlanInputs, draft: PlanDraft) -> tuple[tuple[CreateEvent, ...], tuple[SetCondition, ...]]:
    """The condition that goes with the draft, if it has to be written, and the Event that goes with its change."""
    why, text = _verdict(case, draft)
    if why is None:
        return (), ()
    heartbeat = case.policy.config.heartbeat * (2 if draft.quarantined else 1)  # the slot's renewal is a write, too
    condition = condition_update(case.node, why, "; ".join((text, *_remarks(case))), case.now, heartbeat)
    if condition is None:
        return (), ()
    old = case.node.condition
    news = (
        (old.status, old.reason) != (condition.status, condition.reason) if old else why is not ConditionReason.HEALTHY
    )
    mention = (
        news
        and why is not ConditionReason.UNKNOWN
        and not (why is ConditionReason.HEALTHY and old and old.status != "False")
    )
    event = node_event(case.node, why, text, draft.faults, draft.owner if draft.quarantined else None)
    events = not_yet_created(iter((event,)), case.memory) if mention else ()
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


def _verdict(case: PlanInputs, draft: PlanDraft) -> tuple[ConditionReason | None, str]:
    """What the condition should say. None: leave it as it is."""
    if draft.quarantined:
        stuck = tuple(obstacle.words for obstacle in draft.blocked if obstacle.reason in DRAIN_STUCK)
        return (ConditionReason.BLOCKED, stuck[0]) if stuck else (ConditionReason.QUARANTINED, _told(draft))
    if not case.is_fresh:
        return (ConditionReason.UNKNOWN, "no fresh view of the GPUs") if case.sight.age >= UNKNOWN_AFTER else (None, "")
    found = in_force(case.view, case.policy, Response.CONDITION)
    bars = tuple(obstacle.words for obstacle in draft.blocked if obstacle.reason in BARS)
    if case.reasons().wanted and bars:
        return ConditionReason.BLOCKED, "; ".join((_listed(found), *bars))
    return (ConditionReason.DEGRADED, _listed(found)) if found else _well(case)


def _remarks(case: PlanInputs) -> tuple[str, ...]:
    """What the monitor lacks: said beside the verdict, for a person who looks at the Node sees no log."""
    findings = case.view.judgement.findings if case.is_fresh else ()
    return (*(f"{f.check}: {f.message}" for f in findings if f.check == MONITOR), *case.sight.remarks)


def _well(case: PlanInputs) -> tuple[ConditionReason | None, str]:
    """Nothing is wrong: well, unless that is not certain, or too new."""
    if not case.view.snapshot.gpus:
        return ConditionReason.UNKNOWN, "no GPU can be read"
    if Health.UNKNOWN in case.view.judgement.gpus.values():
        return ConditionReason.UNKNOWN, "not every GPU can be read"
    if _unsteady(case):
        return None, ""
    return ConditionReason.HEALTHY, f"{len(case.view.snapshot.gpus)} GPUs are well"


def _unsteady(case: PlanInputs) -> float:
    """Seconds until a condition that is False may be True again, if nothing is wrong; 0: it may."""
    before, steady = case.node.condition, min(STEADY_SECONDS, case.policy.config.recovery_hold)
    return max(0.0, steady - case.sight.clean_for) if before and before.status == "False" else 0.0


def _told(draft: PlanDraft) -> str:
    return _listed(draft.faults) if draft.faults else "quarantined by a person"


def _listed(found: tuple[Fault, ...]) -> str:
    return "; ".join(f"{f.place}: {f.message}" for f in found)
