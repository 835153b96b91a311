"""Taking a node out of service: why, what prevents it, and the steps in their order."""

from msgspec.structs import replace

from gpuwatch.kube.objects import TAINT, Taint
from gpuwatch.model.clock import rfc3339
from gpuwatch.model.finding import UNCONFIRMED_CHECKS, Response
from gpuwatch.model.text import shell_word
from gpuwatch.remediation.model import (
    FAULTS,
    OWNER,
    QUARANTINED,
    Blocked,
    BlockReason,
    DeleteRule,
    Fault,
    NodeStage,
    Ownership,
    PatchNode,
    Step,
    WriteRule,
)
from gpuwatch.remediation.planning.evidence import fault_age, in_force, merge_faults
from gpuwatch.remediation.planning.inputs import CONFINED, Need, PlanDraft, PlanInputs, blocked, digest
from gpuwatch.remediation.planning.node_events import DAY
from gpuwatch.remediation.planning.ownership import ClaimState, encode, foreign_taints, opted_out, other_controller
from gpuwatch.remediation.planning.policy import window_text
from gpuwatch.remediation.planning.scope import device_rules, over_gpu_budget, waits_for_plugin, why_node, why_widened
from gpuwatch.remediation.planning.slots import NoSlot, choose

CLAIM_SECONDS = 600.0
"""A claim this old is written again: other nodes count a node whose claim is under 30 minutes old as tainted."""

BUDGET_SECONDS = 60.0
"""Average seconds after which a node that waits for a slot looks for one again."""


def begin(inputs: PlanInputs) -> PlanDraft:
    """For a node in service: begin a quarantine, or leave it in service."""
    reasons = inputs.taint_reasons()
    unknown = unknown_marks(inputs)
    if not inputs.is_fresh:
        old = stale(inputs)
        return PlanDraft(stage=NodeStage.UNKNOWN, message=old.message, blocked=(*unknown, old))
    waiting = [
        blocked(BlockReason.ACKNOWLEDGED, f"{fault.key} was overruled by a person; a new occurrence counts again")
        for fault in reasons.overruled
    ]
    for fault in reasons.young:
        left = inputs.policy.config.fault_hold - fault_age(fault, inputs.view.snapshot)
        waiting.append(blocked(BlockReason.HOLD, f"{fault.key} is acted on if it lasts another {left:.0f} s"))
    for finding in inputs.view.judgement.findings:
        if finding.check in UNCONFIRMED_CHECKS:
            message = f"{finding.key} is not acted on: the driver has not confirmed what the kernel log reports"
            waiting.append(blocked(BlockReason.UNCONFIRMED, message))
    if not reasons.wanted:
        return _leave(inputs, (*unknown, *waiting), in_force(inputs.view, inputs.policy, Response.CONDITION))
    faults = merge_faults((), reasons.wanted)
    barriers = [*unknown, *new_is_barred(inputs, cordoned=False)]
    all_times = (at for times in inputs.memory.quarantined.values() for at in times)
    times = {at for at in all_times if abs(inputs.now - at) < DAY}
    if len(times) >= inputs.policy.config.max_quarantines_per_day:
        message = f"quarantined {len(times)} times within a day already; a person should look"
        barriers.append(blocked(BlockReason.RATE, message))
    if not barriers and (wait := waits_for_plugin(inputs, faults)):
        barriers.append(blocked(BlockReason.HOLD, wait))
    if barriers:
        return _leave(inputs, (*barriers, *waiting), faults)
    return _quarantine(inputs, faults, tuple(waiting))


