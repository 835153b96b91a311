"""The state of a Node and a plan's changes as items for scripts, and the changes as a unified diff for people.

Bodies of changes are made by the functions that make the requests: what is shown is what would be sent.
"""

import difflib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from gpuwatch.cli.console.text import Text
from gpuwatch.cli.console.words import utc
from gpuwatch.cli.look.items import Item
from gpuwatch.config import Mode
from gpuwatch.kube.objects import CONDITION, DOMAIN, Condition, NodeObject, Taint
from gpuwatch.model.finding import Scope
from gpuwatch.remediation.model import (
    Blocked,
    CreateEvent,
    DeleteRule,
    Evict,
    Fault,
    FreeSlot,
    NodeStage,
    Ownership,
    PatchNode,
    Plan,
    SetCondition,
    SetRebootSentinel,
    Step,
    TakeSlot,
    WriteRule,
    after,
)
from gpuwatch.remediation.planning.ownership import (
    ClaimState,
    acknowledged,
    opted_out,
    other_controller,
    read_claim,
    recorded_faults,
)
from gpuwatch.remediation.planning.policy import Policy
from gpuwatch.remediation.planning.slots import Slots, held_slots, slot_limit, slot_number
from gpuwatch.remediation.service.node_writer import condition_patch, node_patch

OUT_OF_USE = (NodeStage.QUARANTINED, NodeStage.DRAINING, NodeStage.DRAINED, NodeStage.RECOVERING)

EXIT_CODES = {NodeStage.HEALTHY: 0, NodeStage.SUSPECT: 3, NodeStage.RECOVERING: 3, NodeStage.UNKNOWN: 1}
"""Every other stage: 4, the node is out of use."""


class SlotBudgetItem(Item, frozen=True, kw_only=True):
    """The fleet's budget. `slots` null: not known."""

    slots: int | None
    used: int
    nodes: int | None


class NodeItem(Item, frozen=True, kw_only=True):
    """One Node. `mode`: of the remediator that runs on this machine, null: none does. `overruled`: faults that count
    again only when they happen after this time. `scope`: gpu where only the GPUs of `faults` are out of use;
    `scope_reason`: why it is the node.
    """

    node: str
    stage: NodeStage
    mode: Mode | None
    message: str
    claim: ClaimState
    taint: Taint | None
    condition: Condition | None
    unschedulable: bool
    owner: Ownership | None
    faults: tuple[Fault, ...]
    overruled: dict[str, datetime]
    opt_out: bool
    other: str | None
    slot: str | None
    budget: SlotBudgetItem | None
    blocked: tuple[Blocked, ...]
    release_at: datetime | None
    pods: tuple[str, ...]
    scope: Scope
    scope_reason: str


def node_item(node: NodeObject, policy: Policy, plan: Plan | None, slots: Slots | None, mode: Mode | None) -> NodeItem:
    """Join the Node, the plan that would be made now (None: no agent), the budget (None: unreadable) and the running
    remediator's mode (None: none runs here).
    """
    state = read_claim(node)
    mine = held_slots(slots, node.name)
    budget = None
    if slots is not None and slots.leases is not None:
        used = sum(1 for lease in slots.leases if lease.holder and slot_number(lease.name) is not None)
        budget = SlotBudgetItem(slots=slot_limit(policy.config.budget, slots.nodes), used=used, nodes=slots.nodes)
    cordoned = state.owner is not None and state.owner.cordoned
    return NodeItem(
        node=node.name,
        stage=stage_now(node, plan),
        mode=mode,
        message=plan.message if plan else "",
        claim=state.claim,
        taint=node.taint,
        condition=node.condition,
        unschedulable=node.unschedulable,
        owner=state.owner,
        faults=plan.faults if plan and plan.faults else recorded_faults(node),
        overruled={key: utc(at) for key, at in acknowledged(node).items()},
        opt_out=opted_out(node),
        other=other_controller(node, cordoned=cordoned, more=policy.config.foreign),
        slot=mine[0].name if mine else None,
        budget=budget,
        blocked=plan.blocked if plan else (),
        release_at=utc(plan.release_at) if plan and plan.release_at is not None else None,
        pods=plan.pods if plan else (),
        scope=state.owner.scope if state.owner else "node",
        scope_reason=plan.scope_reason if plan else "",
    )


def stage_now(node: NodeObject, plan: Plan | None) -> NodeStage:
    """The stage before the plan's steps (a plan names the one after them); without a plan, by the Node's own marks."""
    state = read_claim(node)
    if plan is not None:
        in_use = state.claim is not ClaimState.APPLIED
        return NodeStage.SUSPECT if in_use and plan.stage in OUT_OF_USE else plan.stage
    if state.claim is ClaimState.APPLIED and state.owner is not None:
        return NodeStage.QUARANTINED if state.owner.draining is None else NodeStage.DRAINING
    known = {"True": NodeStage.HEALTHY, "False": NodeStage.SUSPECT}
    return known.get(node.condition.status, NodeStage.UNKNOWN) if node.condition else NodeStage.UNKNOWN


class ChangeItem(Item, frozen=True, kw_only=True):
    """One step. `body` is what would be sent, null where it depends on what is found then (slots)."""

    do: str
    target: str
    step: str | None
    message: str
    body: dict[str, Any] | None = None


