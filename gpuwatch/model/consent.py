"""Consent to tuning: annotations of pods, their namespaces and the Node, as a process with an API token has read them.

The tuner has no token. `gpuwatch tuner --consents` writes this to a file, the tuner reads it.
"""

import re

from gpuwatch.model.snapshot import Record

PREFIX = "gpuwatch.io/"
AUTOTUNE, MAX_SLOWDOWN, CLASS, GANG = (
    f"{PREFIX}{name}" for name in ("autotune", "max-slowdown", "autotune-class", "gang")
)
"""Annotations of a pod. The first three may also stand on its namespace, and the first one on the Node."""

POWER_AGENTS = ("dynamo.nvidia.com/gpu-power-limit",)
"""Annotations by which another agent sets the power limit of a pod's GPUs."""


class PodConsent(Record, frozen=True, kw_only=True):
    """One pod of this node. `annotations`: those above; `job`: what it is a rank of, if its labels say so; `priority`:
    that of its PriorityClass; `owner`: kind and name of its controller; `images`: by container, without digests.
    """

    namespace: str
    name: str
    uid: str
    annotations: dict[str, str] = {}
    job: str | None = None
    priority: int = 0
    owner: tuple[str, str] | None = None
    images: dict[str, str] = {}


class Consents(Record, frozen=True, kw_only=True):
    """As of `at`, unix seconds. `namespaces`: name -> annotations, of those that have pods here. `node`: the Node's
    annotations; `quarantined`: it has gpuwatch's own taint.
    """

    at: float
    node: dict[str, str] = {}
    quarantined: bool = False
    namespaces: dict[str, dict[str, str]] = {}
    pods: tuple[PodConsent, ...] = ()


_DIGEST = re.compile(r"@[a-z0-9+._-]+:[0-9a-fA-F]{32,}$")
_SCHEME = re.compile(r"^[a-z-]+://")
_USER = re.compile(r"^[^/]*@")


def plain_image(image: str) -> str:
    """Without scheme, digest and the registry's user: `docker-pullable://u:p@reg/a:1@sha256:...` is `reg/a:1`."""
    return _USER.sub("", _DIGEST.sub("", _SCHEME.sub("", image)))
