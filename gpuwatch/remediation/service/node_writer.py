"""Changes the Node, its condition, Events, slots and pods. A process that only observes is given a NodeReader and has
no way to write. Every method is one request, raises the errors of `kube.errors` and never tries again by itself.
"""

from collections.abc import Collection

from gpuwatch.kube import parse as kube_parse
from gpuwatch.kube.errors import AlreadyExists, Call
from gpuwatch.kube.objects import Condition, LeaseObject, NodeObject, PodObject
from gpuwatch.kube.reader import NODES, NodeReader, leases_path, path_segment
from gpuwatch.kube.transport import MERGE_PATCH, STRATEGIC_MERGE_PATCH, Transport
from gpuwatch.remediation.model.plan import Announce, PatchNode
from gpuwatch.remediation.service import request_bodies as kube_body


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
        path = f"{NODES}/{path_segment(self.name)}"
        return kube_parse.node(call, self._transport.request(call, path, body=body, content_type=MERGE_PATCH))

    def set_condition(self, node: NodeObject, condition: Condition | None) -> NodeObject:
        """Set our condition, or take it away; the Node afterwards."""
        call = Call("patch", "nodes/status", self.name)
        body = kube_body.condition_patch(node, condition)
        path = f"{NODES}/{path_segment(self.name)}/status"
        return kube_parse.node(call, self._transport.request(call, path, body=body, content_type=STRATEGIC_MERGE_PATCH))

    def create_event(self, node: NodeObject, told: Announce, at: float) -> bool:
        """Tell it, unless it has been told: False."""
        body = kube_body.event(node, told, at)
        namespace = body["metadata"]["namespace"]
        call = Call("create", "events", told.name, namespace)
        try:
            self._transport.request(call, f"/api/v1/namespaces/{path_segment(namespace)}/events", body=body)
        except AlreadyExists:
            return False
        return True

    def create_lease(self, namespace: str, name: str, at: float, duration: float) -> LeaseObject:
        """Take a slot that has no Lease yet. Raises AlreadyExists when another was faster."""
        call = Call("create", "leases", name, namespace)
        body = kube_body.new_lease(name, namespace, self.name, at, duration)
        return kube_parse.lease(call, self._transport.request(call, leases_path(namespace), body=body))

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
        path = f"/api/v1/namespaces/{path_segment(pod.namespace)}/pods/{path_segment(pod.name)}/eviction"
        self._transport.request(call, path, body=kube_body.eviction(pod))

    def _change(
        self, namespace: str, lease: LeaseObject, holder: str | None, at: float, duration: float
    ) -> LeaseObject:
        call = Call("patch", "leases", lease.name, namespace)
        path = f"{leases_path(namespace)}/{path_segment(lease.name)}"
        body = kube_body.lease_patch(lease, holder, at, duration)
        return kube_parse.lease(call, self._transport.request(call, path, body=body, content_type=MERGE_PATCH))
