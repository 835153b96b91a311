"""What the API server tells of this node, with whatever right this process has."""

from gpuwatch.model.remediation import NodeObject, PodObject
from gpuwatch.model.snapshot import Record


class Cluster(Record, frozen=True, kw_only=True):
    """`unseen`: what could not be seen (`pods`, `runtimeclasses`, `clusterpolicy`) -> why; those members are None.
    `plugin_environment`: the DP_* variables of the device plugin's pod on this node.
    """

    node: NodeObject
    pods: tuple[PodObject, ...] | None = None
    runtime_classes: tuple[str, ...] | None = None
    policy_state: str | None = None  # the GPU operator's ClusterPolicy
    plugin_environment: dict[str, str] | None = None
    unseen: dict[str, str] = {}
