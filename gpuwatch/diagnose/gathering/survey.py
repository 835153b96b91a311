"""What only a diagnosis reads from the API server: pods around GPUs, RuntimeClasses, the GPU operator's state."""

import msgspec
from msgspec.structs import asdict

from gpuwatch.diagnose.model import NodePod
from gpuwatch.kube import parse as kube_parse
from gpuwatch.kube.errors import ApiCall
from gpuwatch.kube.reader import PAGE, NodeReader
from gpuwatch.kube.wire import Wire, WireList, WireObject, WirePod, decode

_PODS = "/api/v1/pods"
APP_LABELS = ("app", "app.kubernetes.io/name", "k8s-app", "name")
PLUGIN_VARIABLES = (
    "CONFIG_FILE", "DEVICE_ID_STRATEGY", "DEVICE_LIST_STRATEGY", "FAIL_ON_INIT_ERROR", "MIG_STRATEGY",
    "PASS_DEVICE_SPECS",
)  # fmt: skip
"""Variables of NVIDIA's device plugin, beside DP_*; no other variable of a pod is kept."""

PLUGIN_CONFIGS = "/available-configs"
"""Where NVIDIA's Helm chart and the GPU operator mount the configurations in the device plugin's pod."""

_NVIDIA_APPS = ("nvidia", "gpu-feature-discovery", "node-feature-discovery", "gpu-operator", "dcgm")
"""Parts of the `app` of pods that make GPUs usable."""

MOST_ANNOTATION = 256
"""Characters that are kept of the value of an annotation."""


class _RuntimeClass(WireObject, frozen=True):
    handler: str = ""


class _PolicyStatus(Wire, frozen=True):
    state: str | None = None


class _Policy(Wire, frozen=True):
    status: _PolicyStatus | None = None


class _ConfigMap(Wire, frozen=True):
    data: dict[str, msgspec.Raw] | None = None


def gpu_pods(call: ApiCall, body: bytes) -> tuple[NodePod, ...]:
    """The pods of a PodList that have GPUs or make them usable. Raises Garbled."""
    found = map(_pod, decode(call, body, WireList[WirePod]).items or ())
    return tuple(pod for pod in found if pod.gpus or any(part in (pod.app or "") for part in _NVIDIA_APPS))


def runtime_classes(call: ApiCall, body: bytes) -> dict[str, str]:
    """The RuntimeClasses of a list: name -> handler. Raises Garbled."""
    return {each.metadata.name: each.handler for each in decode(call, body, WireList[_RuntimeClass]).items or ()}


def policy_state(call: ApiCall, body: bytes) -> str | None:
    """The state of the ClusterPolicy in force, from their list; all others are `ignored`. Raises Garbled."""
    policies = decode(call, body, WireList[_Policy]).items or ()
    states = [policy.status.state for policy in policies if policy.status and policy.status.state]
    return next((state for state in states if state != "ignored"), None)


def keys(call: ApiCall, body: bytes) -> tuple[str, ...]:
    """The keys of a ConfigMap, without their values. Raises Garbled."""
    return tuple(sorted(decode(call, body, _ConfigMap).data or ()))


def _pod(wire: WirePod) -> NodePod:
    base, labels, status = asdict(kube_parse.pod(wire)), wire.metadata.labels or {}, wire.status
    del base["labels"]
    about_gpus = (item for item in base["annotations"].items() if item[0].partition("/")[0].endswith("nvidia.com"))
    base["annotations"] = {key: value[:MOST_ANNOTATION] for key, value in about_gpus}
    containers = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    ready = next((each.status == "True" for each in status.conditions or () if each.type == "Ready"), None)
    app = next((labels[label] for label in APP_LABELS if label in labels), None)
    # the scheduler's reason first: it is the only one of a pod without a node
    scheduled = (each for each in status.conditions or () if each.type == "PodScheduled")
    waiting = [each.reason or "not scheduled" for each in scheduled if each.status == "False"]
    waiting += [each.state.waiting.reason for each in containers if each.state.waiting and each.state.waiting.reason]
    environment: dict[str, str] = {}
    configs = None
    if app and "device-plugin" in app:
        environment = {
            each.name: each.value
            for container in wire.spec.containers or ()
            for each in container.env or ()
            if each.value is not None and (each.name.startswith("DP_") or each.name in PLUGIN_VARIABLES)
        }
        # NVIDIA's config-manager chooses among the files of this ConfigMap, whatever the volume's name is
        started = (*(wire.spec.init_containers or ()), *(wire.spec.containers or ()))
        mounted = {m.name for each in started for m in each.volume_mounts or () if m.mount_path == PLUGIN_CONFIGS}
        named = (each.config_map.name for each in wire.spec.volumes or () if each.config_map and each.name in mounted)
        configs = next(named, None)
    return NodePod(
        **base,
        app=app,
        ready=ready,
        waiting=next(iter(waiting), None),
        restarts=sum(each.restart_count for each in containers),
        environment=environment,
        configs=configs,
    )


class SurveyReader(NodeReader):
    """Each method is one request, and raises the errors of `kube_errors`."""

    def gpu_pods(self) -> tuple[NodePod, ...]:
        """The pods of our Node that have GPUs or make them usable."""
        call = ApiCall("list", "pods")
        query = {"fieldSelector": f"spec.nodeName={self.name}"}
        return gpu_pods(call, self._transport.request(call, _PODS, query=query))

    def pending(self) -> tuple[NodePod, ...]:
        """Pods of the whole cluster that wait for a node with GPUs; of a very long queue only its first page."""
        call = ApiCall("list", "pods")
        query: dict[str, str | int] = {"fieldSelector": "status.phase=Pending,spec.nodeName=", "limit": PAGE}
        found = gpu_pods(call, self._transport.request(call, _PODS, query=query))
        return tuple(pod for pod in found if pod.gpus)

    def runtime_classes(self) -> dict[str, str]:
        """RuntimeClass -> the handler that the container runtime must have."""
        call = ApiCall("list", "runtimeclasses")
        path = "/apis/node.k8s.io/v1/runtimeclasses"
        return runtime_classes(call, self._transport.request(call, path))

    def policy_state(self) -> str | None:
        """State of the GPU operator's ClusterPolicy: `ready`, `notReady`; None: there is no policy, or it has none yet.

        Raises:
            NotFound: the cluster has no resource ClusterPolicy.
        """
        call = ApiCall("list", "clusterpolicies")
        path = "/apis/nvidia.com/v1/clusterpolicies"
        return policy_state(call, self._transport.request(call, path))

    def config_keys(self, namespace: str, name: str) -> tuple[str, ...]:
        """Keys of a ConfigMap; its contents are not kept."""
        call = ApiCall("get", "configmaps", name, namespace)
        path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
        return keys(call, self._transport.request(call, path))

    def names(self, host: str) -> frozenset[str]:
        """Nodes whose kubelet runs on a host of this name."""
        call = ApiCall("list", "nodes")
        query = {"labelSelector": f"kubernetes.io/hostname={host}"}
        return kube_parse.names(call, self._transport.request(call, "/api/v1/nodes", query=query))
