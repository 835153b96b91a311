"""A node that is quarantined: keep it so, drain it, release it; or accept that a person has undone the quarantine."""

from msgspec.structs import replace

from gpuwatch.model.finding import Remedy, Response
from gpuwatch.model.text import shell_word
from gpuwatch.remediation.model import (
    ACKNOWLEDGED,
    FAULTS,
    OWNER,
    QUARANTINED,
    BlockReason,
    DeleteRule,
    Fault,
    FreeSlot,
    NodeStage,
    Ownership,
    PatchNode,
    SetRebootSentinel,
    Step,
    TakeSlot,
    WriteRule,
)
from gpuwatch.remediation.planning.draining import drain
from gpuwatch.remediation.planning.evidence import in_force, merge_faults, missing_evidence, unvalidated
from gpuwatch.remediation.planning.inputs import CONFINED, Need, PlanDraft, PlanInputs, blocked
from gpuwatch.remediation.planning.node_events import eviction_event, not_yet_created
from gpuwatch.remediation.planning.ownership import (
    MAX_FAULTS,
    encode,
    foreign_taints,
    opted_out,
    other_controller,
    recorded_faults,
)
from gpuwatch.remediation.planning.quarantine import confine, labels, new_is_barred, stale, taint, why_held
from gpuwatch.remediation.planning.scope import (
    REBOOTS,
    device_rules,
    open_faults,
    over_gpu_budget,
    why_node,
    why_widened,
)
from gpuwatch.remediation.planning.slots import choose, held_slots, renewal

REPAIR_TIMEOUT = 3600.0
"""Seconds after the beginning of the drain for which a repairer may delay the reboot."""

REPAIRER_SILENT = 1800.0
"""A repairer that has not reported for so many seconds is gone: the longest reset takes less."""

REPAIR_SECONDS = 60.0


def keep_quarantine(inputs: PlanInputs) -> PlanDraft:
    """For a node that we have quarantined: our taint is there, or a claim of scope `gpu`."""
    owner, began = owned(inputs), recorded_faults(inputs.node)
    if owner.cordoned and not inputs.node.unschedulable:  # a person has removed it: that decision stands
        owner = replace(owner, cordoned=False, lifted=True)
    if owner.by == "operator":
        message = "quarantined by a person; `gpuwatch node release` releases it"
        draft = PlanDraft(stage=NodeStage.QUARANTINED, message=message, faults=began, owner=owner)
        if any(fault.response.reaches(Response.DRAIN) for fault in began):
            draft = _draining(inputs, draft, owner, began)
        return _kept(inputs, draft.replace(blocked=(blocked(BlockReason.HELD, message), *draft.blocked)))
    if opted_out(inputs.node):
        return release(inputs, "the node opted out")
    if not inputs.is_fresh:
        old = stale(inputs)
        draft = PlanDraft(stage=NodeStage.QUARANTINED, message=old.message, faults=began, owner=owner, blocked=(old,))
        return _kept(inputs, draft)
    missing = missing_evidence(inputs.observation, inputs.node, inputs.policy)
    if missing and owner.scope == "gpu" and owner.rules:
        if inputs.devices is None:
            message, wanted = "the DeviceTaintRules have not been read", frozenset[Need]({"devices"})
            return _kept(inputs, PlanDraft(stage=NodeStage.QUARANTINED, message=message, faults=began, needs=wanted))
        present = {rule.name for rule in inputs.devices.rules if rule.owner == owner.id}
        if inputs.devices.version and not present.issuperset(owner.rules):
            return accept_override(inputs)
    return _sick(inputs, owner, began, missing) if missing else _well(inputs, owner, began)


def accept_override(inputs: PlanInputs) -> PlanDraft:
    """A person has removed or changed our taint, or removed our rules: none is set again for these faults."""
    owner, began = owned(inputs), recorded_faults(inputs.node)
    found = in_force(inputs.view, inputs.policy, Response.TAINT)
    latest = {fault.key: fault.last for fault in found}
    meant = (*began, *found) if len(began) >= MAX_FAULTS else began
    acks = inputs.overruled | {fault.key: max(fault.last, latest.get(fault.key, 0.0)) for fault in meant}
    message = "a person removed the taint: not set again for these faults"
    undone = _undo(inputs, owner)
    annotations = {**undone.annotations, ACKNOWLEDGED: encode(acks)}
    return PlanDraft(
        stage=NodeStage.SUSPECT,
        message=message,
        faults=began,
        steps=(
            *remove_sentinel(inputs),
            *_delete_rules(inputs, owner),
            replace(undone, step="forget", taints=None, annotations=annotations),
        ),
        after=inputs.free_slots(),
        blocked=(blocked(BlockReason.ACKNOWLEDGED, message),),
    )


