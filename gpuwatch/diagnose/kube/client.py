"""What only a diagnosis asks the API server for: pods that matter to GPUs, RuntimeClasses, the GPU operator's state."""

from gpuwatch.diagnose.kube import parse as kube_survey_parse
from gpuwatch.diagnose.model import NodePod
from gpuwatch.kube import parse as kube_parse
from gpuwatch.kube.errors import ApiCall
from gpuwatch.kube.reader import PAGE, NodeReader

_PODS = "/api/v1/pods"


class SurveyReader(NodeReader):
    """Each method is one request, and raises the errors of `kube_errors`."""

    def gpu_pods(self) -> tuple[NodePod, ...]:
        """The pods of our Node that have GPUs or give them to others."""
        call = ApiCall("list", "pods")
        query = {"fieldSelector": f"spec.nodeName={self.name}"}
        return kube_survey_parse.gpu_pods(call, self._transport.request(call, _PODS, query=query))

    def pending(self) -> tuple[NodePod, ...]:
        """Pods of the whole cluster that wait for a node with GPUs; of a very long queue only its first page."""
        call = ApiCall("list", "pods")
        query: dict[str, str | int] = {"fieldSelector": "status.phase=Pending,spec.nodeName=", "limit": PAGE}
        found = kube_survey_parse.gpu_pods(call, self._transport.request(call, _PODS, query=query))
        return tuple(pod for pod in found if pod.gpus)

    def runtime_classes(self) -> dict[str, str]:
        """RuntimeClass -> the handler that the container runtime must know."""
        call = ApiCall("list", "runtimeclasses")
        path = "/apis/node.k8s.io/v1/runtimeclasses"
        return kube_survey_parse.runtime_classes(call, self._transport.request(call, path))

    def policy_state(self) -> str | None:
        """State of the GPU operator's ClusterPolicy: `ready`, `notReady`; None: there is no policy, or it has none yet.

        Raises:
            NotFound: the cluster does not know ClusterPolicies.
        """
        call = ApiCall("list", "clusterpolicies")
        path = "/apis/nvidia.com/v1/clusterpolicies"
        return kube_survey_parse.policy_state(call, self._transport.request(call, path))

    def config_keys(self, namespace: str, name: str) -> tuple[str, ...]:
        """Keys of a ConfigMap; its contents are not kept."""
        call = ApiCall("get", "configmaps", name, namespace)
        path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        return kube_survey_parse.keys(call, self._transport.request(call, path))

    def names(self, host: str) -> frozenset[str]:
        """Nodes whose kubelet runs on a host of this name."""
        call = ApiCall("list", "nodes")
        query = {"labelSelector": f"kubernetes.io/hostname={host}"}
        return kube_parse.names(call, self._transport.request(call, "/api/v1/nodes", query=query))
