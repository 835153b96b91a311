"""Evicted work comes back elsewhere: the stand-ins for Kubernetes' controllers, by themselves and together."""

import pytest

from gpuwatch.sim.kubeapi.cluster import SimulatedCluster
from gpuwatch.sim.kubeapi.controllers import NodeLifecycle, ReplicaSets, Scheduler
from tests.sim.node.nodes import FakeClock

FAULT = {"key": "gpuwatch.io/gpu-fault", "value": "xid", "effect": "NoSchedule"}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cluster(clock) -> SimulatedCluster:
    made = SimulatedCluster(clock)
    for name in ("gpu-1", "gpu-2"):
        made.add_node(name, gpus=2)
    return made


def taint(cluster: SimulatedCluster, node: str, *taints: dict) -> None:
    found = cluster.get("nodes", "", node)
    cluster.put("nodes", {**found, "spec": {**found["spec"], "taints": list(taints)}})


def places(cluster: SimulatedCluster) -> list[str | None]:
    return sorted(pod["spec"].get("nodeName", "nowhere") for pod in cluster.objects("pods"))


def test_work_moves_from_a_tainted_node_to_a_healthy_one(cluster):
    replicas, scheduler = ReplicaSets(cluster), Scheduler(cluster)
    for number in range(2):
        cluster.add_pod("ml", f"train-{number}", "gpu-1", {"app": "train"})
    assert (replicas.step(), scheduler.step()) == ([], [])
    taint(cluster, "gpu-1", FAULT)
    for number in range(2):
        cluster.delete("pods", "ml", f"train-{number}", grace=0)
    created = replicas.step()
    assert [pod["metadata"]["labels"] for pod in created] == [{"app": "train"}] * 2
    assert replicas.step() == []
    assert len(scheduler.step()) == 2
    assert places(cluster) == ["gpu-2", "gpu-2"]


def test_a_pod_that_leaves_is_replaced_at_once_and_keeps_its_gpus_until_it_is_gone(cluster, clock):
    cluster.add_pod("ml", "train-1", "gpu-2", gpus=2)
    taint(cluster, "gpu-1", FAULT)
    replicas, scheduler = ReplicaSets(cluster), Scheduler(cluster)
    replicas.step()
    cluster.delete("pods", "ml", "train-1", grace=10)
    assert len(replicas.step()) == 1
    assert scheduler.step() == []
    clock.advance(10)
    assert len(scheduler.step()) == 1
    assert places(cluster) == ["gpu-2"]


@pytest.mark.parametrize("obstacle", ["taint", "cordon", "full", "not ready"])
def test_nothing_is_scheduled_where_it_must_not(cluster, obstacle):
    for name in ("gpu-1", "gpu-2"):
        node = cluster.get("nodes", "", name)
        if obstacle == "taint":
            taint(cluster, name, FAULT)
        elif obstacle == "cordon":
            cluster.put("nodes", {**node, "spec": {"unschedulable": True}})
        elif obstacle == "full":
            cluster.add_pod("ml", f"busy-{name}", name, gpus=2)
        else:
            cluster.put("nodes", {**node, "status": {**node["status"], "conditions": []}})
    cluster.add_pod("ml", "train-1")
    assert Scheduler(cluster).step() == []


def test_a_toleration_opens_a_tainted_node(cluster):
    for name in ("gpu-1", "gpu-2"):
        taint(cluster, name, FAULT)
    cluster.add_pod("ml", "train-1", tolerations=[{"key": FAULT["key"], "operator": "Exists"}])
    assert len(Scheduler(cluster).step()) == 1


def test_pods_without_a_controller_do_not_come_back(cluster):
    cluster.add_pod("ml", "lonely", "gpu-1", owner_kind=None)
    replicas = ReplicaSets(cluster)
    replicas.step()
    cluster.delete("pods", "ml", "lonely", grace=0)
    assert replicas.step() == []


def test_a_cordon_is_mirrored_in_a_taint_beside_others(cluster):
    lifecycle = NodeLifecycle(cluster)
    taint(cluster, "gpu-1", FAULT)
    node = cluster.get("nodes", "", "gpu-1")
    cluster.put("nodes", {**node, "spec": {**node["spec"], "unschedulable": True}})
    [changed] = lifecycle.step()
    assert [each["key"] for each in changed["spec"]["taints"]] == [FAULT["key"], "node.kubernetes.io/unschedulable"]
    assert lifecycle.step() == []
    cluster.put("nodes", {**changed, "spec": {"taints": changed["spec"]["taints"]}})
    assert [each["spec"]["taints"] for each in lifecycle.step()] == [[FAULT]]
