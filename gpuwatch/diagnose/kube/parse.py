"""From the API's JSON to what a diagnosis wants to know of pods, RuntimeClasses and the GPU operator."""

from collections.abc import Iterator

import msgspec
from msgspec.structs import asdict

from gpuwatch.diagnose.model import NodePod
from gpuwatch.kube import parse as kube_parse
from gpuwatch.kube.errors import Call
from gpuwatch.kube.wire import Wire, decode

APP_LABELS = ("app", "app.kubernetes.io/name", "k8s-app", "name")
PLUGIN_VARIABLES = (
    "CONFIG_FILE", "DEVICE_ID_STRATEGY", "DEVICE_LIST_STRATEGY", "FAIL_ON_INIT_ERROR", "MIG_STRATEGY",
    "PASS_DEVICE_SPECS",
)  # fmt: skip
"""What steers NVIDIA's device plugin, beside DP_*; no other variable of a pod is kept."""

PLUGIN_CONFIGS = "/available-configs"
"""Where the device plugin's pod has its configurations, by NVIDIA's Helm chart and by the GPU operator."""

_GIVERS = ("nvidia", "gpu-feature-discovery", "node-feature-discovery", "gpu-operator", "dcgm")
"""Parts of the `app` of pods that make GPUs usable."""


class _Variable(Wire, frozen=True):
    name: str = ""
    value: str | None = None


class _Mount(Wire, frozen=True):
    name: str = ""
    mount_path: str = ""


class _Container(Wire, frozen=True):
    env: list[_Variable] | None = None
    volume_mounts: list[_Mount] | None = None


class _ConfigMapSource(Wire, frozen=True):
    name: str = ""


class _Volume(Wire, frozen=True):
    name: str = ""
    config_map: _ConfigMapSource | None = None


class _Spec(Wire, frozen=True):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    volumes: list[_Volume] | None = None


class _Waiting(Wire, frozen=True):
    reason: str | None = None


class _State(Wire, frozen=True):
    waiting: _Waiting | None = None


class _ContainerStatus(Wire, frozen=True):
    state: _State = _State()
    restart_count: int = 0


class _Condition(Wire, frozen=True):
    type: str = ""
    status: str = ""
    reason: str | None = None


class _Status(Wire, frozen=True):
    conditions: list[_Condition] | None = None
    init_container_statuses: list[_ContainerStatus] | None = None
    container_statuses: list[_ContainerStatus] | None = None


class _Pod(Wire, frozen=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()


class _Pods(Wire, frozen=True):
    items: list[_Pod] | None


class _Metadata(Wire, frozen=True):
    name: str = ""


class _RuntimeClass(Wire, frozen=True):
    metadata: _Metadata = _Metadata()
    handler: str = ""


class _RuntimeClasses(Wire, frozen=True):
    items: list[_RuntimeClass] | None


class _PolicyStatus(Wire, frozen=True):
    state: str | None = None


class _Policy(Wire, frozen=True):
    status: _PolicyStatus | None = None


class _Policies(Wire, frozen=True):
    items: list[_Policy] | None


class _ConfigMap(Wire, frozen=True):
    data: dict[str, msgspec.Raw] | None = None


def gpu_pods(call: Call, body: bytes) -> tuple[NodePod, ...]:
    """Of a PodList those that have GPUs, or give them to others. Raises Garbled."""
    both = zip(kube_parse.pods(call, body), decode(call, body, _Pods).items or (), strict=True)
    found = (_pod(asdict(pod), more) for pod, more in both)
    return tuple(pod for pod in found if pod.gpus or any(part in (pod.app or "") for part in _GIVERS))


def runtime_classes(call: Call, body: bytes) -> dict[str, str]:
    """Of a RuntimeClassList: name -> handler. Raises Garbled."""
    return {each.metadata.name: each.handler for each in decode(call, body, _RuntimeClasses).items or ()}


def policy_state(call: Call, body: bytes) -> str | None:
    """Of a ClusterPolicyList: the state of the one in force; all others are `ignored`. Raises Garbled."""
    policies = decode(call, body, _Policies).items or ()
    states = [policy.status.state for policy in policies if policy.status and policy.status.state]
    return next((state for state in states if state != "ignored"), None)


def keys(call: Call, body: bytes) -> tuple[str, ...]:
    """Of a ConfigMap the keys, not what stands behind them. Raises Garbled."""
    return tuple(sorted(decode(call, body, _ConfigMap).data or ()))


def _pod(base: dict[str, object], more: _Pod) -> NodePod:
    labels: dict[str, str] = base.pop("labels")  # type: ignore[assignment]
    base.pop("annotations")
    status = more.status
    containers = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    ready = next((each.status == "True" for each in status.conditions or () if each.type == "Ready"), None)
    app = next((labels[label] for label in APP_LABELS if label in labels), None)
    return NodePod(
        **base,  # type: ignore[arg-type]
        app=app,
        ready=ready,
        waiting=next(_waiting(status), None),
        restarts=sum(each.restart_count for each in containers),
        environment=dict(_variables(more)) if app and "device-plugin" in app else {},
        configs=_configs(more) if app and "device-plugin" in app else None,
    )


def _configs(pod: _Pod) -> str | None:
    """NVIDIA's config-manager chooses among the files of this ConfigMap, wherever the volume has its name from."""
    containers = (*(pod.spec.init_containers or ()), *(pod.spec.containers or ()))
    mounted = {m.name for each in containers for m in each.volume_mounts or () if m.mount_path == PLUGIN_CONFIGS}
    named = (each.config_map.name for each in pod.spec.volumes or () if each.config_map and each.name in mounted)
    return next(named, None)


def _waiting(status: _Status) -> Iterator[str]:
    """Reasons, the scheduler's first: nothing else is known of a pod without a node."""
    for condition in status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            yield condition.reason or "not scheduled"
    for each in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        if each.state.waiting is not None and each.state.waiting.reason:
            yield each.state.waiting.reason


def _variables(pod: _Pod) -> Iterator[tuple[str, str]]:
    for container in pod.spec.containers or ():
        for each in container.env or ():
            if each.value is not None and (each.name.startswith("DP_") or each.name in PLUGIN_VARIABLES):
                yield each.name, each.value
