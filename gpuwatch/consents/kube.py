"""What only the tuner's consents ask the API server for: the pods of our Node and their namespaces."""

from collections.abc import Collection
from urllib.parse import quote

from gpuwatch.consents import parse as kube_consents_parse
from gpuwatch.kube.errors import ApiCall, Garbled
from gpuwatch.kube.reader import PAGE, NodeReader
from gpuwatch.kube.transport import Transport
from gpuwatch.model.consent import PodConsent

MOST_PAGES = 10
"""5,000 pods, which no kubelet runs."""


class ConsentsReader(NodeReader):
    """Raises the errors of `kube_errors`. `resources`: names of GPU resources besides nvidia.com/*."""

    def __init__(self, transport: Transport, name: str, resources: Collection[str] = ()) -> None:
        super().__init__(transport, name)
        self._resources = frozenset(resources)

    def gpu_pods(self) -> tuple[PodConsent, ...]:
        """The pods of our Node that have GPUs or may have some.

        From the server's cache (resourceVersion 0), as kubelets list theirs: else each node's question would have the
        server read all pods of the cluster from etcd.
        """
        call = ApiCall("list", "pods")
        query: dict[str, str | int] = {
            "fieldSelector": f"spec.nodeName={self.name}",
            "limit": PAGE,
            "resourceVersion": "0",
        }
        found: list[PodConsent] = []
        for _ in range(MOST_PAGES):
            body = self._transport.request(call, "/api/v1/pods", query=query)
            page, more = kube_consents_parse.pods(call, body, self._resources)
            found += page
            if more is None:
                return tuple(found)
            query = {"fieldSelector": query["fieldSelector"], "limit": PAGE, "continue": more}
        raise Garbled(
            call, f"it has more than {MOST_PAGES} pages", "does something between us and the API server answer?"
        )

    def namespace(self, name: str) -> dict[str, str]:
        """The annotations of a namespace that matter to a tuner."""
        call = ApiCall("get", "namespaces", name)
        body = self._transport.request(call, f"/api/v1/namespaces/{quote(name, safe='')}")
        return kube_consents_parse.namespace(call, body)
