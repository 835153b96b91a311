"""What a person requests: a quarantine that only a person ends, and the end of one, also of the remediator's.

The steps and their order are the remediator's own, so that the same executor does them and the remediator's next cycle
can continue after a crash. A release needs the Node alone: no agent, no store, no memory.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from gpuwatch.kube.objects import TAINT, LeaseObject, NodeObject, Taint
from gpuwatch.model.clock import rfc3339
from gpuwatch.model.finding import Effect, Response
from gpuwatch.model.snapshot import Record
from gpuwatch.model.text import shell_word
from gpuwatch.remediation.model import (
    ACKNOWLEDGED,
    FAULTS,
    LABELS,
    OWNER,
    QUARANTINED,
    Blocked,
    BlockReason,
    CreateEvent,
    DeleteRule,
    Fault,
    FreeSlot,
    NodeStage,
    Ownership,
    PatchNode,
    Plan,
    SetCondition,
    Step,
    TakeSlot,
)
from gpuwatch.remediation.planning.inputs import digest
from gpuwatch.remediation.planning.labels import published_by_us
from gpuwatch.remediation.planning.node_events import ConditionReason, condition_update, node_event
from gpuwatch.remediation.planning.ownership import (
    MAX_MESSAGE,
    ClaimState,
    acknowledged,
    encode,
    foreign_taints,
    read_claim,
    recorded_faults,
)

CHECK = "operator"
"""The value in the taint and the annotation in place of a check's name."""

CHANGED = (ClaimState.APPLIED, ClaimState.OVERRULED, ClaimState.CLAIMED)


class QuarantineRequest(Record, frozen=True, kw_only=True):
    """A person's request at unix time `at`; `reason` is the person's message."""

    at: float
    reason: str
    effect: Effect = "NoSchedule"
    cordon: bool = False
    drain: bool = False

    @property
    def fault(self) -> Fault:
        """The request as the annotation keeps it."""
        response = Response.DRAIN if self.drain else Response.CORDON if self.cordon else Response.TAINT
        text = self.reason[:MAX_MESSAGE]
        return Fault(key=f"{CHECK}/node", check=CHECK, response=response, since=self.at, last=self.at, message=text)


def quarantine(node: NodeObject, request: QuarantineRequest, slot: TakeSlot | None) -> Plan:
    """Take the node out of service until a person releases it; with `drain`, its pods are evicted afterwards.

    `slot` None: the plan takes no slot of the budget.
    """
    state, stage = read_claim(node), NodeStage.DRAINING if request.drain else NodeStage.QUARANTINED
    if state.claim is ClaimState.FOREIGN or (state.claim is ClaimState.UNREADABLE and node.taint):
        return _plan(node, request, NodeStage.SUSPECT, (), (not_ours(node),))
    if state.claim is ClaimState.APPLIED and state.owner is not None and state.owner.scope == "node":
        return _plan(node, request, stage, (_kept(node, request, state.owner),), found=recorded_faults(node))
    owner = _owner(node, request, slot)
    cordons = request.cordon and not node.unschedulable
    applied = replace(owner, state="applied", cordoned=cordons, draining=request.at if request.drain else None)
    taint = Taint(key=TAINT, value=CHECK, effect=request.effect, time_added=rfc3339(request.at))
    text = f"a person took this node out of use: {request.reason}"
    condition = condition_update(node, ConditionReason.QUARANTINED, text, request.at, 0)
    steps: list[Step | None] = [
        PatchNode(step="claim", annotations={OWNER: encode(owner), FAULTS: encode((request.fault,))}),
        slot,
        PatchNode(
            step="taint",
            annotations={OWNER: encode(applied)},
            labels=dict.fromkeys(owner.labels, "true"),
            taints=(*(each for each in node.taints if each.key != TAINT), taint),
            unschedulable=True if cordons else None,
        ),
        SetCondition(condition=condition) if condition else None,
        node_event(node, ConditionReason.QUARANTINED, text, (request.fault,), owner),
    ]
    return _plan(node, request, stage, steps, found=(request.fault,))


