"""Changes the Node, its condition, Events, slots and pods; only a process in mode `enforce` has a NodeWriter.

Every method but `change_rule` is one request; all raise the errors of `kube.errors` and none retries. A body holds only
what a step names. `spec.taints` is one atomic list that several controllers share: a patch of it carries the
resourceVersion of the Node it was computed from and every foreign taint of that Node, or it is not made.
"""

from collections.abc import Collection
from typing import Any

from gpuwatch.kube import parse as kube_parse
from gpuwatch.kube.devices import DRIVER, RULES, WireRule, rule_of, rule_path
from gpuwatch.kube.errors import AlreadyExists, ApiCall, NotFound
from gpuwatch.kube.objects import (
    CONDITION,
    DOMAIN,
    TAINT,
    Condition,
    DeviceRule,
    LeaseObject,
    NodeObject,
    PodObject,
    Taint,
)
from gpuwatch.kube.reader import NODES, NodeReader, leases_path
from gpuwatch.kube.transport import MERGE_PATCH, STRATEGIC_MERGE_PATCH, Transport, path_segment
from gpuwatch.kube.wire import decode
from gpuwatch.model.clock import rfc3339
from gpuwatch.model.text import visible
from gpuwatch.remediation.model import OWNER, CreateEvent, DeleteRule, PatchNode, WriteRule

Json = dict[str, Any]

COMPONENT = "gpuwatch"
LABELS = {"app.kubernetes.io/managed-by": COMPONENT}
"""By these, admission policies recognise what a remediator creates, without delay for the requests of others."""
SHARD, SHARDS = f"{DOMAIN}/shard", 8
CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz-."
"""Of the names of Nodes."""
NODE_EVENTS = "default"
"""The namespace of Events about objects that have none."""


class NotOurs(AssertionError):
    """A step would change what belongs to another controller or a person: a bug, stopped before it does harm."""


def node_patch(node: NodeObject, step: PatchNode, also: Collection[str] = ()) -> Json:
    """A merge patch of `node` that does what `step` names. `also`: keys outside our domain that settings name.

    Raises:
        NotOurs: a foreign taint would appear, change or vanish, or a key is not ours.
    """
    keys = (*step.annotations, *step.labels)
    if foreign := [key for key in keys if not key.startswith(f"{DOMAIN}/") and key not in also]:
        raise NotOurs(f"{step.step} would change {', '.join(foreign)}")
    if step.taints is not None and _foreign(step.taints) != _foreign(node.taints):
        raise NotOurs(f"{step.step} would change a foreign taint: {_foreign(node.taints)} to {_foreign(step.taints)}")
    metadata: Json = {"resourceVersion": node.resource_version}
    metadata |= {name: dict(value) for name in ("annotations", "labels") if (value := getattr(step, name))}
    spec: Json = {}
    if step.taints is not None:
        entries = (
            {"key": taint.key, "value": taint.value, "effect": taint.effect, "timeAdded": taint.time_added}
            for taint in step.taints
        )
        spec["taints"] = [{name: value for name, value in entry.items() if value} for entry in entries] or None
    if step.unschedulable is not None:
        spec["unschedulable"] = step.unschedulable or None
    return {"metadata": metadata, **({"spec": spec} if spec else {})}


