"""The Kubernetes API as gpuwatch needs it: NodeReader looks at one Node and what concerns it, NodeWriter changes it.

Who only observes is given a NodeReader and has no way to write. Every method is one request (`count_nodes`: one for 500
nodes) and raises the errors of `kube_errors`; none tries again by itself, because what should be done may have changed.
"""

from collections.abc import Collection
from urllib.parse import quote

from gpuwatch.kube import parse as kube_parse
from gpuwatch.kube.errors import AlreadyExists, Call
from gpuwatch.kube.transport import MERGE_PATCH, STRATEGIC_MERGE_PATCH, Transport
from gpuwatch.remediation.model.plan import (
    TAINT,
    Announce,
    Condition,
    LeaseObject,
    NodeObject,
    PatchNode,
    PodObject,
)
from gpuwatch.remediation.service import request_bodies as kube_body

_NODES = "/api/v1/nodes"
PAGE = 500
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"


class NodeReader:
    """The Node `name` and its pods, the slots of the budget, and other Nodes as far as they matter for those."""

    def __init__(self, transport: Transport, name: str) -> None:
        self._transport, self.name = transport, name

    def node(self) -> NodeObject:
        """Our own Node, as it is now."""
        return self.other_node(self.name)

    def other_node(self, name: str) -> NodeObject:
        """Any Node: who holds a slot that has run out is looked at before it is taken over."""
        call = Call("get", "nodes", name)
        return kube_parse.node(call, self._transport.request(call, f"{_NODES}/{_part(name)}"))

    def pods(self) -> tuple[PodObject, ...]:
        """All pods bound to our Node, also those that have ended."""
        call = Call("list", "pods")
        query = {"fieldSelector": f"spec.nodeName={self.name}"}
        return kube_parse.pods(call, self._transport.request(call, "/api/v1/pods", query=query))

    def tolerates(self, namespace: str, name: str, effect: str = "NoExecute") -> bool:
        """Whether a pod would stay on, or for NoSchedule come back to, a Node that has our taint with this effect."""
        call = Call("get", "pods", name, namespace)
        path = f"/api/v1/namespaces/{_part(namespace)}/pods/{_part(name)}"
        return kube_parse.tolerates(call, self._transport.request(call, path), TAINT, effect)

    def leases(self, namespace: str) -> tuple[LeaseObject, ...]:
        """All Leases of a namespace."""
        call = Call("list", "leases", namespace=namespace)
        return kube_parse.leases(call, self._transport.request(call, _leases(namespace)))

    def lease(self, namespace: str, name: str) -> LeaseObject:
        """One Lease."""
        call = Call("get", "leases", name, namespace)
        return kube_parse.lease(call, self._transport.request(call, f"{_leases(namespace)}/{_part(name)}"))

    def count_nodes(self, selector: str, page: int = PAGE) -> int:
        """How many Nodes carry these labels, `page` at a time; as rows of a table, since a Node has 10 KiB."""
        call = Call("list", "nodes")
        query: dict[str, str | int] = {"labelSelector": selector, "limit": page, "includeObject": "None"}
        total = 0
        while True:
            found, more = kube_parse.page(call, self._transport.request(call, _NODES, query=query, accept=_TABLE))
            total += found
            if more is None:
                return total
            query["continue"] = more

    def nodes_with(self, selector: str) -> frozenset[str]:
        """Names of the Nodes that carry these labels: for few, since they are read in one piece."""
        call = Call("list", "nodes")
        return kube_parse.names(
            call, self._transport.request(call, _NODES, query={"labelSelector": selector}, accept=_METADATA)
        )


class NodeWriter(NodeReader):
    """May also change the Node, its condition, Events, slots, and ask pods to leave; exists in mode `enforce` only.

    `also`: annotation keys outside our domain that the settings name (hand-over).
    """

    def __init__(self, transport: Transport, name: str, *, also: Collection[str] = ()) -> None:
        super().__init__(transport, name)
        self._also = frozenset(also)

    def patch_node(self, node: NodeObject, step: PatchNode, *, listed: str | None = None) -> NodeObject:
        """Do `step` if the Node still is as `node` shows it; the Node afterwards. `listed`: an annotation that the Node
        itself tells to be ours; it may be taken away, though settings name it no more.

        Raises:
            Conflict: it has changed since.
            NotOurs: the step would touch what is not ours.
        """
        call = Call("patch", "nodes", self.name)
        gone = {listed} if listed and step.annotations.get(listed, "") is None else set[str]()
        body = kube_body.node_patch(node, step, self._also | gone)
        path = f"{_NODES}/{_part(self.name)}"
        return kube_parse.node(call, self._transport.request(call, path, body=body, content_type=MERGE_PATCH))

    def set_condition(self, node: NodeObject, condition: Condition | None) -> NodeObject:
        """Set our condition, or take it away; the Node afterwards."""
        call = Call("patch", "nodes/status", self.name)
        body = kube_body.condition_patch(node, condition)
        path = f"{_NODES}/{_part(self.name)}/status"
        return kube_parse.node(call, self._transport.request(call, path, body=body, content_type=STRATEGIC_MERGE_PATCH))

    def create_event(self, node: NodeObject, told: Announce, at: float) -> bool:
        """Tell it, unless it has been told: False."""
        body = kube_body.event(node, told, at)
        namespace = body["metadata"]["namespace"]
        call = Call("create", "events", told.name, namespace)
        try:
            self._transport.request(call, f"/api/v1/namespaces/{_part(namespace)}/events", body=body)
        except AlreadyExists:
            return False
        return True

    def create_lease(self, namespace: str, name: str, at: float, duration: float) -> LeaseObject:
        """Take a slot that has no Lease yet. Raises AlreadyExists when another was faster."""
        call = Call("create", "leases", name, namespace)
        body = kube_body.new_lease(name, namespace, self.name, at, duration)
        return kube_parse.lease(call, self._transport.request(call, _leases(namespace), body=body))

    def hold_lease(self, namespace: str, lease: LeaseObject, at: float, duration: float) -> LeaseObject:
        """Renew our slot, or take one over. Raises Conflict when it has changed since `lease` was read."""
        return self._change(namespace, lease, self.name, at, duration)

    def free_lease(self, namespace: str, lease: LeaseObject, at: float) -> LeaseObject:
        """Give a slot back. Raises Conflict when it has changed since `lease` was read."""
        return self._change(namespace, lease, None, at, lease.duration or 1)

    def evict(self, pod: PodObject) -> None:
        """Ask the pod to leave.

        Raises:
            TooMany: not now; with `disruption_budget`, because of one.
            NotFound, Conflict: it is gone, or another has its name by now.
        """
        call = Call("create", "pods/eviction", pod.name, pod.namespace)
        path = f"/api/v1/namespaces/{_part(pod.namespace)}/pods/{_part(pod.name)}/eviction"
        self._transport.request(call, path, body=kube_body.eviction(pod))

    def _change(
        self, namespace: str, lease: LeaseObject, holder: str | None, at: float, duration: float
    ) -> LeaseObject:
        call = Call("patch", "leases", lease.name, namespace)
        path = f"{_leases(namespace)}/{_part(lease.name)}"
        body = kube_body.lease_patch(lease, holder, at, duration)
        return kube_parse.lease(call, self._transport.request(call, path, body=body, content_type=MERGE_PATCH))


def _leases(namespace: str) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{_part(namespace)}/leases"


def _part(name: str) -> str:
    return quote(name, safe="")
