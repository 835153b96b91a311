"""What the API server tells of one node, as a diagnosis wants to know it: the Node, its pods, what surrounds them."""

from gpuwatch.kube.objects import NodeObject, PodObject
from gpuwatch.model.snapshot import Record


class NodePod(PodObject, frozen=True, kw_only=True):
    """A pod that has GPUs, waits for some, or gives them to others (NVIDIA's own). Of its labels and annotations only
    what says whose it is; `environment`: only what steers the device plugin.
    """

    app: str | None = None  # label app, app.kubernetes.io/name or k8s-app
    ready: bool | None = None
    waiting: str | None = (
        None  # why a container does not run: CrashLoopBackOff, ImagePullBackOff; or it is unschedulable
    )
    restarts: int = 0
    environment: dict[str, str] = {}
    configs: str | None = None  # the ConfigMap with the configurations a device plugin may be told to use


class Cluster(Record, frozen=True, kw_only=True):
    """One look at the API server at unix time `at`; `way`: the credentials that were used.

    `unseen`: what could not be seen (`pods`, `pending`, `runtimeclasses`, `clusterpolicy`, `configmaps`) -> why,
    beginning with `forbidden:`, `absent:` or `failed:`; those members are None.
    `pods`: of this node, as far as they have GPUs or give them to others; `pending`: of the whole cluster, waiting for
    GPUs. `runtime_classes`: name -> handler. `policy_state`: the GPU operator's ClusterPolicy (`ready`, `notReady`).
    `plugin_environment`: what steers the device plugin of this node (DP_*, MIG_STRATEGY, ...); None: its pod is not
    seen or there is none. `plugin_configs`: the configurations of it that the label nvidia.com/device-plugin.config may
    name.
    """

    node: NodeObject
    at: float = 0.0
    way: str = ""
    pods: tuple[NodePod, ...] | None = None
    pending: tuple[NodePod, ...] | None = None
    runtime_classes: dict[str, str] | None = None
    policy_state: str | None = None
    plugin_environment: dict[str, str] | None = None
    plugin_configs: tuple[str, ...] | None = None
    unseen: dict[str, str] = {}
