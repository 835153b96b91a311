"""Work on the node of these tests, and what gpuwatch and the API server say of it."""

import json

from tests.deploy.rendering import kustomization
from tests.node.cluster import NODE

SECONDS = 120.0
WORK = {"image": "localhost/busybox:1", "command": ["sleep", "100000"]}
POLICY = """
agent: {wait_for_driver: true}
remediation:
  recovery_hold: 5
  min_quarantine: 5
  budget: {max_unavailable: 1}
  checks: {xid_fatal: drain, gpu_lost: drain}
  device_effect: NoExecute
"""


def overlay(place, policy, *components):
    """A folder for `kubectl apply -k`: the GPU Operator's overlay, what acts on nodes, and further components."""
    generator = {
        "name": "gpuwatch",
        "namespace": "gpuwatch",
        "behavior": "replace",
        "literals": [f"gpuwatch.yaml={policy}"],
    }
    acting = ("klog", "processes", "remediation", "remediation-enforce", "remediation-drain", "remediation-devices")
    return kustomization(place, *acting, *components, on="overlays/gpu-operator", configMapGenerator=[generator])


def pod(name, *gpus, init=0, **spec):
    """A pod of namespace `ml` with a container for each number of GPUs."""
    containers = [
        {"name": f"c{number}", **WORK, "resources": {"limits": {"nvidia.com/gpu": count} if count else {}}}
        for number, count in enumerate(gpus)
    ]
    sidecars = [{"name": "init", **WORK, "restartPolicy": "Always", "resources": {"limits": {"nvidia.com/gpu": init}}}]
    more = {"initContainers": sidecars} if init else {}
    metadata = {"name": name, "namespace": "ml"}
    spec = {"terminationGracePeriodSeconds": 1, "containers": containers, **more, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def gpuwatch(node, *arguments, container="agent", check=True):
    """A command in gpuwatch's pod."""
    target = ("-n", "gpuwatch", "exec", "daemonset/gpuwatch", "-c", container, "--", "gpuwatch")
    return node.kubectl(*target, *arguments, check=check)


def holders(node):
    """Pod -> indexes of its GPUs, as gpuwatch has it."""
    found = {}
    for item in json.loads(gpuwatch(node, "get", "pods", "-o", "json"))["items"]:
        found.setdefault(item["pod"], set()).add(item["gpu"])
    return found


def deployment(replicas):
    """Work with a GPU for each replica, and a budget that lets one of them go at a time."""
    labels = {"app": "serve"}
    template = {"metadata": {"labels": labels}, "spec": pod("serve", 1)["spec"]}
    metadata = {"name": "serve", "namespace": "ml"}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    budget = {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    return (
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec},
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": budget},
    )


def lose(node, gpu):
    """XID 79, as the driver reports it; then it does not answer."""
    node.driver.xid(gpu, 79)
    node.driver.lose(gpu)


def taints(node):
    """Keys of the Node's taints that are gpuwatch's."""
    found = node.get("node", NODE)["spec"].get("taints", [])
    return [each["key"] for each in found if each["key"].startswith("gpuwatch.io/")]


def pods(node):
    """Those of the work that have not been told to end."""
    return [each for each in node.get("-n", "ml", "pods")["items"] if "deletionTimestamp" not in each["metadata"]]


def names(node):
    return {each["metadata"]["name"] for each in pods(node)}
