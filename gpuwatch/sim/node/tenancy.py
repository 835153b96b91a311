"""Joins a simulated node to a simulated cluster: the pods that the cluster has there are what runs on its GPUs."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from gpuwatch.sim.kubeapi import Object, SimulatedCluster
from gpuwatch.sim.kubeapi.objects import controller_of, gpus_of, is_leaving, is_over
from gpuwatch.sim.node import noise
from gpuwatch.sim.node.actions import SimWorkload, StartWorkload, StopWorkload
from gpuwatch.sim.world import World

GRACE_SECONDS = 1


class Tenancy:
    """Starts and stops work on `node` as its pods come and go, step by step as the cluster's controllers do.

    `running`: what the node's scenario runs; its pods are made here. `new`: by the name of a controller, how its later
    pods behave on a GPU.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        world: World,
        node: str,
        *,
        gpus: int,
        running: Sequence[SimWorkload],
        new: Mapping[str, SimWorkload],
        seed: int = 1,
    ) -> None:
        self._cluster, self._world, self._node, self._gpus, self._new = cluster, world, node, gpus, new
        self._running = {workload.name: workload for workload in running if workload.pod}
        for workload in self._running.values():
            self._admit(workload, seed)

    def step(self) -> None:
        """End what has left, begin what has come."""
        pods = {_name(pod): pod for pod in self._cluster.pods_on(self._node) if _runs(pod)}
        for name in [name for name in self._running if name not in pods]:
            del self._running[name]
            self._world.inject(StopWorkload(name=name))
        for name, pod in pods.items():
            owner = controller_of(pod)
            kind = self._new.get(owner["name"]) if owner else None
            free = self._free()[: gpus_of(pod)]
            if name not in self._running and kind is not None and len(free) == gpus_of(pod):
                self._running[name] = replace(kind, name=name, gpus=free, uid=pod["metadata"]["uid"])
                self._world.inject(StartWorkload(workload=self._running[name]))

    def _admit(self, workload: SimWorkload, seed: int) -> None:
        """A pod for what runs already, with the uid under which /proc shows it."""
        namespace, name = workload.pod or ("", "")
        app = name.partition("-")[0]
        pod = self._cluster.add_pod(namespace, name, self._node, {"app": app}, len(workload.gpus))
        uid = noise.uuid(seed, "pod", namespace, name)
        metadata = {**pod["metadata"], "uid": uid, "annotations": workload.annotations}
        spec = {**pod["spec"], "terminationGracePeriodSeconds": GRACE_SECONDS}
        self._cluster.put("pods", {**pod, "metadata": metadata, "spec": spec}, user="system:kubelet")

    def _free(self) -> tuple[int, ...]:
        used = {gpu for workload in self._running.values() for gpu in workload.gpus}
        return tuple(gpu for gpu in range(self._gpus) if gpu not in used)


def _runs(pod: Object) -> bool:
    """Until its containers have ended; those that are told to leave run on for their grace."""
    return gpus_of(pod) > 0 and not is_over(pod) and (is_leaving(pod) or pod["status"].get("phase") == "Running")


def _name(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
