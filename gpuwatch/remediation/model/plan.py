"""Nouns of remediation: what a Node looks like, what gpuwatch has done to it, and what it is about to do.

The Kubernetes objects hold only the fields gpuwatch reads; `sinks.kube` makes them from the API's JSON and sends
changes back. Times are unix seconds unless they are the API's own text.
"""

from enum import StrEnum
from typing import Literal

from gpuwatch.model.finding import Remedy
from gpuwatch.model.snapshot import Host, Record

DOMAIN = "gpuwatch.io"
TAINT = f"{DOMAIN}/gpu-fault"
CONDITION = "GPUHealthy"
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

SchedulingLabel = Literal["gpu-class", "gpu-degraded", "gpu-healthy-count", "nvlink"]
"""Those that tell schedulers of the GPUs, without the domain."""

Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class Response(StrEnum):
    """What a policy does about a finding, mildest first; each includes those before it but `ignore`.

    condition: GPUHealthy=False and an Event; taint: no new work; cordon: the node is unschedulable for everybody;
    drain: GPU pods are evicted through the Eviction API.
    """

    IGNORE = "ignore"
    OBSERVE = "observe"
    CONDITION = "condition"
    TAINT = "taint"
    CORDON = "cordon"
    DRAIN = "drain"

    def reaches(self, other: "Response") -> bool:
        """Whether it is at least as strong as `other`."""
        return _ORDER[self] >= _ORDER[other]


_ORDER = {response: place for place, response in enumerate(Response)}


class Taint(Record, frozen=True, kw_only=True):
    """One entry of `spec.taints`, an atomic list that several controllers share."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"
    time_added: str | None = None


class Condition(Record, frozen=True, kw_only=True):
    """One entry of `status.conditions`; times as RFC 3339 text."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_heartbeat: str | None = None
    last_transition: str | None = None


class NodeObject(Record, frozen=True, kw_only=True):
    """A Node as the API server last gave it. `host` is `status.nodeInfo`; `capacity` and `allocatable` count devices of
    `nvidia.com/*` resources.
    """

    name: str
    uid: str
    resource_version: str
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    conditions: tuple[Condition, ...] = ()
    host: Host = Host()
    deleting: bool = False
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}

    @property
    def taint(self) -> Taint | None:
        """The taint with our key, whoever put it there."""
        return next((taint for taint in self.taints if taint.key == TAINT), None)

    @property
    def condition(self) -> Condition | None:
        """The condition of our type."""
        return next((condition for condition in self.conditions if condition.type == CONDITION), None)


class PodObject(Record, frozen=True, kw_only=True):
    """A pod of this node. `gpus` counts requested nvidia.com/* devices; `controller` is the owner's kind."""

    namespace: str
    name: str
    uid: str
    phase: str = "Running"
    controller: str | None = None
    mirror: bool = False  # a static pod: the API cannot evict it
    gpus: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deleting: bool = False
    created: float | None = None

    @property
    def path(self) -> str:
        """namespace/name"""
        return f"{self.namespace}/{self.name}"


class LeaseObject(Record, frozen=True, kw_only=True):
    """One budget slot, `gpuwatch-slot-N`. `holder` None or empty: free."""

    name: str
    resource_version: str = ""
    holder: str | None = None
    renewed: float | None = None
    duration: float | None = None


