"""What a server adds to an object, and what it keeps from being changed."""

from gpuwatch.sim.kubeapi.message import Object
from gpuwatch.sim.kubeapi.objects import pruned
from gpuwatch.sim.kubeapi.resources import Resource

_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_SYSTEM_FIELDS = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
)
_DEFAULT_SPEC: dict[str, Object] = {
    "Pod": {
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 0,
        "securityContext": {},
    },
    "Namespace": {"finalizers": ["kubernetes"]},
}
_CONTAINER: Object = {
    "imagePullPolicy": "Always",
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_NODE_INFO = (
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
)
_CONDITION: dict[str, Object] = {
    "Node": {"lastHeartbeatTime": None, "lastTransitionTime": None},
    "Pod": {"lastProbeTime": None, "lastTransitionTime": None},
    "PodDisruptionBudget": {"message": ""},
}
_FIRST_STATUS: dict[str, Object] = {
    "Pod": {"phase": "Pending", "qosClass": "BestEffort"},
    "Namespace": {"phase": "Active"},
    "PodDisruptionBudget": {"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0},
}
_KNOWN = {
    "Node": ("podCIDR", "podCIDRs", "providerID", "unschedulable", "taints", "configSource", "externalID"),
    "Lease": (
        "holderIdentity",
        "leaseDurationSeconds",
        "acquireTime",
        "renewTime",
        "leaseTransitions",
        "strategy",
        "preferredHolder",
    ),
    "PodDisruptionBudget": ("minAvailable", "maxUnavailable", "selector", "unhealthyPodEvictionPolicy"),
}
"""Members of spec; all others are dropped, where a kind is listed."""
_NO_KUBELET: Object = {"kubeletEndpoint": {"Port": 0}}
_EVENT: Object = {"source": {}, "firstTimestamp": None, "lastTimestamp": None, "eventTime": None}
_REPORTER = {"reportingComponent": "", "reportingInstance": ""}


def created(resource: Resource, value: Object) -> Object:
    """A new object as the server stores it."""
    new = tidied(resource, value)
    if resource.kind in _DEFAULT_SPEC:
        new["spec"] = {**_DEFAULT_SPEC[resource.kind], **new.get("spec", {})}
    if resource.kind == "Pod":
        new["spec"]["containers"] = [{**_CONTAINER, **each} for each in new["spec"].get("containers", [])]
        new["spec"]["tolerations"] = _tolerations(new["spec"].get("tolerations", []))
    if resource.kind in _FIRST_STATUS:
        new["status"] = _FIRST_STATUS[resource.kind]
    if resource.generation:
        new["metadata"] = {**new["metadata"], "generation": 1}
    if resource.kind == "Node" and not _is_tainted_not_ready(new):  # the admission plugin TaintNodesByCondition
        new["spec"] = {**new["spec"], "taints": [*new["spec"].get("taints", []), _NOT_READY]}
    return new


def restored(resource: Resource, subresource: str, old: Object, new: Object) -> Object:
    """`new`, with all that this way of writing may not change taken from `old`."""
    kept = {field: old["metadata"][field] for field in _SYSTEM_FIELDS if field in old["metadata"]}
    metadata = {key: value for key, value in new["metadata"].items() if key not in _SYSTEM_FIELDS}
    part = "spec" if subresource == "status" else "status"
    result = {key: value for key, value in new.items() if key not in (part, "metadata")}
    if not resource.subresources:
        result = {key: value for key, value in new.items() if key != "metadata"}
    elif part in old:
        result[part] = old[part]
    result = tidied(resource, {**result, "metadata": {**metadata, **kept}})
    if resource.generation and result.get("spec") != old.get("spec"):
        result["metadata"] = {**result["metadata"], "generation": old["metadata"]["generation"] + 1}
    return result


def tidied(resource: Resource, value: Object) -> Object:
    """The object without what is empty, as Go writes it."""
    new: Object = pruned(value)
    if "status" in resource.subresources:
        new = {**new, "spec": new.get("spec", {}), "status": new.get("status", {})}
    for field in ("labels", "annotations"):
        if not new["metadata"].get(field, True):
            del new["metadata"][field]
    if resource.kind in _KNOWN and isinstance(new.get("spec"), dict):
        new["spec"] = {key: each for key, each in new["spec"].items() if key in _KNOWN[resource.kind]}
    if resource.kind == "Node":
        spec = {key: each for key, each in new.get("spec", {}).items() if (key, each) != ("unschedulable", False)}
        status = new.get("status", {})
        info = {**dict.fromkeys(_NODE_INFO, ""), **status.get("nodeInfo", {})}
        new = {**new, "spec": spec, "status": {"daemonEndpoints": _NO_KUBELET, **status, "nodeInfo": info}}
    if (blank := _CONDITION.get(resource.kind)) and (conditions := new.get("status", {}).get("conditions")):
        new["status"] = {**new["status"], "conditions": [{**blank, **each} for each in conditions]}
    if resource.kind == "Event":
        new = {**_EVENT, **new, **{field: new.get(field, empty) for field, empty in _REPORTER.items()}}
    return {"kind": resource.kind, "apiVersion": resource.api_version, **new}


def _tolerations(given: list[Object]) -> list[Object]:
    """With those that the admission plugin DefaultTolerationSeconds adds."""
    keys = [each.get("key") for each in given]
    added = (
        {"key": f"node.kubernetes.io/{why}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for why in ("not-ready", "unreachable")
    )
    return [*given, *(each for each in added if each["key"] not in keys and None not in keys)]


def _is_tainted_not_ready(node: Object) -> bool:
    return any(taint.get("key") == _NOT_READY["key"] for taint in node["spec"].get("taints", []))
