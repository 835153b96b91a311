"""The pods of our Node and their namespaces at the API server: consents and exported labels; nothing else is kept."""

from collections.abc import Collection, Iterable, Mapping
from urllib.parse import quote

from msgspec.structs import replace

from gpuwatch.config import MetricsConfig
from gpuwatch.kube.errors import ApiCall, Garbled
from gpuwatch.kube.reader import PAGE, NodeReader
from gpuwatch.kube.transport import Transport
from gpuwatch.kube.wire import GPU_RESOURCES, WireList, WireObject, WirePod, decode, garbled
from gpuwatch.model.consent import KEPT, PodConsent, plain_image, prometheus_label
from gpuwatch.model.text import visible

NO_LABELS = MetricsConfig()

LONGEST_VALUE = 128
"""No meaningful value is longer; a very long text there must not fill the tuner's file."""

LONGEST_NAME, MOST_CONTAINERS = 255, 16
"""Characters of an owner's kind or name, or of an image; containers of a pod whose images are kept. The API server
bounds none of them, and one pod must not fill the file of a node.
"""

JOB_LABELS = (
    "training.kubeflow.org/job-name",
    "jobset.sigs.k8s.io/jobset-name",
    "leaderworkerset.sigs.k8s.io/name",
    "ray.io/cluster",
)
"""Labels of pods that work together, each with the name of the group they are part of."""

JOB_INDEX = "batch.kubernetes.io/job-completion-index"
JOB_NAME = "batch.kubernetes.io/job-name"
"""A Job sets the first one, as a label and an annotation, on pods that have different work."""

ENDED = ("Succeeded", "Failed")


def parse_pods(
    call: ApiCall, body: bytes, resources: Collection[str] = (), metrics: MetricsConfig = NO_LABELS
) -> tuple[tuple[PodConsent, ...], str | None]:
    """Those pods of one page of a PodList that may have GPUs, and the token of the next page. Raises Garbled.

    `resources`: names of GPU resources besides nvidia.com/*. `metrics` names the labels to export.
    """
    page = decode(call, body, WireList[WirePod])
    found = (each for each in page.items or () if each.status.phase not in ENDED and _has_gpus(each, resources))
    return tuple(_consent(call, each, metrics) for each in found), page.metadata.continue_ or None


def parse_namespace(call: ApiCall, body: bytes) -> dict[str, str]:
    """The annotations of a Namespace that are kept. Raises Garbled."""
    metadata = decode(call, body, WireObject).metadata
    if metadata.name != call.name:
        raise garbled(call, f"it is about {metadata.name or 'nothing'}")
    return kept(metadata.annotations)


def kept(annotations: Mapping[str, str] | None) -> dict[str, str]:
    """Those that matter to a tuner. A value longer than any valid one is cut, and so becomes invalid."""
    return {key: _cut(annotations[key]) for key in KEPT if annotations and key in annotations}


def exported(prefix: str, texts: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """Prometheus label -> value, of the labels or annotations `texts` that `names` has. A value that is long is cut."""
    return {prometheus_label(prefix, name): _cut(visible(texts[name])) for name in names if name in texts}


def _cut(value: str) -> str:
    return value if len(value) <= LONGEST_VALUE else f"{value[: LONGEST_VALUE - 1]}…"


def job(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str | None:
    """The name of the job that a pod is a rank of; None: it works alone, as far as its labels show."""
    for label in JOB_LABELS:
        if label in labels:
            return labels[label] or label
    if JOB_INDEX in labels or JOB_INDEX in annotations:
        return labels.get(JOB_NAME) or JOB_INDEX
    return None


def _consent(call: ApiCall, pod: WirePod, metrics: MetricsConfig) -> PodConsent:
    metadata = pod.metadata
    if not (metadata.name and metadata.namespace and metadata.uid):
        raise garbled(call, "a pod has no name, namespace or uid")
    labels, annotations = metadata.labels or {}, metadata.annotations or {}
    exports = exported("label", labels, metrics.pod_labels)
    controllers = (each for each in metadata.owner_references or () if each.controller and each.kind and each.name)
    return PodConsent(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        annotations=kept(annotations),
        labels=exports | exported("annotation", annotations, metrics.pod_annotations),
        job=job(labels, annotations),
        priority=pod.spec.priority or 0,
        owner=next(((each.kind[:LONGEST_NAME], each.name[:LONGEST_NAME]) for each in controllers), None),
        images=_images(pod),
        ip=None if pod.spec.host_network else pod.status.pod_ip or None,
    )


def _images(pod: WirePod) -> dict[str, str]:
    """By container. The API server bounds neither the number nor the length; what no registry can have is left out."""
    containers = (pod.spec.containers or ())[:MOST_CONTAINERS]
    images = {each.name: plain_image(each.image) for each in containers if each.name and each.image}
    return {
        name: image
        for name, image in images.items()
        if len(image) <= LONGEST_NAME and image.isascii() and image.isprintable()
    }


def _has_gpus(pod: WirePod, resources: Collection[str]) -> bool:
    """Whether it requests devices in any way; or has annotations that are kept: it may have GPUs without a request."""
    if pod.spec.resource_claims or kept(pod.metadata.annotations):
        return True
    containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
    return any(
        (name.startswith(GPU_RESOURCES) or name in resources) and str(amount) != "0"
        for container in containers
        for name, amount in container.resources.asked.items()
    )


MOST_PAGES = 10
"""5,000 pods, more than any kubelet runs."""

MOST_LABELLED = 500
"""Pods whose labels are exported: each is a series, and the file may have 4 MiB."""


class ConsentsReader(NodeReader):
    """Raises the errors of `kube.errors`. `resources`, `metrics`: as of `parse_pods`."""

    def __init__(self, transport: Transport, name: str, resources: Collection[str] = ()) -> None:
        super().__init__(transport, name)
        self._resources, self.metrics = frozenset(resources), NO_LABELS

    def gpu_pods(self) -> tuple[PodConsent, ...]:
        """The pods of our Node that have GPUs or may have some.

        From the server's cache (resourceVersion 0), as kubelets list theirs: else the server would read all pods of the
        cluster from etcd for each node's request.
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
            page, more = parse_pods(call, body, self._resources, self.metrics)
            found += page
            if more is None:
                return (*found[:MOST_LABELLED], *(replace(each, labels=None) for each in found[MOST_LABELLED:]))
            query = {"fieldSelector": query["fieldSelector"], "limit": PAGE, "continue": more}
        raise Garbled(
            call, f"it has more than {MOST_PAGES} pages", "does something between us and the API server answer?"
        )

    def namespace(self, name: str) -> dict[str, str]:
        """The annotations of a namespace that matter to a tuner."""
        call = ApiCall("get", "namespaces", name)
        body = self._transport.request(call, f"/api/v1/namespaces/{quote(name, safe='')}")
        return parse_namespace(call, body)
