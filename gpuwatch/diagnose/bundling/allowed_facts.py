"""What of the facts may leave the machine: known labels, names of programs without their arguments, no secrets."""

from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from gpuwatch.diagnose.bundling import keep
from gpuwatch.diagnose.bundling.redaction import MARK, Redactor
from gpuwatch.diagnose.facts import HostFacts, NodeFacts
from gpuwatch.diagnose.host.kernel_modules import Kernel
from gpuwatch.diagnose.model import ClusterFacts
from gpuwatch.model.snapshot import Gpu, GpuProcess
from gpuwatch.model.view import Events, View

MOST_EVENTS = 2_000
"""Of each kind, the newest."""

LABEL_DOMAINS = (
    "nvidia.com", "gpuwatch.io", "feature.node.kubernetes.io", "nfd.node.kubernetes.io", "kubernetes.io",
    "node.kubernetes.io", "topology.kubernetes.io", "beta.kubernetes.io", "node-role.kubernetes.io",
    "karpenter.sh", "cloud.google.com", "eks.amazonaws.com", "k8s.amazonaws.com", "kubernetes.azure.com",
)  # fmt: skip
ANNOTATION_DOMAINS = ("nvidia.com", "gpuwatch.io", "nfd.node.kubernetes.io")
ENVIRONMENT = (
    "DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS", "MIG_STRATEGY", "FAIL_ON_INIT_ERROR", "PASS_DEVICE_SPECS",
    "DEVICE_LIST_STRATEGY", "DEVICE_ID_STRATEGY", "NVIDIA_DRIVER_ROOT", "DRIVER_ROOT_CTR_PATH", "CONFIG_FILE",
    "DEFAULT_CONFIG", "FALLBACK_STRATEGIES", "MPS_ROOT", "CDI_ENABLED", "GDS_ENABLED", "MOFED_ENABLED",
)  # fmt: skip
"""Variables of the device plugin whose values are taken."""

T = TypeVar("T")


def redactor(facts: NodeFacts) -> Redactor:
    """Knows the values of the kernel's command line that are left out, wherever else they stand."""
    line = facts.kernel.cmdline if facts.kernel else None
    return Redactor(keep.left_out_of_cmdline(line or ""))


def view(found: View, hide: Redactor) -> View:
    """NVML gives the names of processes as the processes wrote them, at times with arguments."""
    gpus = tuple(map(_gpu, found.snapshot.gpus))
    return clean(replace(found, snapshot=replace(found.snapshot, gpus=gpus)), View, hide)


def events(found: Events, hide: Redactor) -> Events:
    """The newest of each kind."""
    newest = {
        name: value[-MOST_EVENTS:]
        for name in found.__struct_fields__
        if isinstance(value := getattr(found, name), tuple)
    }
    return clean(replace(found, **newest), Events, hide)


def cluster(found: ClusterFacts, hide: Redactor) -> ClusterFacts:
    """Labels and annotations of known domains only."""
    node = replace(
        found.node,
        labels=_of(found.node.labels, LABEL_DOMAINS),
        annotations=_of(found.node.annotations, ANNOTATION_DOMAINS),
    )
    known = {name: _pods(getattr(found, name)) for name in ("pods", "pending")}
    environment = None if found.plugin_environment is None else _environment(found.plugin_environment)
    return clean(replace(found, node=node, plugin_environment=environment, **known), ClusterFacts, hide)


def host(found: HostFacts, hide: Redactor) -> HostFacts:
    """Sections that are recorded as they were found."""
    if found.kernel is not None:
        found = replace(found, kernel=kernel(found.kernel))
    return clean(found, HostFacts, hide)


def kernel(found: Kernel) -> Kernel:
    """Of the command line only what matters."""
    return replace(found, cmdline=keep.cmdline(found.cmdline).strip() if found.cmdline else found.cmdline)


def clean(value: msgspec.Struct, type_: type[T], hide: Redactor) -> T:
    """Every text of a record redacted.

    Raises:
        msgspec.ValidationError: it is no such record any more.
    """
    return msgspec.convert(hide.plain(msgspec.to_builtins(value, str_keys=False)), type_)


def _gpu(gpu: Gpu) -> Gpu:
    return gpu if gpu.processes is None else replace(gpu, processes=tuple(map(_process, gpu.processes)))


def _process(process: GpuProcess) -> GpuProcess:
    words = (process.name or "").split()
    return replace(process, name=words[0] if words else None)


def _pods(pods: Any) -> Any:
    if pods is None:
        return None
    return tuple(
        replace(
            pod,
            labels=_of(pod.labels, LABEL_DOMAINS),
            annotations=_of(pod.annotations, ANNOTATION_DOMAINS),
            environment=_environment(pod.environment),
        )
        for pod in pods
    )


def _environment(values: dict[str, str]) -> dict[str, str]:
    return {name: value if name in ENVIRONMENT else MARK for name, value in values.items()}


def _of(labels: dict[str, str], domains: tuple[str, ...]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if _is_of(key.partition("/")[0], domains)}


def _is_of(domain: str, domains: tuple[str, ...]) -> bool:
    return domain in domains or domain.endswith((".nvidia.com", ".gpuwatch.io"))
