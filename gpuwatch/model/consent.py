"""Consent to tuning: annotations of pods, their namespaces and the Node, as a process with an API token has read them.
With them come the labels that the metrics export.

The tuner and the agent have no token: `gpuwatch tuner --consents` writes this to a file, and they read the file.
"""

import re

from gpuwatch.model.snapshot import Record

PREFIX = "gpuwatch.io/"
AUTOTUNE, MAX_SLOWDOWN, CLASS, PROGRESS, SLO, GANG = (
    f"{PREFIX}{name}" for name in ("autotune", "max-slowdown", "autotune-class", "progress", "slo", "gang")
)
"""Annotations of a pod. All but GANG may also be on its namespace, and AUTOTUNE on the Node."""

SOCKET = "socket"
"""The value of PROGRESS of pods that add to their counter at `tuning.progress_socket`."""

POWER_AGENTS = ("dynamo.nvidia.com/gpu-power-limit",)
"""Annotations by which another agent sets the power limit of a pod's GPUs."""

KEPT = (AUTOTUNE, MAX_SLOWDOWN, CLASS, PROGRESS, SLO, GANG, *POWER_AGENTS)
"""Annotations that matter to a tuner."""

OLD_SECONDS = 120.0
"""Consents are read every 15 s: an owner may have withdrawn one that is older than this."""


class PodConsent(Record, frozen=True, kw_only=True):
    """One pod of this node. `annotations`: those above; `job`: that of which it is a rank, by its labels; `priority`:
    that of its PriorityClass; `owner`: kind and name of its controller; `images`: by container, without digests.
    `ip`: its own address; None where it has none yet or uses the node's. `labels`: those that the metrics export, by
    Prometheus label; None: left out, as too many pods have such labels.
    """

    namespace: str
    name: str
    uid: str
    annotations: dict[str, str] = {}
    job: str | None = None
    priority: int = 0
    owner: tuple[str, str] | None = None
    images: dict[str, str] = {}
    ip: str | None = None
    labels: dict[str, str] | None = {}


class Consents(Record, frozen=True, kw_only=True):
    """Consents at unix time `at`. `namespaces`: name -> annotations, of those that have pods here. `node`: the Node's
    annotations; `node_labels`: as a pod's; `quarantined`: it has gpuwatch's own taint.
    """

    at: float
    node: dict[str, str] = {}
    node_labels: dict[str, str] = {}
    quarantined: bool = False
    namespaces: dict[str, dict[str, str]] = {}
    pods: tuple[PodConsent, ...] = ()

    def only_labels(self, *, pods: bool) -> "Consents":
        """Only the labels that the metrics export: those of the Node, and with `pods` those of the pods."""
        found = (PodConsent(namespace=each.namespace, name=each.name, uid="", labels=each.labels) for each in self.pods)
        return Consents(at=self.at, node_labels=self.node_labels, pods=tuple(found) if pods else ())

    def is_old(self, now: float) -> bool:
        """Also true for a time in the future: a clock was set, so the age is unknown."""
        return not -OLD_SECONDS <= now - self.at <= OLD_SECONDS


class Histogram(Record, frozen=True, kw_only=True):
    """A histogram of waiting times in seconds. `bounds`: upper ends of its buckets, without the infinite one;
    `samples`: the newest ones as (unix seconds, cumulative counts, the last one that of all), oldest first.
    """

    bounds: tuple[float, ...] = ()
    samples: tuple[tuple[float, tuple[float, ...]], ...] = ()


class ProgressCounter(Record, frozen=True, kw_only=True):
    """A counter of work done, as a pod's own page shows it, or as its processes add to it. `samples`: the newest ones
    as (unix seconds, value), oldest first; `histograms`: by name, those of the pod's SLO; `trouble`: why the newest
    read gave no sample; empty: it gave one.
    """

    samples: tuple[tuple[float, float], ...] = ()
    histograms: dict[str, Histogram] = {}
    trouble: str = ""


class Progress(Record, frozen=True, kw_only=True):
    """Counters as of unix time `at`, by owner: the uid of a pod, or the name of a Slurm job or an account."""

    at: float
    owners: dict[str, ProgressCounter] = {}


_DIGEST = re.compile(r"@[a-z0-9+._-]+:[0-9a-fA-F]{32,}$")
_SCHEME = re.compile(r"^[a-z-]+://")
_USER = re.compile(r"^[^/]*@")


def prometheus_label(prefix: str, name: str) -> str:
    """The label's name as kube-state-metrics writes it, such as `label_app_kubernetes_io_name`."""
    plain = re.sub(r"[^a-zA-Z0-9_]", "_", name)
    return f"{prefix}_" + re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", plain).lower()


def plain_image(image: str) -> str:
    """`image` without scheme, digest and registry user: `docker-pullable://u:p@reg/a:1@sha256:...` is `reg/a:1`."""
    return _USER.sub("", _DIGEST.sub("", _SCHEME.sub("", image)))