def _quarantine(inputs: PlanInputs, faults: tuple[Fault, ...], waiting: tuple[Blocked, ...]) -> PlanDraft:
    """Claim, slot and taint, if the budget has a slot."""
    if inputs.slots is None:
        unread = (blocked(BlockReason.BUDGET_UNREADABLE, "the Leases of the budget have not been read: no new taint"),)
        return PlanDraft(
            stage=NodeStage.SUSPECT, message=sentence(faults), faults=faults, blocked=unread, needs=frozenset({"slots"})
        )
    slot = choose(inputs.policy.config.budget, inputs.slots, inputs.node.name, inputs.jitter)
    if isinstance(slot, NoSlot):
        reason = BlockReason.BUDGET_UNREADABLE if slot.unreadable else BlockReason.BUDGET
        draft = _leave(inputs, (blocked(reason, slot.message), *waiting), faults)
        kept = slot.unreadable  # then a slot that we may hold stays, and its claim
        return draft.replace(steps=() if kept else draft.steps, next_cycle=BUDGET_SECONDS * (0.5 + inputs.jitter))
    owner = applied(inputs, faults, slot.name)
    if owner.scope == "gpu" and (message := over_gpu_budget(inputs, faults)):
        return _leave(inputs, (blocked(BlockReason.BUDGET, message), *waiting), faults)
    steps: list[Step] = []
    cut_off = inputs.owner
    if cut_off is None or cut_off.rules != owner.rules or not 0 <= inputs.now - cut_off.since < CLAIM_SECONDS:
        claim = replace(owner, state="claimed", slot=None, cordoned=False, labels=())
        steps.append(PatchNode(step="claim", annotations={OWNER: encode(claim), FAULTS: encode(faults)}))
    steps.append(slot)
    is_confined = owner.scope == "gpu"
    rules = device_rules(inputs, faults, owner.id) if is_confined else ()
    steps += [WriteRule(rule=rule) for rule in rules]
    steps.append(confine(inputs, owner, faults) if is_confined else taint(inputs, owner, faults))
    # by its ResourceSlices, which were not read
    could_spare_node = inputs.devices is None and not why_widened(inputs, faults) and bool(why_node(inputs, faults))
    return PlanDraft(
        stage=NodeStage.QUARANTINED,
        message=f"{sentence(faults)}; {CONFINED if is_confined else 'no new work for this node'}",
        faults=faults,
        owner=owner,
        quarantined=True,
        steps=tuple(steps),
        blocked=waiting,
        needs=frozenset({"devices"}) if could_spare_node else frozenset(),
    )


def taint(inputs: PlanInputs, owner: Ownership, faults: tuple[Fault, ...]) -> PatchNode:
    """One patch with our taint and the marks that go with it."""
    added = rfc3339(inputs.now) if owner.effect == "NoExecute" else None
    return PatchNode(
        step="taint",
        annotations={OWNER: encode(owner), FAULTS: encode(faults)},
        labels={**labels(owner)},
        taints=(*inputs.node.taints, Taint(key=TAINT, value=owner.value, effect=owner.effect, time_added=added)),
        unschedulable=True if owner.cordoned and not inputs.node.unschedulable else None,
    )


def confine(inputs: PlanInputs, owner: Ownership, faults: tuple[Fault, ...]) -> PatchNode:
    """One patch with the claim alone, of scope `gpu`; it removes a taint, labels and a cordon of ours."""
    before, node = inputs.owner, inputs.node
    tainted = before is not None and inputs.claim is ClaimState.APPLIED
    return PatchNode(
        step="confine",
        annotations={OWNER: encode(owner), FAULTS: encode(faults)},
        labels={key: None for key in (before.labels if before and tainted else ()) if key in node.labels},
        taints=foreign_taints(node, before) if before and tainted else None,
        unschedulable=False if before and before.cordoned and node.unschedulable else None,
    )


def applied(inputs: PlanInputs, faults: tuple[Fault, ...], slot: str | None) -> Ownership:
    """The Node's annotation as it will be once the taint is there."""
    cut_off = inputs.owner if inputs.claim is ClaimState.CLAIMED else None
    is_confined = not why_node(inputs, faults)
    cordons = not is_confined and any(fault.response.reaches(Response.CORDON) for fault in faults)
    key = digest(inputs.node.uid, *(f"{fault.key}@{fault.last}" for fault in faults))
    name = cut_off.id if cut_off else key.removeprefix("gpuwatch-")
    return Ownership(
        id=name,
        rules=tuple(rule.name for rule in device_rules(inputs, faults, name)) if is_confined else (),
        state="applied",
        since=inputs.now,
        node_uid=inputs.node.uid,
        boot_id=inputs.view.snapshot.host.boot_id,
        slot=slot,
        value=faults[0].check,
        effect=inputs.policy.config.effect,
        cordoned=cordons and not inputs.node.unschedulable,
        labels=() if is_confined or QUARANTINED in inputs.node.labels else (QUARANTINED,),
        scope="gpu" if is_confined else "node",
        gpus=len(inputs.view.snapshot.statuses),
        held=why_held(inputs, faults),
    )