def release(inputs: PlanInputs, why: str) -> PlanDraft:
    """Remove exactly what is ours: the file while the Node still records it, the slot last."""
    owner = owned(inputs)
    return PlanDraft(
        stage=NodeStage.HEALTHY,
        message=f"{why}: released",
        owner=owner,
        steps=(*remove_sentinel(inputs), *_delete_rules(inputs, owner), _undo(inputs, owner)),
        after=inputs.free_slots(),
        needs=frozenset({"slots"}) if inputs.slots is None else frozenset(),
    )


def owned(inputs: PlanInputs) -> Ownership:
    """Our annotation, where there must be one."""
    if inputs.owner is None:
        raise ValueError("this node is not ours")
    return inputs.owner


def remove_sentinel(inputs: PlanInputs) -> tuple[Step, ...]:
    """Remove the file that we made, at the path that memory has, else at that of the settings."""
    recorded = inputs.owner is not None and inputs.owner.handover is not None
    sentinel = inputs.memory.sentinel or (inputs.policy.config.handover.sentinel if recorded else "")
    return (SetRebootSentinel(sentinel=sentinel, wanted=False),) if sentinel else ()


def _delete_rules(inputs: PlanInputs, owner: Ownership) -> tuple[DeleteRule, ...]:
    """Steps that delete the rules that the Node records, and those whose annotation names this quarantine."""
    found = (rule.name for rule in (inputs.devices.rules if inputs.devices else ()) if rule.owner == owner.id)
    return tuple(DeleteRule(name=name, owner=owner.id) for name in sorted({*owner.rules, *found}))


def _undo(inputs: PlanInputs, owner: Ownership) -> PatchNode:
    """One PATCH that removes all that is ours. What a person has changed since belongs to the person and stays."""
    annotations: dict[str, str | None] = {OWNER: None, FAULTS: None}
    if owner.handover:
        annotations[owner.handover] = None
    return PatchNode(
        step="untaint",
        annotations=annotations,
        labels={key: None for key, value in labels(owner).items() if inputs.node.labels.get(key) == value},
        taints=foreign_taints(inputs.node, owner),
        unschedulable=False if owner.cordoned and inputs.node.unschedulable else None,
    )


def _well(inputs: PlanInputs, owner: Ownership, began: tuple[Fault, ...]) -> PlanDraft:
    """Nothing is wrong any more: wait for the hold, then release."""
    config, clean = inputs.policy.config, inputs.observation.clean_for
    lasted = max(clean, inputs.now - owner.since)  # a clock that was set back must not hold a node for ever
    left = max(config.recovery_hold - clean, config.min_quarantine - lasted)
    others = other_controller(inputs.node, cordoned=True, more=config.foreign) if owner.cordoned else None
    obstacle = None
    if owner.held is not None:
        message = f"well again, but {owner.held}: `gpuwatch node release {shell_word(inputs.node.name)}` releases it"
        obstacle = blocked(BlockReason.HELD, message)
    elif left <= 0 and others is not None:
        message = f"well again, but {others}; the node keeps its cordon until that is over"
        obstacle = blocked(BlockReason.FOREIGN, message)
    elif left <= 0 and (lacking := unvalidated(inputs.view, began, inputs.policy)):
        message = f"well again, but {'; '.join(lacking)}; run `gpuwatch node validate` on the node once it is idle"
        obstacle = blocked(BlockReason.VALIDATION, message)
    elif left <= 0:
        return release(inputs, f"well for {clean:.0f} s{_not_allocatable(inputs, began)}")
    else:
        message = f"well again; released in {left:.0f} s if it stays so"
    draft = PlanDraft(stage=NodeStage.RECOVERING, message=message, faults=began, owner=owner)
    if obstacle is not None:
        return _kept(inputs, draft.replace(blocked=(obstacle,)))
    return _kept(inputs, draft.replace(release_at=inputs.now + left, next_cycle=left))


def _not_allocatable(inputs: PlanInputs, began: tuple[Fault, ...]) -> str:
    """Of the GPUs that had a fault, those that the device plugin still withholds from pods, as a clause."""
    found = {each.gpu for each in inputs.view.judgement.findings if each.check == "gpu_not_allocatable" and each.gpu}
    places = ", ".join(dict.fromkeys(str(fault.index) for fault in began if fault.gpu in found))
    return f", GPU {places} not allocatable until the device plugin is restarted" if places else ""


