"""Nouns of remediation: what gpuwatch has changed on a Node, what it plans to change, and the state it reports.

Times are unix seconds.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

from msgspec.structs import replace

from gpuwatch.config import Mode
from gpuwatch.kube.objects import CONDITION, DOMAIN, Condition, DeviceRule, NodeObject, PodObject, Taint
from gpuwatch.model.finding import Remedy, Response, Scope
from gpuwatch.model.snapshot import Record

OWNER = f"{DOMAIN}/owner"
FAULTS = f"{DOMAIN}/faults"
ACKNOWLEDGED = f"{DOMAIN}/acknowledged"
OPT_OUT = f"{DOMAIN}/opt-out"
LABELS = f"{DOMAIN}/labels"
QUARANTINED = f"{DOMAIN}/quarantined"
DEGRADED = f"{DOMAIN}/gpu-degraded"
HEALTHY_COUNT = f"{DOMAIN}/gpu-healthy-count"
NVLINK = f"{DOMAIN}/nvlink"
GPU_CLASS = f"{DOMAIN}/gpu-class"


class Fault(Record, frozen=True, kw_only=True):
    """A finding that the policy acts on, as the Node's annotation keeps it."""

    key: str  # Finding.key
    check: str
    response: Response
    remedy: Remedy = Remedy.NONE
    gpu: str | None = None
    index: int | None = None  # NVML's, by which people name that GPU; a reboot may change it
    xid: int | None = None
    since: float | None = None
    last: float = 0.0  # Finding.latest
    message: str = ""

    @property
    def place(self) -> str:
        """The check and where: `xid_fatal on GPU 3`."""
        if self.gpu is None:
            return self.check
        return f"{self.check} on {self.gpu if self.index is None else f'GPU {self.index}'}"


class Ownership(Record, frozen=True, kw_only=True):
    """The annotation that lists what on this Node is ours; it is written before anything else.

    `claimed`: a taint is about to be set; `applied`: the taint is there. An applied claim without its taint was
    overruled by a person, except one of scope `gpu`, which has no taint; a claimed one was only interrupted. An applied
    claim is written in the same request as the taint.
    """

    id: str  # of this quarantine, in Events and audit lines
    state: Literal["claimed", "applied"]
    since: float
    node_uid: str
    boot_id: str | None = None
    slot: str | None = None
    value: str = ""  # of the taint
    effect: str = "NoSchedule"
    cordoned: bool = False  # `unschedulable` was set by us
    labels: tuple[str, ...] = ()  # keys set by us
    gpus: int = 0  # how many GPUs the node had, to distinguish a replaced one from a missing one
    by: Literal["remediator", "operator"] = "remediator"
    held: str | None = None  # why only a person may release it
    lifted: bool = False  # a person removed our cordon: it is not set again
    draining: float | None = None  # when pods were first asked to leave
    scope: Scope = "node"  # gpu: the platform keeps work from the sick GPUs, and there is no taint
    rules: tuple[str, ...] = ()  # DeviceTaintRules, recorded before they are written
    distrusted: bool = False  # scope gpu was not enough: it is not tried again
    handover: str | None = None  # the annotation set for a tool that reboots nodes; empty: only its file


class PublishedLabels(Record, frozen=True, kw_only=True):
    """The annotation that lists which labels for schedulers are ours, with the values that we wrote at unix time `at`.
    It is written in the same request as the labels.
    """

    at: float
    labels: dict[str, str] = {}


class RemediatorMemory(Record, frozen=True, kw_only=True):
    """What the remediator remembers across its own restarts; the Node has the rest."""

    node_uid: str | None = None
    boot_id: str | None = None
    acknowledged: dict[str, float] = {}  # fault key -> its `last` when a person overruled it
    quarantined: dict[str, tuple[float, ...]] = {}  # fault key -> times it led to a quarantine
    announced: dict[str, float] = {}  # name of an Event -> when it was created
    slot: str | None = None  # the budget's slot taken last, until it is freed
    sentinel: str | None = None  # the file made for a tool that reboots nodes, until it is removed


