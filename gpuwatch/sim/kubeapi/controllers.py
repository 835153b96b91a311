"""The controllers without which evicted work would not come back: each a stand-in for one of Kubernetes, run by steps.

They write as the users that do it in a real cluster, past authorization and faults: it is not them who are tested.
"""

import random
from collections import Counter
from collections.abc import Mapping

from gpuwatch.model.rfc3339 import rfc3339
from gpuwatch.sim.kubeapi.cluster import Cluster
from gpuwatch.sim.kubeapi.message import Object
from gpuwatch.sim.kubeapi.objects import (
    GPU,
    controller_of,
    gpus_of,
    is_leaving,
    is_over,
    pod_object,
    running,
    suffix,
    tolerates,
)

_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


class ReplicaSets:
    """Make a new pod for every one that a controller lost (`Cluster.add_pod` says how many it wants)."""

    def __init__(self, cluster: Cluster, *, seed: int = 0) -> None:
        self._cluster = cluster
        self._chance = random.Random(f"replicas {seed}")  # noqa: S311
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
            wanted = self._cluster.replicas
            return [
                self._create(model)
                for uid, model in self._models.items()
                for _ in range(wanted.get(uid, 0) - alive[uid])
            ]

    def _create(self, model: Object) -> Object:
        metadata, owner = model["metadata"], controller_of(model) or {}
        new = pod_object(
            metadata["namespace"],
            f"{owner['name']}-{suffix(self._chance)}",
            labels=metadata.get("labels", {}),
            gpus=gpus_of(model),
            owner=(owner["kind"], owner["name"]),
            tolerations=model["spec"].get("tolerations", []),
        )
        user = "system:serviceaccount:kube-system:replicaset-controller"
        return self._cluster.create("pods", new, namespace=metadata["namespace"], user=user)


class Scheduler:
    """Bind pending pods to nodes that are Ready, not cordoned, have GPUs to spare and no taint they do not tolerate."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def step(self) -> list[Object]:
        """Bind and start what fits, oldest first, on the node with the most GPUs free; return it."""
        with self._cluster.lock:
            pods = self._cluster.objects("pods")
            free = {node["metadata"]["name"]: _capacity(node) for node in self._cluster.nodes() if _takes_pods(node)}
            for pod in pods:
                if pod["spec"].get("nodeName") in free and not is_over(pod):
                    free[pod["spec"]["nodeName"]] -= gpus_of(pod)
            waiting = [pod for pod in pods if "nodeName" not in pod["spec"] and not is_leaving(pod)]
            waiting.sort(key=lambda pod: int(pod["metadata"]["resourceVersion"]))
            return [bound for pod in waiting if (bound := self._bind(pod, free)) is not None]

    def _bind(self, pod: Object, free: dict[str, int]) -> Object | None:
        node = self._place(pod, free)
        if node is None:
            return None
        free[node] -= gpus_of(pod)
        return self._cluster.put("pods", running(pod, node, self._cluster.clock.time()), user="system:kube-scheduler")

    def _place(self, pod: Object, free: Mapping[str, int]) -> str | None:
        fitting = [name for name, gpus in free.items() if gpus >= gpus_of(pod) and self._tolerated(pod, name)]
        return max(fitting, key=lambda name: free[name], default=None)

    def _tolerated(self, pod: Object, node: str) -> bool:
        found = self._cluster.get("nodes", "", node) or {"spec": {}}
        taints = found["spec"].get("taints", [])
        return all(tolerates(pod, taint)[0] for taint in taints if taint["effect"] != "PreferNoSchedule")


class TaintEviction:
    """Delete pods from nodes with a NoExecute taint that they do not tolerate, or no longer. It knows no budgets."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._seen: dict[tuple[str, str, str], float] = {}

    def step(self) -> list[Object]:
        """Delete what has to go and return it."""
        gone = []
        with self._cluster.lock:
            now = self._cluster.clock.monotonic()
            tainted = {
                (node["metadata"]["uid"], taint["key"], taint.get("value", "")): (node["metadata"]["name"], taint)
                for node in self._cluster.nodes()
                for taint in node["spec"].get("taints", [])
                if taint["effect"] == "NoExecute"
            }
            self._seen = {mark: self._seen.get(mark, now) for mark in tainted}
            for mark, (name, taint) in tainted.items():
                for pod in self._cluster.pods_on(name):
                    if not is_leaving(pod) and _has_to_go(pod, taint, now - self._seen[mark]):
                        self._delete(pod)
                        gone.append(pod)
        return gone

    def _delete(self, pod: Object) -> None:
        metadata = pod["metadata"]
        user = "system:serviceaccount:kube-system:node-controller"
        self._cluster.delete("pods", metadata["namespace"], metadata["name"], user=user)


class NodeLifecycle:
    """Mirror `spec.unschedulable` in its taint, as the node lifecycle controller does: a foreign hand on the list."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def step(self) -> list[Object]:
        """Add and remove taints; return the nodes that were changed."""
        with self._cluster.lock:
            return [self._mirror(node) for node in self._cluster.nodes() if _is_cordoned(node) != _has_taint(node)]

    def _mirror(self, node: Object) -> Object:
        others = [taint for taint in node["spec"].get("taints", []) if taint["key"] != _UNSCHEDULABLE]
        now = rfc3339(self._cluster.clock.time())
        mine = [{"key": _UNSCHEDULABLE, "effect": "NoSchedule", "timeAdded": now}] if _is_cordoned(node) else []
        spec = {**node["spec"], "taints": [*others, *mine]}
        if not spec["taints"]:
            del spec["taints"]
        user = "system:serviceaccount:kube-system:node-controller"
        return self._cluster.put("nodes", {**node, "spec": spec}, user=user)


def _has_to_go(pod: Object, taint: Object, age: float) -> bool:
    tolerated, seconds = tolerates(pod, taint)
    return not tolerated or (seconds is not None and age >= seconds)


def _capacity(node: Object) -> int:
    return int(node["status"].get("allocatable", {}).get(GPU, 0))


def _takes_pods(node: Object) -> bool:
    conditions = node["status"].get("conditions", [])
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and not _is_cordoned(node)


def _is_cordoned(node: Object) -> bool:
    return bool(node["spec"].get("unschedulable"))


def _has_taint(node: Object) -> bool:
    return any(taint["key"] == _UNSCHEDULABLE for taint in node["spec"].get("taints", []))