def _sick(inputs: PlanInputs, owner: Ownership, began: tuple[Fault, ...], missing: tuple[str, ...]) -> PlanDraft:
    """Still sick: keep the node out of service, and do what the policy asks for beyond the taint."""
    now = merge_faults(began, inputs.taint_reasons().wanted)
    owner = replace(owner, held=owner.held or why_held(inputs, now))
    asked = tuple(replace(f, response=inputs.policy.answer(f.check, f.xid)) for f in now)
    barred = new_is_barred(inputs, cordoned=owner.cordoned)
    cordon = owner.scope == "node" and any(fault.response.reaches(Response.CORDON) for fault in asked)
    if cordon and not barred and not owner.lifted and not inputs.node.unschedulable:
        owner = replace(owner, cordoned=True)
    draft = PlanDraft(stage=NodeStage.QUARANTINED, message="; ".join(missing), faults=now, owner=owner)
    there = {fault.key for fault in in_force(inputs.view, inputs.policy, Response.DRAIN)}
    leaving = tuple(fault for fault in asked if fault.key in there)  # a GPU that has recovered keeps its work
    if leaving:
        draft = draft.replace(blocked=barred) if barred else _draining(inputs, draft, owner, leaving)
    return _kept(inputs, draft if barred else _rescoped(inputs, draft))


def _rescoped(inputs: PlanInputs, draft: PlanDraft) -> PlanDraft:
    """Another scope, where the platform has begun or ceased to keep new work from the sick GPUs."""
    owner, still = draft.owner or owned(inputs), open_faults(inputs, draft.faults)
    why = draft.misplaced_pod or (why_widened if owner.scope == "gpu" else why_node)(inputs, still)
    if owner.scope == "gpu" and why:
        cordons = any(fault.response.reaches(Response.CORDON) for fault in still) and not inputs.node.unschedulable
        marks = () if QUARANTINED in inputs.node.labels else (QUARANTINED,)
        wide = replace(owner, scope="node", distrusted=True, cordoned=cordons and not owner.lifted, labels=marks)
        return draft.replace(owner=wide, message=f"{draft.message}; the whole node: {why}")
    if owner.scope == "gpu" and owner.rules:  # a further GPU, or an instance that is new
        rules = [rule for rule in device_rules(inputs, still, owner.id) if rule.name not in owner.rules]
        if rules and (message := over_gpu_budget(inputs, still)):
            return draft.replace(blocked=(*draft.blocked, blocked(BlockReason.BUDGET, message)))
        owner = replace(owner, rules=(*owner.rules, *(rule.name for rule in rules)))
        return draft.replace(owner=owner, steps=(*draft.steps, *(WriteRule(rule=rule) for rule in rules)))
    if owner.scope == "node" and still and not (why or owner.distrusted or owner.handover is not None):
        narrow = replace(owner, scope="gpu", cordoned=False, labels=())
        return draft.replace(owner=narrow, message=f"{draft.message}; {CONFINED}")
    return draft


def _draining(inputs: PlanInputs, draft: PlanDraft, owner: Ownership, asked: tuple[Fault, ...]) -> PlanDraft:
    """Evict pods; once they are gone, ask the tool that reboots nodes."""
    if inputs.pods is None:
        unread = (blocked(BlockReason.API, "the pods of this node have not been read"),)
        return draft.replace(stage=NodeStage.DRAINING, blocked=unread, needs=frozenset({"pods"}))
    config = inputs.policy.config.drain
    result = drain(inputs.view, asked, inputs.pods, config, inputs.evictions, inputs.now, owner.draining)
    if result.late:
        draft = draft.replace(misplaced_pod=f"{result.late[0].path} was started on a GPU that no pod should be given")
    if result.is_done:
        return _request_reboot(inputs, draft.replace(stage=NodeStage.DRAINED, blocked=result.blocked), owner, asked)
    names = tuple(pod.path for pod in result.waiting)
    draft = draft.replace(stage=NodeStage.DRAINING, pods=names, blocked=result.blocked, next_cycle=config.retry)
    if not inputs.policy.may_drain(inputs.now):
        wait = blocked(BlockReason.MAINTENANCE, "pods are evicted in the windows of remediation.drain.windows only")
        return draft.replace(blocked=(wait, *result.blocked), next_cycle=None)
    if result.steps and owner.draining is None:
        draft = draft.replace(owner=replace(owner, draining=inputs.now))
    events = not_yet_created((eviction_event(step.pod, asked, owner) for step in result.steps), inputs.memory)
    return draft.replace(after=(*events, *result.steps))