def release(
    node: NodeObject,
    request: QuarantineRequest,
    leases: Iterable[LeaseObject],
    present: Iterable[Fault] = (),
    *,
    forget: bool = False,
) -> Plan:
    """Remove all that is ours on the Node. `leases`: slots it holds; `present`: faults that are there now.

    The faults of the quarantine and the present ones lead to no other quarantine until they occur again; with `forget`
    that is not recorded, as at an uninstall.
    """
    state = read_claim(node)
    overruled: dict[str, float] = {}
    if not forget:
        overruled = acknowledged(node)
        for fault in (*recorded_faults(node), *present):
            if fault.check != CHECK:
                overruled[fault.key] = max(fault.last, overruled.get(fault.key, 0.0))
    steps: list[Step | None] = []
    if state.owner is not None:
        steps += [DeleteRule(name=name, owner=state.owner.id) for name in state.owner.rules]
    steps.append(_releasing(node, encode(overruled) if overruled else None, forget=forget))
    if node.condition is not None:
        steps.append(SetCondition(condition=None))
    if state.claim in CHANGED and state.owner is not None:
        message = f"an operator released this node: {request.reason}"
        name = digest("released", node.uid, state.owner.id)
        steps.append(CreateEvent(name=name, reason=ConditionReason.RECOVERED, message=message, warning=False))
    steps += [FreeSlot(name=lease.name) for lease in leases]
    foreign = node.taint is not None and state.claim in (ClaimState.FOREIGN, ClaimState.UNREADABLE)
    return _plan(node, request, NodeStage.HEALTHY, steps, (not_ours(node),) if foreign else ())


def withdraw(node: NodeObject, at: float, leases: Iterable[LeaseObject]) -> Plan:
    """Undo a person's quarantine that was begun but not completed: a claim without a taint, and its slot."""
    owner = read_claim(node).owner
    request = QuarantineRequest(at=at, reason="it could not be done")
    if read_claim(node).claim is not ClaimState.CLAIMED or owner is None or owner.by != "operator":
        return _plan(node, request, NodeStage.SUSPECT, ())
    claim = PatchNode(step="forget", annotations=dict.fromkeys((OWNER, FAULTS)))
    return _plan(node, request, NodeStage.HEALTHY, [claim, *(FreeSlot(name=lease.name) for lease in leases)])


def not_ours(node: NodeObject) -> Blocked:
    """The obstacle of a taint with our key that no annotation shows to be ours."""
    taint = node.taint or Taint(key=TAINT)
    message = (
        f"the taint {TAINT}={taint.value}:{taint.effect} has no owner annotation of this Node, so gpuwatch leaves it; "
        f"to remove it: kubectl taint node {shell_word(node.name)} {shell_word(f'{TAINT}:{taint.effect}-')}"
    )
    return Blocked(reason=BlockReason.FOREIGN, message=message)


def _owner(node: NodeObject, request: QuarantineRequest, slot: TakeSlot | None) -> Ownership:
    return Ownership(
        id=digest("by hand", node.uid, request.at),
        state="claimed",
        since=request.at,
        node_uid=node.uid,
        boot_id=node.host.boot_id,
        slot=slot.name if slot else None,
        value=CHECK,
        effect=request.effect,
        labels=() if QUARANTINED in node.labels else (QUARANTINED,),
        by="operator",
        held=request.reason[:MAX_MESSAGE],
    )


def _kept(node: NodeObject, request: QuarantineRequest, owner: Ownership) -> PatchNode:
    """For a node that is quarantined already: from now on only a person ends it."""
    cordons = request.cordon and not node.unschedulable
    held = replace(
        owner,
        by="operator",
        held=request.reason[:MAX_MESSAGE],
        cordoned=owner.cordoned or cordons,
        draining=owner.draining or (request.at if request.drain else None),
    )
    return PatchNode(step="refresh", annotations={OWNER: encode(held)}, unschedulable=True if cordons else None)


def _releasing(node: NodeObject, overruled: str | None, *, forget: bool) -> PatchNode | None:
    """One patch that removes all that is ours on the Node and nothing else; None when there is nothing. `forget`: also
    the labels for schedulers, which describe the GPUs and not the quarantine.
    """
    owner = read_claim(node).owner
    gone = (OWNER, FAULTS, *((owner.handover,) if owner and owner.handover else ()))
    annotations: dict[str, str | None] = {key: None for key in gone if key in node.annotations}
    if node.annotations.get(ACKNOWLEDGED) != overruled:
        annotations[ACKNOWLEDGED] = overruled
    labels: dict[str, str | None] = {key: None for key in (owner.labels if owner else ()) if key in node.labels}
    if forget:
        labels |= published_by_us(node)
        annotations |= {key: None for key in (LABELS,) if key in node.annotations}
    taints = foreign_taints(node, owner) if owner else node.taints
    uncordon = owner is not None and owner.cordoned and node.unschedulable
    if not (annotations or labels or taints != node.taints or uncordon):
        return None
    return PatchNode(
        step="untaint",
        annotations=annotations,
        labels=labels,
        taints=None if taints == node.taints else taints,
        unschedulable=False if uncordon else None,
    )


def _plan(
    node: NodeObject,
    request: QuarantineRequest,
    stage: NodeStage,
    steps: Sequence[Step | None],
    blocked: tuple[Blocked, ...] = (),
    found: tuple[Fault, ...] = (),
) -> Plan:
    wanted = tuple(step for step in steps if step is not None)
    return Plan(
        node=node.name, at=request.at, stage=stage, steps=wanted, blocked=blocked, faults=found, message=request.reason
    )
