"""Kubernetes objects, with the fields that gpuwatch reads. `kube.parse` makes them from the API's JSON.

Times are unix seconds unless they are the API's own text.
"""

from gpuwatch.model.snapshot import Host, Record

DOMAIN = "gpuwatch.io"
TAINT = f"{DOMAIN}/gpu-fault"
CONDITION = "GPUHealthy"


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
    """A Node as the API server returned it. `host` is `status.nodeInfo`; `capacity` and `allocatable` count devices of
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
        """The taint with our key, whether we set it or not."""
        return next((taint for taint in self.taints if taint.key == TAINT), None)

    @property
    def condition(self) -> Condition | None:
        """The condition of our type."""
        return next((condition for condition in self.conditions if condition.type == CONDITION), None)


class PodGroup(Record, frozen=True, kw_only=True):
    """Pods that one object starts again together, such as a Job; `uid` is empty where a label names the object."""

    namespace: str
    kind: str
    name: str
    uid: str = ""


class PodObject(Record, frozen=True, kw_only=True):
    """A pod of this node. `gpus` counts requested nvidia.com/* devices; `controller` is the owner's kind;
    `group` is None where pods are replaced one by one.
    """

    namespace: str
    name: str
    uid: str
    phase: str = "Running"
    controller: str | None = None
    controller_name: str | None = None
    group: PodGroup | None = None
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


class GpuDevice(Record, frozen=True, kw_only=True):
    """A device of the Node's ResourceSlices that is a GPU (`gpu`: its UUID) or an instance of one."""

    gpu: str
    pool: str
    name: str


class DeviceRule(Record, frozen=True, kw_only=True):
    """A DeviceTaintRule with gpuwatch's label. `owner`: the id of the quarantine that wrote it."""

    name: str
    uid: str = ""
    owner: str = ""
    pool: str = ""
    device: str = ""
    value: str = ""
    effect: str = ""


class DraState(Record, frozen=True, kw_only=True):
    """Dynamic resource allocation as read last. `version`: of DeviceTaintRules, empty where they cannot be used, for
    the reason `why`. `devices`: of this Node; `rules`: gpuwatch's in the whole cluster.
    """

    version: str = ""
    why: str = ""
    devices: tuple[GpuDevice, ...] = ()
    rules: tuple[DeviceRule, ...] = ()