def _request_reboot(inputs: PlanInputs, draft: PlanDraft, owner: Ownership, asked: tuple[Fault, ...]) -> PlanDraft:
    config = inputs.policy.config.handover
    remedy = next((f.remedy for f in asked if f.response.reaches(Response.DRAIN) and f.remedy in REBOOTS), None)
    wanted = bool(config.annotation or config.sentinel)
    if not wanted or remedy is None or owner.handover is not None or owner.held is not None:
        return draft
    if remedy is Remedy.RESET_GPU and _is_repairing(inputs, owner, asked):
        message = "the repairer resets the GPU first; the hand-over for a reboot waits for it"
        return draft.replace(blocked=(*draft.blocked, blocked(BlockReason.REPAIR, message)), next_cycle=REPAIR_SECONDS)
    free = config.annotation not in inputs.node.annotations
    return draft.replace(
        owner=replace(owner, handover=config.annotation if free else ""),
        steps=(SetRebootSentinel(sentinel=config.sentinel),) if config.sentinel else (),
        annotations={config.annotation: remedy} if config.annotation and free else {},
    )


def _is_repairing(inputs: PlanInputs, owner: Ownership, asked: tuple[Fault, ...]) -> bool:
    """Whether a repairer in mode `enforce` reports, and has not given up on any of the GPUs."""
    repairer, since = inputs.view.repairer, owner.draining or owner.since
    if repairer is None or repairer.mode != "enforce" or inputs.now - since > REPAIR_TIMEOUT:
        return False
    given_up = {each.gpu for each in repairer.gpus if each.state == "given_up"}
    return abs(inputs.now - repairer.at) < REPAIRER_SILENT and not given_up & {fault.gpu for fault in asked}


def _kept(inputs: PlanInputs, draft: PlanDraft) -> PlanDraft:
    """The draft with what keeps our marks up to date: the slot renewed, the annotations as they should be."""
    slot, spare = _slot(inputs)
    node, before = inputs.node, owned(inputs)
    owner = draft.owner or before
    if slot is not None and slot.name:
        owner = replace(owner, slot=slot.name)
    marks: dict[str, str | None] = {}
    if owner.scope == "node" and QUARANTINED not in (*owner.labels, *node.labels):
        # An older gpuwatch began this quarantine: its labels are for schedulers now and are written again.
        marks = {QUARANTINED: "true"} | {key: None for key in owner.labels if key in node.labels}
        owner = replace(owner, labels=(QUARANTINED,))
    annotations: dict[str, str | None] = dict(draft.annotations)
    if owner != before:
        annotations[OWNER] = encode(owner)
    if draft.faults != recorded_faults(node):
        annotations[FAULTS] = encode(draft.faults)
    cordon = True if owner.cordoned and not before.cordoned else None
    patch = PatchNode(step="refresh", annotations=annotations, labels=marks, unschedulable=cordon)
    if owner.scope != before.scope:
        patch = (confine if owner.scope == "gpu" else taint)(inputs, owner, draft.faults)
    steps: tuple[Step, ...] = (slot,) if slot is not None else ()
    return draft.replace(
        owner=owner,
        quarantined=True,
        steps=(*steps, *draft.steps, *((patch,) if annotations or cordon else ())),
        after=(*draft.after, *spare),
        needs=draft.needs if inputs.slots else draft.needs | {"slots"},
    )


def _slot(inputs: PlanInputs) -> tuple[TakeSlot | None, tuple[FreeSlot, ...]]:
    """Keep one slot, free the others. Without any, take a free one, if any: the taint counts either way."""
    if inputs.slots is None or inputs.slots.leases is None:
        return None, ()
    budget, name = inputs.policy.config.budget, inputs.node.name
    if mine := held_slots(inputs.slots, name):
        return renewal(budget, inputs.slots, name, inputs.now), tuple(FreeSlot(name=lease.name) for lease in mine[1:])
    if owned(inputs).by == "operator":  # a person needs no slot
        return None, ()
    slot = choose(budget, inputs.slots, name, inputs.jitter)
    return (slot if isinstance(slot, TakeSlot) else None), ()
