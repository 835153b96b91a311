"""The Node object, its pods and what else the API server tells of the simulated host, as a recording."""

from collections import Counter
from collections.abc import Iterator

import msgspec

from gpuwatch.diagnose.model import ClusterFacts, NodePod
from gpuwatch.kube.objects import Condition, NodeObject
from gpuwatch.sim.host.files import Files
from gpuwatch.sim.host.node_labels import node_labels
from gpuwatch.sim.node import noise
from gpuwatch.sim.node.actions import Kubelet
from gpuwatch.sim.node.cluster import DOMAIN, allocatable, allocations
from gpuwatch.sim.node.node import Node

NAME = "gpu-node-1"
OPERATOR = "gpu-operator"
OPERANDS = {
    "nvidia-driver-daemonset": {},
    "nvidia-container-toolkit-daemonset": {},
    "nvidia-device-plugin-daemonset": {"MIG_STRATEGY": "mixed", "DEVICE_LIST_STRATEGY": "envvar"},
    "gpu-feature-discovery": {},
    "nvidia-dcgm-exporter": {},
    "nvidia-operator-validator": {},
    "node-feature-discovery-worker": {},
}
"""The operator's DaemonSets that matter here -> what steers them."""

CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID"),
    ("Ready", "True", "KubeletReady"),
)


def has_kubelet(node: Node) -> bool:
    """Whether the machine was one of a cluster when it began; a kubelet that goes away later leaves its files."""
    begin = (action for action in node.scenario.timeline if action.at == 0)
    return not any(isinstance(action, Kubelet) and action.state == "absent" for action in begin)


def cluster(node: Node) -> Files:
    """The files; none of a machine outside a cluster."""
    if not has_kubelet(node):
        return {}
    found = ClusterFacts(
        node=_node(node),
        way="the recording",
        pods=(*_operands(node), *_workloads(node)),
        pending=(),
        runtime_classes={"nvidia": "nvidia"},
        policy_state="ready",
        plugin_environment=OPERANDS["nvidia-device-plugin-daemonset"],
    )
    return {"gpuwatch/cluster.json": msgspec.json.format(msgspec.json.encode(found)).decode() + "\n"}


def _node(node: Node) -> NodeObject:
    return NodeObject(
        name=NAME,
        uid=noise.uuid(node.seed, "node"),
        resource_version="1000",
        labels=node_labels(node, NAME),
        conditions=tuple(Condition(type=type_, status=status, reason=reason) for type_, status, reason in CONDITIONS),
        capacity=capacity(node),
        allocatable={each.resource: len(each.device_ids) for each in allocatable(node)},
    )


def capacity(node: Node) -> dict[str, int]:
    """Devices by resource that the plugin has registered: a lost GPU stays among them until the driver is reloaded."""
    found: Counter[str] = Counter()
    for gpu in node.gpus:
        for unit in gpu.units if gpu.attached else ():
            profile = unit.profile.name.replace("+", ".") if unit.profile else None
            found[f"{DOMAIN}/mig-{profile}" if profile else f"{DOMAIN}/gpu"] += 1 if profile else _replicas(node)
    return dict(found)


def _replicas(node: Node) -> int:
    return node.scenario.node.replicas


def _operands(node: Node) -> Iterator[NodePod]:
    for app, environment in OPERANDS.items():
        uid = noise.uuid(node.seed, "operand", app)
        yield NodePod(
            namespace=OPERATOR,
            name=f"{app}-{uid[:5]}",
            uid=uid,
            controller="DaemonSet",
            app=app,
            ready=True,
            environment=environment,
        )


def _workloads(node: Node) -> Iterator[NodePod]:
    devices: Counter[tuple[str, str]] = Counter()
    for each in allocations(node):
        if each.claim is None and each.workload.namespace and each.workload.pod:
            devices[each.workload.namespace, each.workload.pod] += len(each.device_ids)
    for (namespace, name), gpus in devices.items():
        uid = noise.uuid(node.seed, "pod", namespace, name)
        yield NodePod(namespace=namespace, name=name, uid=uid, gpus=gpus, ready=True)
