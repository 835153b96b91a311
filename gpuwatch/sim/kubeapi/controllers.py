"""Stand-ins for the controllers of Kubernetes without which evicted pods would not come back, run step by step.

They write as the same users as in a real cluster, without authorization and faults.
"""

import random
from collections import Counter

from gpuwatch.model.clock import rfc3339
from gpuwatch.sim.kubeapi.cluster import SimulatedCluster
from gpuwatch.sim.kubeapi.messages import Object
from gpuwatch.sim.kubeapi.objects import (
    GPU,
    controller_of,
    gpus_of,
    is_leaving,
    is_over,
    is_ready,
    pod_object,
    running,
    suffix,
    tolerates,
)

_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


class ReplicaSets:
    """Make a new pod for every one that a controller lost (`SimulatedCluster.add_pod` counts how many it wants)."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._chance = random.Random("replicas 0")  # noqa: S311
        self._models: dict[str, Object] = {}

    def step(self) -> list[Object]:
        """Create what is missing and return it, pending."""
        with self._cluster.lock:
            alive: Counter[str] = Counter()
            for pod in self._cluster.objects("pods"):
                owner = controller_of(pod)
                if owner is not None and owner["kind"] != "DaemonSet":
                    self._models.setdefault(owner["uid"], pod)
                    alive[owner["uid"]] += not (is_leaving(pod) or is_over(pod))
            created = []
            for uid, model in self._models.items():
                metadata, owner = model["metadata"], controller_of(model) or {}
                for _ in range(self._cluster.replicas.get(uid, 0) - alive[uid]):
                    new = pod_object(
                        metadata["namespace"],
                        f"{owner['name']}-{suffix(self._chance)}",
                        labels=metadata.get("labels", {}),
                        gpus=gpus_of(model),
                        owner=(owner["kind"], owner["name"]),
                        tolerations=model["spec"].get("tolerations", []),
                    )
                    user = "system:serviceaccount:kube-system:replicaset-controller"
                    created.append(self._cluster.create("pods", new, namespace=metadata["namespace"], user=user))
            return created


class Scheduler:
    """Bind pending pods to nodes that are Ready, not cordoned, have GPUs to spare and no taint they do not tolerate."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def step(self) -> list[Object]:
        """Bind and start the pods that fit, oldest first, on the node with the most GPUs free; return it."""
        with self._cluster.lock:
            pods = self._cluster.objects("pods")
            nodes = {node["metadata"]["name"]: node for node in self._cluster.nodes()}
            free = {
                name: int(node["status"].get("allocatable", {}).get(GPU, 0))
                for name, node in nodes.items()
                if is_ready(node) and not node["spec"].get("unschedulable")
            }
            for pod in pods:
                if pod["spec"].get("nodeName") in free and not is_over(pod):
                    free[pod["spec"]["nodeName"]] -= gpus_of(pod)
            pending = [pod for pod in pods if "nodeName" not in pod["spec"] and not is_leaving(pod)]
            bound = []
            for pod in sorted(pending, key=lambda pod: int(pod["metadata"]["resourceVersion"])):
                fitting = [
                    name
                    for name, gpus in free.items()
                    if gpus >= gpus_of(pod)
                    and all(
                        tolerates(pod, taint)[0]
                        for taint in nodes[name]["spec"].get("taints", [])
                        if taint["effect"] != "PreferNoSchedule"
                    )
                ]
                if fitting:
                    node = max(fitting, key=lambda name: free[name])
                    free[node] -= gpus_of(pod)
                    value = running(pod, node, self._cluster.clock.time())
                    bound.append(self._cluster.put("pods", value, user="system:kube-scheduler"))
            return bound


class NodeLifecycle:
    """Mirror `spec.unschedulable` in its taint, as the node lifecycle controller does: another writer of the taints."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def step(self) -> list[Object]:
        """Add and remove taints; return the nodes that were changed."""
        user, changed = "system:serviceaccount:kube-system:node-controller", []
        with self._cluster.lock:
            for node in self._cluster.nodes():
                taints = node["spec"].get("taints", [])
                others = [taint for taint in taints if taint["key"] != _UNSCHEDULABLE]
                cordoned = bool(node["spec"].get("unschedulable"))
                if cordoned == (len(others) < len(taints)):
                    continue
                if cordoned:
                    now = rfc3339(self._cluster.clock.time())
                    others.append({"key": _UNSCHEDULABLE, "effect": "NoSchedule", "timeAdded": now})
                spec = {key: value for key, value in node["spec"].items() if key != "taints"}
                spec |= {"taints": others} if others else {}
                changed.append(self._cluster.put("nodes", {**node, "spec": spec}, user=user))
        return changed
