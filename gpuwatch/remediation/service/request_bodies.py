"""Bodies of the requests that change something: what a step names and nothing else; what is not ours is refused here.

`spec.taints` is one atomic list that several controllers share. A patch with it carries the resourceVersion of the very
Node it was computed from and every foreign taint of that Node, or it is not made.
"""

from collections.abc import Collection
from typing import Any

from gpuwatch.kube.objects import CONDITION, DOMAIN, TAINT, Condition, LeaseObject, NodeObject, PodObject, Taint
from gpuwatch.kube.parse import rfc3339
from gpuwatch.remediation.model.plan import Announce, PatchNode

Json = dict[str, Any]

COMPONENT = "gpuwatch"
NODE_EVENTS = "default"
"""The namespace of Events about objects that have none."""


class NotOurs(AssertionError):
    """A step would change what belongs to somebody else: a bug, stopped before it does harm."""


def node_patch(node: NodeObject, step: PatchNode, also: Collection[str] = ()) -> Json:
    """A merge patch of `node` that does what `step` names. `also`: keys outside our domain that settings name.

    Raises:
        NotOurs: a foreign taint would appear, change or vanish, or a key is not ours.
    """
    if foreign := [key for key in (*step.annotations, *step.labels) if not _is_ours(key, also)]:
        raise NotOurs(f"{step.step} would change {', '.join(foreign)}")
    if step.taints is not None and _foreign(step.taints) != _foreign(node.taints):
        raise NotOurs(f"{step.step} would change a foreign taint: {_foreign(node.taints)} to {_foreign(step.taints)}")
    metadata: Json = {"resourceVersion": node.resource_version}
    metadata |= {name: dict(value) for name in ("annotations", "labels") if (value := getattr(step, name))}
    spec: Json = {}
    if step.taints is not None:
        spec["taints"] = [_taint(taint) for taint in step.taints] or None
    if step.unschedulable is not None:
        spec["unschedulable"] = step.unschedulable or None
    return {"metadata": metadata, **({"spec": spec} if spec else {})}


def condition_patch(node: NodeObject, condition: Condition | None) -> Json:
    """A strategic merge patch of node/status: there, and only there, conditions are merged by type.

    Its uid makes it fail on a Node that was created anew; no resourceVersion, because the kubelet writes status often.
    """
    if condition is not None and condition.type != CONDITION:
        raise NotOurs(f"a condition of type {condition.type}")
    entry: Json
    if condition is None:
        entry = {"type": CONDITION, "$patch": "delete"}
    else:
        entry = {
            "type": condition.type,
            "status": condition.status,
            "reason": condition.reason,
            "message": condition.message,
            "lastHeartbeatTime": condition.last_heartbeat,
            "lastTransitionTime": condition.last_transition,
        }
    return {"metadata": {"uid": node.uid}, "status": {"conditions": [entry]}}


def event(node: NodeObject, told: Announce, at: float) -> Json:
    """A v1 Event about the Node or a pod."""
    involved: Json = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
    namespace = NODE_EVENTS
    if told.pod is not None:
        namespace, name, uid = told.pod
        involved = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": told.name, "namespace": namespace},
        "involvedObject": involved,
        "reason": told.reason,
        "message": told.message,
        "type": "Warning" if told.warning else "Normal",
        "source": {"component": COMPONENT, "host": node.name},
        "reportingComponent": COMPONENT,
        "reportingInstance": node.name,
        "firstTimestamp": rfc3339(at),
        "lastTimestamp": rfc3339(at),
        "count": 1,
    }


def new_lease(name: str, namespace: str, holder: str, at: float, duration: float) -> Json:
    """A slot that nobody had before."""
    metadata = {"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/managed-by": COMPONENT}}
    spec = {**_held(holder, at, duration), "acquireTime": rfc3339(at, micro=True)}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def lease_patch(lease: LeaseObject, holder: str | None, at: float, duration: float) -> Json:
    """A merge patch that makes `holder` have the slot (None: nobody), unless it changed since it was read."""
    spec = _held(holder, at, duration)
    if holder is not None and holder != lease.holder:
        spec["acquireTime"] = rfc3339(at, micro=True)
    return {"metadata": {"resourceVersion": lease.resource_version}, "spec": spec}


def eviction(pod: PodObject) -> Json:
    """Of this very pod, not of a later one of its name."""
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }


def _held(holder: str | None, at: float, duration: float) -> Json:
    return {
        "holderIdentity": holder,
        "leaseDurationSeconds": max(1, round(duration)),
        "renewTime": rfc3339(at, micro=True),
    }


def _taint(taint: Taint) -> Json:
    entry = {"key": taint.key, "value": taint.value, "effect": taint.effect, "timeAdded": taint.time_added}
    return {name: value for name, value in entry.items() if value}


def _foreign(taints: tuple[Taint, ...]) -> list[Taint]:
    return [taint for taint in taints if taint.key != TAINT]


def _is_ours(key: str, also: Collection[str]) -> bool:
    return key.startswith(f"{DOMAIN}/") or key in also
