"""What the parts of NVIDIA's GPU Operator read: ConfigMaps in its namespace, and a ClusterPolicy that names them."""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from gpuwatch.rightsizing.apply.kubectl import apply, compact, kubectl

NAMESPACE = "gpu-operator"
POLICY = "clusterpolicies.nvidia.com/cluster-policy"


Specs = list[dict[str, Any]]
"""One configuration of mig-parted: what becomes of which GPUs of a node."""


class Around(NamedTuple):
    """What an advice is not about, and matters. `specs`: of all nodes for which a layout is advised, as the
    Operator has one ConfigMap for all; `bearer`: the advice that brings it; `cut`: nodes with a GPU in MIG mode;
    `used`: nodes with a GPU that somebody holds; `alone`: as of `Fleet`.
    """

    specs: Mapping[str, Specs] = {}
    bearer: str = ""
    cut: frozenset[str] = frozenset()
    used: frozenset[str] = frozenset()
    alone: bool = False


def config_map(name: str, data: Mapping[str, str]) -> dict[str, Any]:
    """In the Operator's namespace."""
    metadata = {"name": name, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}


def add(made: Mapping[str, Any]) -> str:
    """The command that makes a ConfigMap, or adds keys to it. The manager is another for other data: so the API server
    refuses to replace what an earlier advice, or a person, has put there.
    """
    return apply(made, f"gpuwatch-{digest(made['data'])}")


def told(spec: Mapping[str, Any]) -> str:
    """The command that tells the Operator which ConfigMap a part of it is to read; for words, as it may read one."""
    return kubectl("patch", POLICY, "--type=merge", f"--patch={compact({'spec': spec})}")


def digest(content: Any) -> str:
    """Eight hexadecimal digits, the same for the same content."""
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