class NodeStage(StrEnum):
    """Where a node is in its life, as metrics and `node status` show it."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"  # a fault is there but not (yet) acted on: observe mode, a hold, or blocked
    QUARANTINED = "quarantined"
    DRAINING = "draining"
    DRAINED = "drained"
    RECOVERING = "recovering"  # no fault any more; the recovery hold runs
    UNKNOWN = "unknown"  # no fresh View: nothing is added or removed


class BlockReason(StrEnum):
    """Why a plan wants more than it may do: label values of `gpuwatch_remediator_blocked`."""

    MODE = "mode"  # observe
    BUDGET = "budget"
    BUDGET_UNREADABLE = "budget_unreadable"
    FOREIGN = "foreign"  # another controller works on this node, or a mark on it is not ours
    OPT_OUT = "opt_out"
    MAINTENANCE = "maintenance"
    ACKNOWLEDGED = "acknowledged"  # a person overruled this fault
    IDENTITY = "identity"  # the Node is not this machine
    STALE = "stale"  # no fresh view
    HOLD = "hold"  # the fault, or the recovery, has not lasted long enough yet
    UNCONFIRMED = "unconfirmed"  # reported by the kernel log only
    RATE = "rate"
    PERMISSION = "permission"
    API = "api"
    PDB = "pdb"
    PROTECTED = "protected"  # pods that are never evicted
    DEADLINE = "deadline"  # draining took too long
    VALIDATION = "validation"  # no active check has passed since the fault
    REPAIR = "repair"  # the repairer tries a reset before a reboot is asked for
    HELD = "held"  # only a person may release it


class Blocked(Record, frozen=True, kw_only=True):
    """One obstacle: what, why and the next step are in `message`."""

    reason: BlockReason
    message: str


class PatchNode(Record, frozen=True, kw_only=True, tag_field="do", tag="patch_node"):
    """One PATCH of the Node with its resourceVersion: all of it happens or nothing. None in a map removes the key;
    `taints` is the whole new list, None leaves it as it is. `step` is `claim`, `taint`, `confine` (only the sick GPUs
    are out of service), `refresh`, `untaint`, `forget` or `label`.
    """

    step: str
    annotations: dict[str, str | None] = {}
    labels: dict[str, str | None] = {}
    taints: tuple[Taint, ...] | None = None
    unschedulable: bool | None = None


class TakeSlot(Record, frozen=True, kw_only=True, tag_field="do", tag="take_slot"):
    """Take or renew the slot `name` of the budget, if it is as it was read; where that fails, no later step is done.

    `resource_version` empty: the Lease does not exist and is created; else it is changed, whichever node held it. A
    conflict means that another writer was faster: the plan ends there, and the next plan reads the slots again.
    """

    slots: int  # how many there are
    name: str = ""
    resource_version: str = ""


class FreeSlot(Record, frozen=True, kw_only=True, tag_field="do", tag="free_slot"):
    """Free the slot, if this node still holds it."""

    name: str


class SetCondition(Record, frozen=True, kw_only=True, tag_field="do", tag="set_condition"):
    """PATCH node/status; None removes the condition."""

    condition: Condition | None


class CreateEvent(Record, frozen=True, kw_only=True, tag_field="do", tag="announce"):
    """An Event about the Node or a pod. `name` is derived from what it reports: a repetition makes no second Event."""

    name: str
    reason: str
    message: str
    warning: bool = True
    pod: tuple[str, str, str] | None = None  # namespace, name, uid


class Evict(Record, frozen=True, kw_only=True, tag_field="do", tag="evict"):
    """Ask the API server to evict a pod (policy/v1); a disruption budget may refuse it for now."""

    pod: PodObject


class SetRebootSentinel(Record, frozen=True, kw_only=True, tag_field="do", tag="hand_over"):
    """Create or remove the file that a tool which reboots nodes waits for; a repetition changes nothing."""

    sentinel: str
    wanted: bool = True


class WriteRule(Record, frozen=True, kw_only=True, tag_field="do", tag="write_rule"):
    """Create a DeviceTaintRule for one device of this Node; one of this name and owner counts as created."""

    rule: DeviceRule


class DeleteRule(Record, frozen=True, kw_only=True, tag_field="do", tag="delete_rule"):
    """Delete a DeviceTaintRule, if it exists and belongs to the quarantine `owner`."""

    name: str
    owner: str


Step = WriteRule | DeleteRule | PatchNode | TakeSlot | FreeSlot | SetCondition | CreateEvent | Evict | SetRebootSentinel


def after(node: NodeObject, steps: Iterable[Step]) -> NodeObject:
    """The Node once the steps are done, if no other writer changes it."""
    for step in steps:
        if isinstance(step, PatchNode):
            node = replace(
                node,
                annotations=_merged(node.annotations, step.annotations),
                labels=_merged(node.labels, step.labels),
                taints=node.taints if step.taints is None else step.taints,
                unschedulable=node.unschedulable if step.unschedulable is None else step.unschedulable,
            )
        elif isinstance(step, SetCondition):
            others = tuple(condition for condition in node.conditions if condition.type != CONDITION)
            node = replace(node, conditions=others if step.condition is None else (*others, step.condition))
    return node


def _merged(old: dict[str, str], change: dict[str, str | None]) -> dict[str, str]:
    both: dict[str, str | None] = {**old, **change}
    return {key: value for key, value in both.items() if value is not None}


class Plan(Record, frozen=True, kw_only=True):
    """What is to be done now, in order; what stands in the way; and when the next cycle is due at the latest."""

    node: str
    at: float
    stage: NodeStage
    scope: Scope = "node"
    """`gpu`: only the GPUs of `faults` are out of service."""
    scope_reason: str = ""
    """Why the whole node is out of service, as a clause."""
    faults: tuple[Fault, ...] = ()
    steps: tuple[Step, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    release_at: float | None = None
    """Unix time at which the node is released if it stays healthy."""
    next_cycle: float | None = None
    """Seconds from now, at most."""
    pods: tuple[str, ...] = ()
    """Those still to be evicted."""
    message: str = ""
    """A summary in one sentence."""
    needs: tuple[Literal["slots", "pods", "devices"], ...] = ()
    """What has to be read; a new plan made with it can decide more."""


ACTIONS = (
    "claim", "slot", "taint", "confine", "refresh", "condition", "event", "evict", "handover", "untaint", "forget",
    "free_slot", "label", "rule", "unrule",
)  # fmt: skip
"""What a remediator does, in about the order of a quarantine's life: the actions of its audit lines."""


class RemediatorState(Record, frozen=True, kw_only=True):
    """As of the newest cycle. `actions` and `errors` count since the start."""

    node: str
    mode: Mode
    plan: Plan | None = None
    planned_at: float | None = None
    view_at: float | None = None
    boot_id: str | None = None  # of the machine that the View is of
    slots: int | None = None  # of the whole fleet; None where they were not read
    slots_used: int | None = None
    actions: dict[tuple[str, str], int] = {}  # (action, result) -> count
    errors: dict[str, int] = {}  # kind of a refused or failed request -> count
    config_error: str | None = None
    trouble: str | None = None  # why nothing is done at present: no agent, no API server, no right