def labels(owner: Ownership) -> dict[str, str]:
    """Our labels of a quarantined node and their values: by them the budget finds nodes that have no slot."""
    return dict.fromkeys(owner.labels, "true")


def why_held(inputs: PlanInputs, faults: tuple[Fault, ...]) -> str | None:
    """Why only a person may release the node, if so: a check in `held_checks`, or a fault that recurred too often."""
    config = inputs.policy.config
    current = inputs.owner.since if inputs.claim is ClaimState.APPLIED and inputs.owner else None
    for fault in faults:
        if fault.check in config.held_checks:
            return f"{fault.check} is not cured by a reset or a reboot"
        times = [at for at in inputs.memory.quarantined.get(fault.key, ()) if at != current]
        recent = [at for at in times if abs(inputs.now - at) < config.repeat_window]
        if len(recent) + 1 >= config.repeats:
            return f"{fault.check} came back {len(recent)} times in {config.repeat_window / DAY:g} days"
    return None


def sentence(faults: tuple[Fault, ...]) -> str:
    """The worst fault, and how many more there are."""
    first = faults[0]
    more = f" and {len(faults) - 1} more" if len(faults) > 1 else ""
    return f"{first.place}: {first.message}{more}"


def new_is_barred(inputs: PlanInputs, *, cordoned: bool) -> tuple[Blocked, ...]:
    """What prevents any new action on this node: an opt-out, another controller, a maintenance window."""
    found: list[Blocked] = []
    config = inputs.policy.config
    if opted_out(inputs.node):
        found.append(
            blocked(BlockReason.OPT_OUT, "gpuwatch.io/opt-out is set on the node; take it off to have it watched")
        )
    if (who := other_controller(inputs.node, cordoned=cordoned, more=config.foreign)) is not None:
        found.append(blocked(BlockReason.FOREIGN, f"{who}; gpuwatch steps back"))
    if (window := inputs.policy.maintenance(inputs.now)) is not None:
        found.append(blocked(BlockReason.MAINTENANCE, f"maintenance {window_text(window)}: nothing new is begun"))
    return tuple(found)


def unknown_marks(inputs: PlanInputs) -> tuple[Blocked, ...]:
    """Marks with our names that are not ours."""
    message = ""
    if inputs.claim is ClaimState.FOREIGN:
        message = f"the node has a taint {TAINT} that gpuwatch did not set; remove it by hand when it is done"
    if inputs.claim is ClaimState.UNREADABLE:
        message = (
            f"the annotation {OWNER} cannot be read or is of another node; if nothing is wrong, take it off: "
            f"kubectl annotate node {shell_word(inputs.node.name)} {OWNER}-"
        )
    return (blocked(BlockReason.FOREIGN, message),) if message else ()


def stale(inputs: PlanInputs) -> Blocked:
    """The obstacle of a View that is too old."""
    age = inputs.observation.age
    return blocked(BlockReason.STALE, f"the last view is {age:.0f} s old: nothing is added or removed")


def _leave(inputs: PlanInputs, obstacles: tuple[Blocked, ...], faults: tuple[Fault, ...]) -> PlanDraft:
    """Add nothing, and undo what was only begun."""
    is_lost = inputs.owner is None and inputs.node.taint is not None  # perhaps ours: other nodes have to count it
    steps: tuple[Step, ...] = () if is_lost else inputs.free_slots()
    needs: frozenset[Need] = frozenset()
    if inputs.owner is not None:  # its claim goes last: a slot that the Node does not record would never be freed
        rules = (DeleteRule(name=name, owner=inputs.owner.id) for name in inputs.owner.rules)
        steps = (*rules, *steps, PatchNode(step="forget", annotations={OWNER: None, FAULTS: None}))
        needs = frozenset({"slots"}) if inputs.slots is None else needs
    message = sentence(faults) if faults else "no fault"
    young = any(obstacle.reason is BlockReason.HOLD for obstacle in obstacles)
    return PlanDraft(
        stage=NodeStage.SUSPECT if faults else NodeStage.HEALTHY,
        message="; ".join((message, *(obstacle.message for obstacle in obstacles))),
        faults=faults,
        steps=steps,
        blocked=obstacles,
        next_cycle=1.0 if young else None,
        needs=needs,
    )