def changes(node: NodeObject, steps: Iterable[Step], also: Sequence[str] = ()) -> list[ChangeItem]:
    """Every step in order; each patch is made from the Node as the earlier steps leave it."""
    items = []
    for step in steps:
        items.append(_change(node, step, also))
        node = after(node, (step,))
    return items


def diff(node: NodeObject, steps: Sequence[Step]) -> list[Text]:
    """Unified diff of the Node's YAML: taints, gpuwatch's or changed labels and annotations, cordon, condition."""
    then = after(node, steps)
    touched = {key for step in steps if isinstance(step, PatchNode) for key in (*step.annotations, *step.labels)}
    before, later = (_yaml(each, touched).splitlines() for each in (node, then))
    lines = difflib.unified_diff(before, later, f"node/{node.name} now", f"node/{node.name} then", lineterm="")
    return [Text(line, _STYLES.get(line[:1], ""), no_wrap=True) for line in lines]


_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def _change(node: NodeObject, step: Step, also: Sequence[str]) -> ChangeItem:
    """Target, words and body of one step."""
    target, body = f"node/{node.name}", None
    match step:
        case PatchNode():
            words, body = _patch_words(node, step), node_patch(node, step, also)
        case SetCondition(condition=wanted):
            words = f"set {CONDITION}={wanted.status}" if wanted else f"take {CONDITION} away"
            body = condition_patch(node, wanted)
        case TakeSlot():
            target, words = f"lease/{step.name}", f"take or renew this one of {step.slots} slots of the budget"
        case FreeSlot():
            target, words = f"lease/{step.name}", "release the slot"
        case Evict(pod=pod):
            target, words = f"pod/{pod.path}", "ask it to leave (Eviction API; disruption budgets are respected)"
        case WriteRule(rule=rule):
            target = f"devicetaintrule/{rule.name}"
            words = f"taint the device {rule.pool}/{rule.device}: {rule.value}:{rule.effect}"
        case DeleteRule(name=name):
            target, words = f"devicetaintrule/{name}", "remove the rule, so that pods get the device again"
        case SetRebootSentinel(wanted=wanted):
            target = f"file/{step.sentinel}"
            words = (
                "notify the tool that reboots nodes"
                if wanted
                else "take back the notice to the tool that reboots nodes"
            )
        case CreateEvent(pod=about):
            target = f"pod/{about[0]}/{about[1]}" if about else target
            words = f"Event {step.reason}: {step.message}"
    kind = step.step if isinstance(step, PatchNode) else None
    return ChangeItem(do=_KINDS[type(step)], target=target, step=kind, message=words, body=body)


_KINDS: dict[type[Step], str] = {
    PatchNode: "patch_node",
    SetCondition: "set_condition",
    TakeSlot: "take_slot",
    FreeSlot: "free_slot",
    Evict: "evict",
    SetRebootSentinel: "hand_over",
    CreateEvent: "announce",
    WriteRule: "write_rule",
    DeleteRule: "delete_rule",
}

_WORDS = {
    "claim": "write down on the Node what is about to be done",
    "taint": "take the Node out of use",
    "confine": "take only the sick GPUs out of use: the device plugin gives them to no pod",
    "refresh": "bring the annotations up to date",
    "untaint": "release the Node: gpuwatch's labels and annotations are removed",
    "forget": "remove gpuwatch's annotations",
    "label": "label the Node for schedulers",
}


def _patch_words(node: NodeObject, step: PatchNode) -> str:
    """What one patch does, with the taints that come and go and the cordon."""
    words = [_WORDS.get(step.step, "change the Node")]
    then = node.taints if step.taints is None else step.taints
    held, wanted = set(node.taints), set(then)  # sets: a Node may have tens of thousands of taints
    words += [f"taint {_taint_text(taint)} added" for taint in then if taint not in held]
    words += [f"taint {_taint_text(taint)} removed" for taint in node.taints if taint not in wanted]
    if step.unschedulable is not None:
        words.append("cordoned" if step.unschedulable else "uncordoned")
    return "; ".join(words)


def _taint_text(taint: Taint) -> str:
    return f"{taint.key}{taint.value and f'={taint.value}'}:{taint.effect}"


def _yaml(node: NodeObject, touched: set[str]) -> str:
    import yaml

    def ours(values: dict[str, str]) -> dict[str, str]:
        return {key: values[key] for key in sorted(values) if key.startswith(f"{DOMAIN}/") or key in touched}

    taints = [
        {"key": taint.key, **({"value": taint.value} if taint.value else {}), "effect": taint.effect}
        for taint in node.taints
    ]
    conditions = [
        {name: str(getattr(each, name)) for name in ("type", "status", "reason", "message")}
        for each in node.conditions
        if each.type == CONDITION
    ]
    document = {
        "metadata": {"name": node.name, "annotations": ours(node.annotations), "labels": ours(node.labels)},
        "spec": {"taints": taints, "unschedulable": node.unschedulable},
        "status": {"conditions": conditions},
    }
    return yaml.safe_dump(document, sort_keys=False, width=2**20, allow_unicode=True)
