"""Two nodes and a budget of one: the second sick node keeps its work until the first is given back."""

import json

import pytest

from gpuwatch.remediation.model import OWNER
from tests.image.base import IMAGE
from tests.node.cluster import NODE, PRODUCT
from tests.node.work import SECONDS, lose, pod
from tests.waiting import until

SICK = 7
LABELS = {"app": "moves"}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "moves", "namespace": "ml"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": LABELS},
        "template": {"metadata": {"labels": LABELS}, "spec": pod("moves", 8)["spec"]},
    },
}
"""It has all GPUs of a node."""


@pytest.fixture(scope="module")
def second(deployed):
    """A second node with the plugin, gpuwatch and all its images."""
    with deployed.second_node(deployed.folder / "second") as node:
        node.load(IMAGE, PRODUCT)
        node.start_plugin()
        until(lambda: deployed.allocatable(node.name).get("nvidia.com/gpu") == 8, "it offers 8 GPUs", SECONDS, step=0.5)
        rolled_out = ("rollout", "status", "daemonset/gpuwatch", f"--timeout={SECONDS:.0f}s")
        until(lambda: set(agents(deployed)) == {NODE, node.name}, "gpuwatch is on both", SECONDS, step=0.5)
        deployed.kubectl("-n", "gpuwatch", *rolled_out)
        yield node
        left = agents(deployed)[node.name]
    deployed.kubectl("-n", "gpuwatch", "delete", "pod", left, "--force", "--grace-period=0", "--ignore-not-found")


def agents(cluster):
    """Node -> gpuwatch's pod on it."""
    found = cluster.get("-n", "gpuwatch", "pods")["items"]
    return {each["spec"].get("nodeName"): each["metadata"]["name"] for each in found}


def ask(cluster, node, *arguments):
    """A command in gpuwatch's pod on one of the nodes."""
    target = ("-n", "gpuwatch", "exec", agents(cluster)[node.name], "-c", "agent", "--", "gpuwatch")
    return cluster.kubectl(*target, *arguments)


def quarantined(cluster):
    """Nodes that gpuwatch holds: by a taint, or without one where the device plugin has taken the GPU out."""
    marks = {each["metadata"]["name"]: each["metadata"]["annotations"] for each in cluster.get("nodes")["items"]}
    found = {name for name, own in marks.items() if json.loads(own.get(OWNER, "{}")).get("state") == "applied"}
    assert len(found) <= 1, "the budget is kept"
    return found


def fail(cluster, node):
    lose(node, SICK)
    until(lambda: is_lost(cluster, node), f"a GPU of {node.name} is lost", SECONDS, step=0.5)


def repair(cluster, node):
    node.driver.restore(SICK)
    node.stop("device-plugin")  # it counts the GPU out until it is started anew
    node.start_plugin()
    until(lambda: not is_lost(cluster, node), f"all GPUs of {node.name} answer", SECONDS, step=0.5)
    ask(cluster, node, "repaired", str(SICK))


def is_lost(cluster, node):
    return "gpu_lost" in ask(cluster, node, "get", "findings", "-o", "json")


def place_of_work(cluster):
    """The Node on which the work runs; None: nowhere."""
    running = [each for each in cluster.get("-n", "ml", "pods")["items"] if each["status"]["phase"] == "Running"]
    running = [each["spec"]["nodeName"] for each in running if "deletionTimestamp" not in each["metadata"]]
    return running[0] if running else None


def test_two_sick_nodes_are_quarantined_one_after_the_other(deployed, second):
    deployed.apply(DEPLOYMENT)
    first_place = until(lambda: place_of_work(deployed), "the work runs", SECONDS, step=0.5)
    first, other = (deployed, second) if first_place == NODE else (second, deployed)
    fail(deployed, first)
    until(lambda: quarantined(deployed) == {first.name}, "the first is quarantined", SECONDS, step=0.3)
    until(lambda: place_of_work(deployed) == other.name, "its work goes to the other", SECONDS, step=0.5)
    fail(deployed, other)
    until(lambda: waits_for_the_budget(deployed, other), "the other waits for the budget", SECONDS, step=0.5)
    assert quarantined(deployed) == {first.name}
    assert place_of_work(deployed) == other.name, "where nothing is quarantined, nothing is evicted"
    repair(deployed, first)
    until(lambda: quarantined(deployed) == {other.name}, "then it is quarantined", SECONDS, step=0.3)
    until(lambda: place_of_work(deployed) == first.name, "its work goes back", SECONDS, step=0.5)
    repair(deployed, other)
    until(lambda: not quarantined(deployed), "both are given back", SECONDS, step=0.5)
    leases = deployed.get("-n", "gpuwatch", "leases")["items"]
    assert [each["spec"].get("holderIdentity") for each in leases if each["spec"].get("holderIdentity")] == []
    deployed.kubectl("-n", "ml", "delete", "deployment", "--all")
    until(lambda: place_of_work(deployed) is None, "the work is gone", SECONDS, step=0.5)


def waits_for_the_budget(cluster, node):
    """As the metrics of its remediator have it."""
    address = cluster.get("-n", "gpuwatch", "pod", agents(cluster)[node.name])["status"]["podIP"]
    page = cluster.run("busybox", "wget", "-q", "-O", "-", f"http://{address}:9401/metrics")
    return 'gpuwatch_remediator_blocked{reason="budget"} 1' in page