class Fault(Record, frozen=True, kw_only=True):
    """A finding that the policy acts on, as the Node's annotation keeps it."""

    key: str  # Finding.key
    check: str
    response: Response
    remedy: Remedy = Remedy.NONE
    gpu: str | None = None
    index: int | None = None  # NVML's, as people call that GPU; another after a reboot, perhaps
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
    """The annotation that says what on this Node is ours, written before anything else is.

    `claimed`: about to taint; `applied`: the taint is there. An applied claim whose taint is missing was overruled by
    a person; a claimed one was merely cut off. Both are written in the same request as what they speak of.
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
    gpus: int = 0  # how many GPUs the node showed, to tell a replaced one from a missing one
    by: Literal["remediator", "operator"] = "remediator"
    held: str | None = None  # why only a person may release it
    lifted: bool = False  # a person took our cordon away: it is not set again
    draining: float | None = None  # when pods were first asked to leave
    handover: str | None = None  # the annotation put there for a tool that reboots; empty: only its file


class Published(Record, frozen=True, kw_only=True):
    """The annotation that says which labels for schedulers are ours, and with which values we left them, at unix time
    `at`. Written in the same request as they are.
    """

    at: float
    labels: dict[str, str] = {}


class Memory(Record, frozen=True, kw_only=True):
    """What the remediator remembers across its own restarts; the Node has the rest."""

    node_uid: str | None = None
    boot_id: str | None = None
    acknowledged: dict[str, float] = {}  # fault key -> `last` that a person has overruled
    quarantined: dict[str, tuple[float, ...]] = {}  # fault key -> times it led to a quarantine
    announced: dict[str, float] = {}  # names of Events that were told -> when
    slot: str | None = None  # the budget's slot taken last, until it was given back
    sentinel: str | None = None  # the file made for a tool that reboots, until it was taken away


class Stage(StrEnum):
    """Where a node is in its life, as metrics and `node status` show it."""

    HEALTHY = "healthy"
    SUSPECT = "suspect"  # a fault is there; not (yet) acted on: observe mode, a hold, or blocked
    QUARANTINED = "quarantined"
    DRAINING = "draining"
    DRAINED = "drained"
    RECOVERING = "recovering"  # no fault any more; the hold runs
    UNKNOWN = "unknown"  # no fresh view: nothing is added, nothing is taken away


class Reason(StrEnum):
    """Why a plan wants more than it may do: label values of `gpuwatch_remediator_blocked`."""

    MODE = "mode"  # observe
    BUDGET = "budget"
    BUDGET_UNREADABLE = "budget_unreadable"
    FOREIGN = "foreign"  # another controller has this node in hand
    OPT_OUT = "opt_out"
    MAINTENANCE = "maintenance"
    ACKNOWLEDGED = "acknowledged"  # a person overruled this very fault
    IDENTITY = "identity"  # the Node is not this machine
    STALE = "stale"  # no fresh view
    HOLD = "hold"  # not long enough yet
    RATE = "rate"
    PERMISSION = "permission"
    API = "api"
    PDB = "pdb"
    PROTECTED = "protected"  # pods that are never evicted
    DEADLINE = "deadline"  # draining took too long
    HELD = "held"  # only a person may release it


class Blocked(Record, frozen=True, kw_only=True):
    """One obstacle: what, why and the next step are in `words`."""

    reason: Reason
    words: str


class PatchNode(Record, frozen=True, kw_only=True, tag_field="do", tag="patch_node"):
    """One PATCH of the Node with its resourceVersion: all of it happens or nothing. None in a map takes the key away;
    `taints` is the whole new list, None leaves it alone. `step` is claim, taint, refresh, untaint, forget or label.
    """

    step: str
    annotations: dict[str, str | None] = {}
    labels: dict[str, str | None] = {}
    taints: tuple[Taint, ...] | None = None
    unschedulable: bool | None = None


class TakeSlot(Record, frozen=True, kw_only=True, tag_field="do", tag="take_slot"):
    """Get or renew the slot `name` of the budget, as it was read: without it no later step is done.

    `resource_version` empty: the Lease does not exist and is created; else it is replaced, whoever held it. A conflict
    means that somebody was faster: the plan ends there, the next one sees why.
    """

    slots: int  # how many there are
    name: str = ""
    resource_version: str = ""


class FreeSlot(Record, frozen=True, kw_only=True, tag_field="do", tag="free_slot"):
    """Give the slot back, if this node is still its holder."""

    name: str


class SetCondition(Record, frozen=True, kw_only=True, tag_field="do", tag="set_condition"):
    """PATCH node/status; None takes the condition away."""

    condition: Condition | None


class Announce(Record, frozen=True, kw_only=True, tag_field="do", tag="announce"):
    """An Event about the Node or a pod. `name` is made from what it tells: told again, it is no second one."""

    name: str
    reason: str
    message: str
    warning: bool = True
    pod: tuple[str, str, str] | None = None  # namespace, name, uid


class Evict(Record, frozen=True, kw_only=True, tag_field="do", tag="evict"):
    """Ask the API server to evict a pod (policy/v1); a disruption budget may say not now."""

    pod: PodObject


class HandOver(Record, frozen=True, kw_only=True, tag_field="do", tag="hand_over"):
    """Create the file a rebooting tool waits for, or take it away; done again, it changes nothing."""

    sentinel: str
    wanted: bool = True


Step = PatchNode | TakeSlot | FreeSlot | SetCondition | Announce | Evict | HandOver


class Plan(Record, frozen=True, kw_only=True):
    """What is to be done now, in order; what stands in the way; and when to look again at the latest."""

    node: str
    at: float
    stage: Stage
    faults: tuple[Fault, ...] = ()
    steps: tuple[Step, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    release_at: float | None = None
    """When the node is given back if it stays well."""
    look_again: float | None = None
    """Seconds."""
    pods: tuple[str, ...] = ()
    """Those yet to be evicted."""
    words: str = ""
    """The whole in one sentence."""
    wants: tuple[Literal["slots", "pods"], ...] = ()
    """What has to be read, and the plan made anew, before more can be said."""