def condition_patch(node: NodeObject, condition: Condition | None) -> Json:
    """A strategic merge patch of node/status: there, and only there, conditions are merged by type.

    Its uid makes it fail on a Node that was created again; no resourceVersion, because the kubelet writes status often.
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


def event(node: NodeObject, step: CreateEvent, at: float) -> Json:
    """A v1 Event about the Node or a pod."""
    involved: Json = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
    namespace = NODE_EVENTS
    if step.pod is not None:
        namespace, name, uid = step.pod
        involved = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": step.name, "namespace": namespace},
        "involvedObject": involved,
        "reason": step.reason,
        "message": visible(step.message),
        "type": "Warning" if step.warning else "Normal",
        "source": {"component": COMPONENT, "host": node.name},
        "reportingComponent": COMPONENT,
        "reportingInstance": node.name,
        "firstTimestamp": rfc3339(at),
        "lastTimestamp": rfc3339(at),
        "count": 1,
    }


def slot_labels(holder: str) -> dict[str, str]:
    """Of a slot that `holder` has: an admission policy compares it with the slots of its shard, not with all."""
    return {**LABELS, SHARD: str(sum(CHARACTERS.find(each) for each in holder) % SHARDS)}


def new_lease(name: str, namespace: str, holder: str, at: float, duration: float) -> Json:
    """The Lease of a slot that has none yet."""
    metadata = {"name": name, "namespace": namespace, "labels": slot_labels(holder)}
    spec = {**_held(holder, at, duration), "acquireTime": rfc3339(at, micro=True)}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def lease_patch(lease: LeaseObject, holder: str | None, at: float, duration: float) -> Json:
    """A merge patch that gives the slot to `holder` (None: frees it), unless it changed since it was read."""
    spec = _held(holder, at, duration)
    if holder is not None and holder != lease.holder:
        spec["acquireTime"] = rfc3339(at, micro=True)
    labels = {"labels": slot_labels(holder)} if holder is not None else {}
    return {"metadata": {"resourceVersion": lease.resource_version, **labels}, "spec": spec}


def eviction(pod: PodObject) -> Json:
    """An Eviction of this pod, by its uid, and not of a later one of its name."""
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace, "labels": LABELS},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }


def _held(holder: str | None, at: float, duration: float) -> Json:
    return {
        "holderIdentity": holder,
        "leaseDurationSeconds": max(1, round(duration)),
        "renewTime": rfc3339(at, micro=True),
    }


def _foreign(taints: tuple[Taint, ...]) -> list[Taint]:
    return [taint for taint in taints if taint.key != TAINT]


class NodeWriter(NodeReader):
    """May also change the Node, its condition, Events, slots, and ask pods to leave; exists in mode `enforce` only.

    `also`: annotation keys outside our domain that the settings name (hand-over).
    """

    def __init__(self, transport: Transport, name: str, *, also: Collection[str] = ()) -> None:
        super().__init__(transport, name)
        self._also = frozenset(also)

    def patch_node(self, node: NodeObject, step: PatchNode, *, listed: str | None = None) -> NodeObject:
        """Do `step` if the Node still is as `node` shows it; the Node afterwards. `listed`: an annotation that the Node
        itself lists as ours; it may be removed, even where the settings do not name it any more.

        Raises:
            Conflict: it has changed since.
            NotOurs: the step would touch what is not ours.
        """
        call = ApiCall("patch", "nodes", self.name)
        gone = {listed} if listed and step.annotations.get(listed, "") is None else set[str]()
        body = node_patch(node, step, self._also | gone)
        path = f"{NODES}/{path_segment(self.name)}"
        return kube_parse.node(call, self._transport.request(call, path, body=body, content_type=MERGE_PATCH))

    def set_condition(self, node: NodeObject, condition: Condition | None) -> NodeObject:
        """Set or remove our condition; the Node afterwards."""
        call = ApiCall("patch", "nodes/status", self.name)
        body = condition_patch(node, condition)
        path = f"{NODES}/{path_segment(self.name)}/status"
        return kube_parse.node(call, self._transport.request(call, path, body=body, content_type=STRATEGIC_MERGE_PATCH))

    def create_event(self, node: NodeObject, step: CreateEvent, at: float) -> bool:
        """Create the Event; False where it exists already."""
        body = event(node, step, at)
        namespace = body["metadata"]["namespace"]
        call = ApiCall("create", "events", step.name, namespace)
        try:
            self._transport.request(call, f"/api/v1/namespaces/{path_segment(namespace)}/events", body=body)
        except AlreadyExists:
            return False
        return True

    def create_lease(self, namespace: str, name: str, at: float, duration: float) -> LeaseObject:
        """Take a slot that has no Lease yet. Raises AlreadyExists when another was faster."""
        call = ApiCall("create", "leases", name, namespace)
        body = new_lease(name, namespace, self.name, at, duration)
        return kube_parse.lease(call, self._transport.request(call, leases_path(namespace), body=body))

    def hold_lease(self, namespace: str, lease: LeaseObject, at: float, duration: float) -> LeaseObject:
        """Renew our slot, or take one over. Raises Conflict when it has changed since `lease` was read."""
        return self._change(namespace, lease, self.name, at, duration)

    def free_lease(self, namespace: str, lease: LeaseObject, at: float) -> LeaseObject:
        """Free a slot. Raises Conflict when it has changed since `lease` was read."""
        return self._change(namespace, lease, None, at, lease.duration or 1)

    def evict(self, pod: PodObject) -> None:
        """Request the eviction of the pod.

        Raises:
            TooMany: not now; with `disruption_budget`, because of one.
            NotFound, Conflict: it is gone, or another has its name by now.
        """
        call = ApiCall("create", "pods/eviction", pod.name, pod.namespace)
        path = f"/api/v1/namespaces/{path_segment(pod.namespace)}/pods/{path_segment(pod.name)}/eviction"
        self._transport.request(call, path, body=eviction(pod))

    def change_rule(self, step: WriteRule | DeleteRule) -> bool:
        """Create or delete a DeviceTaintRule; False where nothing had to be changed."""
        if isinstance(step, WriteRule):
            return self._create_rule(step.rule)
        return self._delete_rule(step.name, step.owner)

    def _create_rule(self, rule: DeviceRule) -> bool:
        """False where ours is there already.

        Raises:
            AlreadyExists: one of its name is not ours.
            NotFound: the cluster does not serve them any more.
        """
        version = self.rules_version()
        call = ApiCall("create", RULES, rule.name)
        body = {
            "apiVersion": f"resource.k8s.io/{version}",
            "kind": "DeviceTaintRule",
            "metadata": {"name": rule.name, "labels": LABELS, "annotations": {OWNER: rule.owner}},
            "spec": {
                "deviceSelector": {"driver": DRIVER, "pool": rule.pool, "device": rule.device},
                "taint": {"key": TAINT, "value": rule.value, "effect": rule.effect},
            },
        }
        try:
            self._transport.request(call, rule_path(version), body=body)
        except AlreadyExists:
            if self._rule(version, rule.name).owner != rule.owner:
                raise
            return False
        return True

    def _delete_rule(self, name: str, owner: str) -> bool:
        """False where it is gone, or not of the quarantine `owner`."""
        version = self.rules_version()
        if not version:
            return False
        try:
            rule = self._rule(version, name)
            if rule.owner != owner:
                return False
            body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": rule.uid}}
            self._transport.request(ApiCall("delete", RULES, name), rule_path(version, name), body=body)
        except NotFound:
            return False
        return True

    def _rule(self, version: str, name: str) -> DeviceRule:
        call = ApiCall("get", RULES, name)
        return rule_of(decode(call, self._transport.request(call, rule_path(version, name)), WireRule))

    def _change(
        self, namespace: str, lease: LeaseObject, holder: str | None, at: float, duration: float
    ) -> LeaseObject:
        call = ApiCall("patch", "leases", lease.name, namespace)
        path = f"{leases_path(namespace)}/{path_segment(lease.name)}"
        body = lease_patch(lease, holder, at, duration)
        return kube_parse.lease(call, self._transport.request(call, path, body=body, content_type=MERGE_PATCH))
