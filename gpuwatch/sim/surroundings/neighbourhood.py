"""A small cluster around one simulated node, for demonstrations: two neighbours, pods with owners, one with a budget.

The neighbours are nothing but Nodes that take pods; the node itself is a World, whose work follows its pods.
"""

import threading
from types import TracebackType
from typing import Self

from gpuwatch.model.consent import AUTOTUNE, CLASS, MAX_SLOWDOWN
from gpuwatch.model.snapshot import Host
from gpuwatch.sim.kubeapi import NodeLifecycle, Object, ReplicaSets, Scheduler, SimulatedCluster
from gpuwatch.sim.node.actions import SimWorkload
from gpuwatch.sim.node.scenario import load
from gpuwatch.sim.node.tenancy import Tenancy
from gpuwatch.sim.world import World

NODE, NEIGHBOURS = "gpu-node-1", ("gpu-node-2", "gpu-node-3")
NAMESPACE = "gpuwatch"
SCENARIO = "demo"
GPUS = 8
GPU_NODE = {"nvidia.com/gpu.present": "true"}

CHAT, OTHER_CHAT = "chat-7b-5d9c7f6b8-x2k4q", "chat-7b-5d9c7f6b8-p8r4t"
EVALUATION = "evaluate-0"

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
"""(namespace, pod) -> annotations that its owners add when they let it be tuned."""

STEP_SECONDS = 0.2


class DemoCluster:
    """`cluster` with pods on three nodes and the controllers that move them; a context manager."""

    def __init__(self, world: World, host: Host) -> None:
        self.cluster = SimulatedCluster()
        for name in (NODE, *NEIGHBOURS):
            self.cluster.add_node(name, labels=GPU_NODE, gpus=GPUS)
        self._identify(host)
        self.cluster.add_namespace(NAMESPACE)
        self._tenancy = Tenancy(self.cluster, world, NODE, gpus=GPUS, running=load(SCENARIO).workloads, new=NEW_WORK)
        self._furnish()
        self._steps = (ReplicaSets(self.cluster), Scheduler(self.cluster), NodeLifecycle(self.cluster), self._tenancy)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sim-controllers", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()

    def get_ready(self) -> None:
        """The other copy of the chat service has loaded its model."""
        pod = self.cluster.get("pods", "serving", OTHER_CHAT)
        if pod is not None:
            self.cluster.put("pods", _with_readiness(pod, "True"), user="system:kubelet")

    def ask_for_work(self) -> None:
        """A new job wants two GPUs on one node, wherever they are."""
        self.cluster.add_pod("ml-research", EVALUATION, gpus=2, owner_kind="Job", owner="evaluate")

    def agree(self) -> None:
        """The owners of some pods let them be tuned."""
        for (namespace, name), annotations in AGREED.items():
            pod = self.cluster.get("pods", namespace, name)
            if pod is not None:
                metadata = {**pod["metadata"], "annotations": {**pod["metadata"].get("annotations", {}), **annotations}}
                self.cluster.put("pods", {**pod, "metadata": metadata})

    def _identify(self, host: Host) -> None:
        """The Node is this World's machine."""
        node = self.cluster.get("nodes", "", NODE)
        if node is not None:
            known = {"bootID": host.boot_id, "machineID": host.machine_id, "systemUUID": host.system_uuid}
            info = {**node["status"]["nodeInfo"], **{name: value or "" for name, value in known.items()}}
            self.cluster.put("nodes", {**node, "status": {**node["status"], "nodeInfo": info}})

    def _furnish(self) -> None:
        """One GPU is free on each node; the second copy of the chat service is not ready yet."""
        for node, number in zip(NEIGHBOURS, "12", strict=True):
            self.cluster.add_pod("ml-research", f"diffusion-{number}", node, gpus=6, owner_kind="StatefulSet")
        owner = CHAT.rpartition("-")[0]
        other = self.cluster.add_pod("serving", OTHER_CHAT, NEIGHBOURS[0], {"app": "chat"}, owner=owner)
        self.cluster.put("pods", _with_readiness(other, "False"), user="system:kubelet")
        self.cluster.add_pod("team-vision", "labeller-0", NEIGHBOURS[1])
        self.cluster.add_pdb("serving", "chat", {"app": "chat"}, min_available=1)

    def _run(self) -> None:
        while not self._stopping.wait(STEP_SECONDS):
            for each in self._steps:
                each.step()


def _with_readiness(pod: Object, ready: str) -> Object:
    conditions = [
        {**each, "status": ready} if each["type"] in ("Ready", "ContainersReady") else each
        for each in pod["status"]["conditions"]
    ]
    return {**pod, "status": {**pod["status"], "conditions": conditions}}
