"""The Node of this process and what concerns it, read only; `remediation.service.node_writer` changes it.

Every method is one request (`count_nodes`: one for 500 nodes; `devices`, `rules_version`: several), raises the errors
of `kube.errors` and never retries, because what should be done may have changed.
"""

import os
from collections.abc import Mapping
from typing import NamedTuple

from gpuwatch.config import RemediationConfig, TuningConfig
from gpuwatch.kube import parse as kube_parse
from gpuwatch.kube.devices import read_devices, rules_version
from gpuwatch.kube.errors import ApiCall
from gpuwatch.kube.objects import TAINT, DraState, LeaseObject, NodeObject, PodObject
from gpuwatch.kube.transport import Transport, path_segment
from gpuwatch.model.errors import UsageError

DEFAULT_NAMESPACE = "gpuwatch"


class OwnNode(NamedTuple):
    """`pod` is (namespace, name) of our pod, None outside of pods. `namespace`: of the budget's Leases, by default."""

    node: str
    namespace: str = DEFAULT_NAMESPACE
    pod: tuple[str, str] | None = None

    @classmethod
    def of(cls, config: RemediationConfig | TuningConfig, environment: Mapping[str, str] = os.environ) -> "OwnNode":
        """The configuration first, then NODE_NAME, POD_NAMESPACE and POD_NAME as the downward API gives them.

        Raises:
            UsageError: no setting names the Node; the host's name may be that of another Node.
        """
        node = config.node_name or environment.get("NODE_NAME", "")
        if not node:
            raise UsageError(
                "no node name is known",
                "the name of a host need not be that of its Node",
                "set NODE_NAME from spec.nodeName, or give --node-name",
            )
        own, name = environment.get("POD_NAMESPACE", ""), environment.get("POD_NAME", "")
        return cls(node=node, namespace=own or DEFAULT_NAMESPACE, pod=(own, name) if own and name else None)


NODES = "/api/v1/nodes"
PAGE = 500
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
_METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"


class NodeReader:
    """The Node `name` and its pods, the slots of the budget, and other Nodes as far as they matter for those."""

    def __init__(self, transport: Transport, name: str) -> None:
        self._transport, self.name = transport, name

    def node(self, *, cached: bool = False) -> NodeObject:
        """Our own Node, as it is now. `cached`: from the API server's cache, so perhaps without the last writes; it
        takes the server half the work, and its store none.
        """
        return self.other_node(self.name, cached=cached)

    def other_node(self, name: str, *, cached: bool = False) -> NodeObject:
        """Any Node: the holder of a slot that has run out is read before the slot is taken over."""
        call = ApiCall("get", "nodes", name)
        query = {"resourceVersion": 0} if cached else None
        return kube_parse.node(call, self._transport.request(call, f"{NODES}/{path_segment(name)}", query=query))

    def pods(self) -> tuple[PodObject, ...]:
        """All pods bound to our Node, also those that have ended."""
        call = ApiCall("list", "pods")
        query = {"fieldSelector": f"spec.nodeName={self.name}"}
        return kube_parse.pods(call, self._transport.request(call, "/api/v1/pods", query=query))

    def tolerates(self, namespace: str, name: str, effect: str = "NoExecute") -> bool:
        """Whether a pod would stay on, or for NoSchedule come back to, a Node that has our taint with this effect."""
        call = ApiCall("get", "pods", name, namespace)
        path = f"/api/v1/namespaces/{path_segment(namespace)}/pods/{path_segment(name)}"
        return kube_parse.tolerates(call, self._transport.request(call, path), TAINT, effect)

    def leases(self, namespace: str) -> tuple[LeaseObject, ...]:
        """All Leases of a namespace."""
        call = ApiCall("list", "leases", namespace=namespace)
        return kube_parse.leases(call, self._transport.request(call, leases_path(namespace)))

    def lease(self, namespace: str, name: str) -> LeaseObject:
        """One Lease."""
        call = ApiCall("get", "leases", name, namespace)
        return kube_parse.lease(call, self._transport.request(call, f"{leases_path(namespace)}/{path_segment(name)}"))

    def devices(self) -> DraState:
        """GPUs among the Node's devices for resource claims, and gpuwatch's DeviceTaintRules."""
        return read_devices(self._transport, self.name)

    def rules_version(self) -> str:
        """In which version the cluster serves DeviceTaintRules; empty: it does not."""
        return rules_version(self._transport)

    def count_nodes(self, selector: str, page: int = PAGE) -> int:
        """How many Nodes carry these labels, `page` at a time; as rows of a table, since a Node has 10 KiB."""
        call = ApiCall("list", "nodes")
        query: dict[str, str | int] = {"labelSelector": selector, "limit": page, "includeObject": "None"}
        query["resourceVersion"] = 0  # from the server's cache: a fleet that fell sick at once asks all at once
        total = 0
        while True:
            found, more = kube_parse.page(call, self._transport.request(call, NODES, query=query, accept=_TABLE))
            total += found
            if more is None:
                return total
            query = {**query, "continue": more}
            query.pop("resourceVersion", None)

    def nodes_with(self, selector: str) -> frozenset[str]:
        """Names of the Nodes that carry these labels: for few, since they are read in one piece."""
        call = ApiCall("list", "nodes")
        return kube_parse.names(
            call, self._transport.request(call, NODES, query={"labelSelector": selector}, accept=_METADATA)
        )


def leases_path(namespace: str) -> str:
    """The path of all Leases of a namespace."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{path_segment(namespace)}/leases"
