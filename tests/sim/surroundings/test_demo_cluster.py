"""A simulated node's work follows its pods, and the cluster around it brings evicted work back elsewhere."""

import pytest

from gpuwatch.model.snapshot import Host
from gpuwatch.sim.directory import attach, inject
from gpuwatch.sim.kubeapi.objects import gpus_of
from gpuwatch.sim.node.pods import pods as pods_of
from gpuwatch.sim.surroundings.demo_cluster import (
    CHAT,
    EVALUATIONS,
    NODE,
    OTHER_CHAT,
    OTHER_NODES,
    PLUGIN,
    SCENARIO,
    DemoCluster,
)
from gpuwatch.sim.world import World
from tests.waiting import until

JOB = {f"ml-research/{name}" for name in EVALUATIONS}
HOST = Host(boot_id="boot-1", machine_id="machine-1", system_uuid="uuid-1")


@pytest.fixture
def place(tmp_path):
    with World(SCENARIO, tmp_path) as world, DemoCluster(world, HOST) as town:
        yield town, tmp_path


def running(directory):
    """Names of the work on the node's GPUs."""
    return set(attach(directory).update().workloads)


def pods(town, *nodes):
    return {pod["metadata"]["name"]: pod for name in nodes for pod in town.cluster.pods_on(name)}


def test_the_node_is_the_machine_and_has_its_pods(place):
    town, directory = place
    info = town.cluster.get("nodes", "", NODE)["status"]["nodeInfo"]
    assert (info["bootID"], info["machineID"], info["systemUUID"]) == ("boot-1", "machine-1", "uuid-1")
    here = {f"{pod['metadata']['namespace']}/{name}" for name, pod in pods(town, NODE).items() if gpus_of(pod)}
    assert here == running(directory)


def cordon(town, wanted=True):
    node = town.cluster.get("nodes", "", NODE)
    town.cluster.put("nodes", {**node, "spec": {"unschedulable": True} if wanted else {}})


def test_work_that_is_evicted_ends_on_the_gpu_and_comes_back_on_a_neighbour(place):
    town, directory = place
    cordon(town)
    town.cluster.delete("pods", "serving", CHAT)
    until(lambda: f"serving/{CHAT}" not in running(directory))
    until(lambda: len([name for name in pods(town, *OTHER_NODES) if name.startswith("chat-")]) == 2)


def test_pods_are_known_by_the_uids_that_the_cluster_gave_them(place):
    town, directory = place
    cordon(town)
    town.cluster.delete("pods", "serving", CHAT)
    until(lambda: f"serving/{CHAT}" not in running(directory))
    cordon(town, wanted=False)
    town.ask_for_work()
    until(lambda: running(directory) >= JOB)
    node = attach(directory).update()
    on_gpus = {pod.pod: pod.pod_uid for pod in pods_of(node)}
    here = {name: pod["metadata"]["uid"] for name, pod in pods(town, NODE).items() if gpus_of(pod)}
    assert on_gpus == here


def test_new_work_gets_free_gpus_on_the_node(place):
    town, directory = place
    cordon(town)
    town.cluster.delete("pods", "serving", CHAT)
    until(lambda: len([name for name in pods(town, *OTHER_NODES) if name.startswith("chat-")]) == 2)
    until(lambda: CHAT not in pods(town, NODE))
    town.ask_for_work()
    cordon(town, wanted=False)
    until(lambda: running(directory) >= JOB)
    used = [gpu for work in attach(directory).update().workloads.values() for gpu in work.gpus]
    assert len(used) == len(set(used)) == 8


def allocatable(town):
    """What the Node says that pods may have."""
    return town.cluster.get("nodes", "", NODE)["status"]["allocatable"]["nvidia.com/gpu"]


def test_a_gpu_that_the_device_plugin_takes_out_gets_no_pod_until_the_plugin_starts_again(place):
    town, directory = place
    inject(directory, {"do": "device_plugin", "unhealthy": [7]})  # the free one
    until(lambda: allocatable(town) == "7")
    cordon(town)
    town.cluster.delete("pods", "serving", CHAT)
    until(lambda: len([name for name in pods(town, *OTHER_NODES) if name.startswith("chat-")]) == 2)
    until(lambda: CHAT not in pods(town, NODE))
    town.ask_for_work()
    cordon(town, wanted=False)
    until(lambda: running(directory) & JOB)
    assert attach(directory).update().workloads[f"ml-research/{EVALUATIONS[0]}"].gpus == (4,)
    assert "nodeName" not in town.cluster.get("pods", "ml-research", EVALUATIONS[1])["spec"]
    namespace, name = PLUGIN.split("/")
    (plugin,) = (each["metadata"]["name"] for each in town.cluster.objects("pods", namespace))
    assert plugin.startswith(name)
    town.cluster.delete("pods", namespace, plugin)
    until(lambda: running(directory) >= JOB)
    assert allocatable(town) == "8"
    assert len(town.cluster.objects("pods", namespace)) == 1


def test_the_other_copy_becomes_ready_on_request(place):
    town, _ = place

    def ready():
        conditions = town.cluster.get("pods", "serving", OTHER_CHAT)["status"]["conditions"]
        return next(each["status"] for each in conditions if each["type"] == "Ready")

    assert ready() == "False"
    town.get_ready()
    assert ready() == "True"
