"""What gpuwatch holds on a Node and why, as an item for scripts."""

from datetime import datetime

from gpuwatch.cli.console.words import utc
from gpuwatch.cli.look.items import Item
from gpuwatch.kube.objects import Condition, NodeObject, Taint
from gpuwatch.remediation.model.plan import Blocked, Fault, Ownership, Plan, Stage
from gpuwatch.remediation.planning.other_controllers import foreign, opted_out
from gpuwatch.remediation.planning.ownership import Claim, acknowledged, faults, hold
from gpuwatch.remediation.planning.policy import Policy
from gpuwatch.remediation.planning.slots import Slots, held, limit, number

OUT_OF_USE = (Stage.QUARANTINED, Stage.DRAINING, Stage.DRAINED, Stage.RECOVERING)

EXIT_CODES = {Stage.HEALTHY: 0, Stage.SUSPECT: 3, Stage.RECOVERING: 3, Stage.UNKNOWN: 1}
"""Every other stage: 4, the node is out of use."""


class BudgetItem(Item, frozen=True, kw_only=True):
    """The fleet's budget. `slots` null: not known."""

    slots: int | None
    used: int
    nodes: int | None


class NodeItem(Item, frozen=True, kw_only=True):
    """One Node. `overruled`: faults that count again only when they happen after this time."""

    node: str
    stage: Stage
    mode: str
    words: str
    claim: Claim
    taint: Taint | None
    condition: Condition | None
    unschedulable: bool
    owner: Ownership | None
    faults: tuple[Fault, ...]
    overruled: dict[str, datetime]
    opt_out: bool
    other: str | None
    slot: str | None
    budget: BudgetItem | None
    blocked: tuple[Blocked, ...]
    release_at: datetime | None
    pods: tuple[str, ...]


def node_item(node: NodeObject, policy: Policy, plan: Plan | None, slots: Slots | None) -> NodeItem:
    """Join the Node, the plan that would be made now (None: no agent) and the budget (None: unreadable)."""
    state = hold(node)
    mine = held(slots, node.name)
    cordoned = state.owner is not None and state.owner.cordoned
    return NodeItem(
        node=node.name,
        stage=stage_now(node, plan),
        mode=policy.config.mode,
        words=plan.words if plan else "",
        claim=state.claim,
        taint=node.taint,
        condition=node.condition,
        unschedulable=node.unschedulable,
        owner=state.owner,
        faults=plan.faults if plan and plan.faults else faults(node),
        overruled={key: utc(at) for key, at in acknowledged(node).items()},
        opt_out=opted_out(node),
        other=foreign(node, cordoned=cordoned, more=policy.config.foreign),
        slot=mine[0].name if mine else None,
        budget=_budget(policy, slots),
        blocked=plan.blocked if plan else (),
        release_at=utc(plan.release_at) if plan and plan.release_at is not None else None,
        pods=plan.pods if plan else (),
    )


def stage_now(node: NodeObject, plan: Plan | None) -> Stage:
    """Where the node is before the plan's steps; a plan names the stage after them. Without one the Node tells."""
    state = hold(node)
    if plan is not None:
        in_use = state.claim is not Claim.APPLIED
        return Stage.SUSPECT if in_use and plan.stage in OUT_OF_USE else plan.stage
    if state.claim is Claim.APPLIED and state.owner is not None:
        return Stage.QUARANTINED if state.owner.draining is None else Stage.DRAINING
    known = {"True": Stage.HEALTHY, "False": Stage.SUSPECT}
    return known.get(node.condition.status, Stage.UNKNOWN) if node.condition else Stage.UNKNOWN


def _budget(policy: Policy, slots: Slots | None) -> BudgetItem | None:
    if slots is None or slots.leases is None:
        return None
    used = sum(1 for lease in slots.leases if lease.holder and number(lease.name) is not None)
    return BudgetItem(slots=limit(policy.config.budget, slots.nodes), used=used, nodes=slots.nodes)
