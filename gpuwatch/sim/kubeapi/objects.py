"""Nodes and pods as a kubelet and controllers write them, and predicates about them."""

import random
from collections.abc import Mapping, Sequence

from gpuwatch.model.clock import rfc3339
from gpuwatch.sim.kubeapi.messages import Object

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # no vowels, so no words
GPU = "nvidia.com/gpu"


def suffix(chance: random.Random) -> str:
    """Five letters as generateName appends them."""
    return "".join(chance.choices(_LETTERS, k=5))


def node_object(
    name: str, *, machine_id: str, boot_id: str, labels: Mapping[str, str], gpus: int, now: float
) -> Object:
    """A Node as its kubelet registers it, Ready."""
    since = rfc3339(now)
    resources = {"cpu": "128", "memory": "1056Gi", "pods": "250", **({GPU: str(gpus)} if gpus else {})}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **labels}},
        "spec": {},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "KubeletReady",
                    "message": "kubelet is posting ready status",
                    "lastHeartbeatTime": since,
                    "lastTransitionTime": since,
                }
            ],
            "addresses": [{"type": "Hostname", "address": name}],
            "nodeInfo": {
                "machineID": machine_id,
                "systemUUID": machine_id,
                "bootID": boot_id,
                "kernelVersion": "6.8.0",
                "osImage": "gpuwatch simulation",
                "containerRuntimeVersion": "containerd://2.1.4",
                "kubeletVersion": "v1.36.3",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    }


def pod_object(
    namespace: str,
    name: str,
    *,
    labels: Mapping[str, str],
    gpus: int,
    owner: tuple[str, str] | None,
    tolerations: Sequence[Object],
) -> Object:
    """A Pod with one container; `owner` is kind and name of its controller."""
    resources = {"limits": {GPU: str(gpus)}, "requests": {GPU: str(gpus)}} if gpus else {}
    metadata: Object = {"name": name, "namespace": namespace, "labels": dict(labels)}
    if owner is not None:
        kind, owner_name = owner
        metadata["ownerReferences"] = [
            {
                "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
                "kind": kind,
                "name": owner_name,
                "uid": f"{namespace}-{owner_name}",
                "controller": True,
            }
        ]
    return {
        "metadata": metadata,
        "spec": {
            "containers": [{"name": "main", "image": "registry.example/work:1", "resources": resources}],
            "tolerations": list(tolerations),
        },
        "status": {"phase": "Pending"},
    }


def running(pod: Object, node: str, now: float) -> Object:
    """The pod, bound to a node, started and ready."""
    ready = [
        {"type": kind, "status": "True", "lastTransitionTime": rfc3339(now)}
        for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    ]
    status = {"phase": "Running", "startTime": rfc3339(now), "conditions": ready}
    return {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": status}


def is_ready(pod: Object) -> bool:
    """Whether the Ready condition is true."""
    conditions = pod.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def is_over(pod: Object) -> bool:
    """Whether its containers ended for good."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def is_leaving(pod: Object) -> bool:
    """Whether it is being deleted."""
    return "deletionTimestamp" in pod["metadata"]


def gpus_of(pod: Object) -> int:
    """GPUs that its containers ask for."""
    limits = (each.get("resources", {}).get("limits", {}) for each in pod["spec"]["containers"])
    return sum(int(limit.get(GPU, 0)) for limit in limits)


def controller_of(value: Object) -> Object | None:
    """The owner reference of the controller."""
    owners = value["metadata"].get("ownerReferences", [])
    return next((owner for owner in owners if owner.get("controller")), None)


def tolerates(pod: Object, taint: Object) -> tuple[bool, float | None]:
    """Whether the pod tolerates the taint, and for how many seconds; None is for ever."""
    fitting = [
        each
        for each in pod["spec"].get("tolerations", [])
        if each.get("effect", taint["effect"]) == taint["effect"]
        and (
            each.get("key", taint["key"]) == taint["key"]
            if each.get("operator") == "Exists"
            else (each.get("key"), each.get("value", "")) == (taint["key"], taint.get("value", ""))
        )
    ]
    limits = [float(each["tolerationSeconds"]) for each in fitting if "tolerationSeconds" in each]
    return bool(fitting), min(limits, default=None)
