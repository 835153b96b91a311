"""A small cluster around one simulated node, for demonstrations: two more Nodes, pods with owners, one with a budget.

The two are only Node objects that accept pods; the node itself is a World, whose work follows its pods.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Self

from msgspec.structs import replace

from gpuwatch.model.clock import rfc3339
from gpuwatch.model.consent import AUTOTUNE, CLASS, MAX_SLOWDOWN
from gpuwatch.model.snapshot import Host
from gpuwatch.sim.kubeapi.cluster import SimulatedCluster
from gpuwatch.sim.kubeapi.controllers import NodeLifecycle, ReplicaSets, Scheduler
from gpuwatch.sim.kubeapi.messages import Object
from gpuwatch.sim.kubeapi.objects import GPU, controller_of, gpus_of, is_leaving, is_over, pod_object, running
from gpuwatch.sim.node import noise
from gpuwatch.sim.node.actions import SetDevicePlugin, SimWorkload, StartWorkload, StopWorkload
from gpuwatch.sim.node.pods import offered
from gpuwatch.sim.node.scenario import load
from gpuwatch.sim.world import World

NODE, OTHER_NODES = "gpu-node-1", ("gpu-node-2", "gpu-node-3")
NAMESPACE = "gpuwatch"
SCENARIO = "demo"
GPUS = 8
GPU_NODE = {"nvidia.com/gpu.present": "true"}

CHAT, OTHER_CHAT = "chat-7b-5d9c7f6b8-x2k4q", "chat-7b-5d9c7f6b8-p8r4t"
EVALUATIONS = ("evaluate-0", "evaluate-1")
PLUGIN = "gpu-operator/nvidia-device-plugin-daemonset"

NewWork = Mapping[str, SimWorkload]
NEW_WORK = {
    "evaluate": SimWorkload(name="evaluate", gpus=(0,), load="inference", process="python3", memory=0.4),
    "chat-7b-5d9c7f6b8": SimWorkload(
        name="chat", container="vllm", gpus=(0,), load="inference", process="VLLM::EngineCore", memory=0.9
    ),
}
"""How pods behave that come to the node later."""

BATCH = {AUTOTUNE: "enforce", CLASS: "batch"}
AGREED = {
    ("ml-research", "llama-pretrain-0"): BATCH,
    ("serving", CHAT): {AUTOTUNE: "enforce", CLASS: "serving", MAX_SLOWDOWN: "3%"},
    ("team-vision", "jupyter-anna"): BATCH,
}
"""(namespace, pod) -> annotations by which its owners opt in to tuning."""

STEP_SECONDS = 0.2
GRACE_SECONDS = 1


class PodWorkloads:
    """The kubelet of `node`: starts and stops work as its pods come and go, and reports how many GPUs pods may have.

    `running`: what the node's scenario runs; its pods are made here. `new`: by the name of a controller, how its later
    pods behave on a GPU.
    """

    def __init__(
        self, cluster: SimulatedCluster, world: World, node: str, running: Sequence[SimWorkload], new: NewWork
    ) -> None:
        self._cluster, self._world, self._node, self._new = cluster, world, node, new
        self._running = {workload.name: workload for workload in running if workload.pod}
        for workload in self._running.values():  # a pod with the uid under which /proc shows the workload
            namespace, name = workload.pod or ("", "")
            app = name.partition("-")[0]
            pod = cluster.add_pod(namespace, name, node, {"app": app}, len(workload.gpus))
            uid = noise.uuid(1, "pod", namespace, name)
            metadata = {**pod["metadata"], "uid": uid, "annotations": workload.annotations}
            spec = {**pod["spec"], "terminationGracePeriodSeconds": GRACE_SECONDS}
            cluster.put("pods", {**pod, "metadata": metadata, "spec": spec}, user="system:kubelet")

    def step(self) -> None:
        """Stop the work of pods that have left, start that of new ones."""
        gpus = [gpu.index for gpu in offered(self._world.node)]
        with self._cluster.lock:
            node = self._cluster.get("nodes", "", self._node)
            if node is not None and node["status"]["allocatable"][GPU] != str(len(gpus)):
                status = {**node["status"], "allocatable": {**node["status"]["allocatable"], GPU: str(len(gpus))}}
                self._cluster.put("nodes", {**node, "status": status}, user="system:kubelet")
        pods = {
            f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": pod
            for pod in self._cluster.pods_on(self._node)
            # until its containers have ended; a pod that is being deleted runs for its grace period
            if gpus_of(pod) > 0 and not is_over(pod) and (is_leaving(pod) or pod["status"].get("phase") == "Running")
        }
        for name in [name for name in self._running if name not in pods]:
            del self._running[name]
            self._world.inject(StopWorkload(name=name))
        for name, pod in pods.items():
            owner = controller_of(pod)
            kind = self._new.get(owner["name"]) if owner else None
            used = {gpu for workload in self._running.values() for gpu in workload.gpus}
            free = tuple(gpu for gpu in gpus if gpu not in used)[: gpus_of(pod)]
            if name not in self._running and kind is not None and len(free) == gpus_of(pod):
                self._running[name] = replace(kind, name=name, gpus=free, uid=pod["metadata"]["uid"])
                self._world.inject(StartWorkload(workload=self._running[name]))


class DemoCluster:
    """`cluster` with pods on three nodes and the controllers that move them; a context manager."""

    def __init__(self, world: World, host: Host) -> None:
        self.cluster = SimulatedCluster()
        for name in (NODE, *OTHER_NODES):
            self.cluster.add_node(name, labels=GPU_NODE, gpus=GPUS)
        node = self.cluster.get("nodes", "", NODE)
        if node is not None:  # the Node is this World's machine
            known = {"bootID": host.boot_id, "machineID": host.machine_id, "systemUUID": host.system_uuid}
            info = {**node["status"]["nodeInfo"], **{name: value or "" for name, value in known.items()}}
            self.cluster.put("nodes", {**node, "status": {**node["status"], "nodeInfo": info}})
        self.cluster.add_namespace(NAMESPACE)
        workloads = PodWorkloads(self.cluster, world, NODE, load(SCENARIO).workloads, NEW_WORK)
        # one GPU is free on the first two nodes; the second copy of the chat service is not ready yet
        for other_node, number in zip(OTHER_NODES, "12", strict=True):
            self.cluster.add_pod("ml-research", f"diffusion-{number}", other_node, gpus=6, owner_kind="StatefulSet")
        owner = CHAT.rpartition("-")[0]
        other = self.cluster.add_pod("serving", OTHER_CHAT, OTHER_NODES[0], {"app": "chat"}, owner=owner)
        self.cluster.put("pods", _with_readiness(other, "False"), user="system:kubelet")
        self.cluster.add_pod("team-vision", "labeller-0", OTHER_NODES[1], gpus=2)
        self.cluster.add_pdb("serving", "chat", {"app": "chat"}, min_available=1)
        controllers = ReplicaSets(self.cluster), Scheduler(self.cluster), NodeLifecycle(self.cluster)
        self._steps, self._world = (*controllers, workloads), world
        self._keep_plugin(days=2)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sim-controllers", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def get_ready(self) -> None:
        """Mark the other copy of the chat service ready: it has loaded its model."""
        pod = self.cluster.get("pods", "serving", OTHER_CHAT)
        if pod is not None:
            self.cluster.put("pods", _with_readiness(pod, "True"), user="system:kubelet")

    def ask_for_work(self) -> None:
        """Add a job of two pods, each of which needs a GPU on any node."""
        for name in EVALUATIONS:
            self.cluster.add_pod("ml-research", name, owner_kind="Job", owner="evaluate")

    def agree(self) -> None:
        """Opt some pods in to tuning, as their owners would."""
        for (namespace, name), annotations in AGREED.items():
            pod = self.cluster.get("pods", namespace, name)
            if pod is not None:
                metadata = {**pod["metadata"], "annotations": {**pod["metadata"].get("annotations", {}), **annotations}}
                self.cluster.put("pods", {**pod, "metadata": metadata})

    def _run(self) -> None:
        while not self._stopping.wait(STEP_SECONDS):
            for each in self._steps:
                each.step()
            self._keep_plugin()

    def _keep_plugin(self, days: int = 0) -> None:
        """Replace a device plugin pod that has ended, as its DaemonSet does; the new one offers every GPU."""
        (namespace, name), now = PLUGIN.split("/"), self.cluster.clock.time()
        if self.cluster.objects("pods", namespace):
            return
        self.cluster.add_namespace(namespace)
        number, owner = int(now) % 100_000, ("DaemonSet", name)
        pod = pod_object(namespace, f"{name}-{number}", labels={}, gpus=0, owner=owner, tolerations=())
        pod["metadata"] |= {"uid": f"plugin-{number}", "creationTimestamp": rfc3339(now - 86400.0 * days)}
        pod["spec"]["terminationGracePeriodSeconds"] = GRACE_SECONDS
        self.cluster.put("pods", running(pod, NODE, now), user="system:kubelet")
        self._world.inject(SetDevicePlugin())


def _with_readiness(pod: Object, ready: str) -> Object:
    conditions = [
        {**each, "status": ready} if each["type"] in ("Ready", "ContainersReady") else each
        for each in pod["status"]["conditions"]
    ]
    return {**pod, "status": {**pod["status"], "conditions": conditions}}
