"""kubectl commands as text to paste into a shell: whole, quoted, with the kind's API group.

Those for NVIDIA's GPU Operator write ConfigMaps in its namespace, and a ClusterPolicy that names them.
"""

import json
import shlex
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Literal, NamedTuple

from gpuwatch.model.text import visible

Patch = Literal["strategic", "merge"]

GROUPS = {
    "Deployment": "deployment.apps",
    "StatefulSet": "statefulset.apps",
    "DaemonSet": "daemonset.apps",
    "ReplicaSet": "replicaset.apps",
    "ReplicationController": "replicationcontroller",
    "Job": "job.batch",
    "CronJob": "cronjob.batch",
    "Pod": "pod",
    "ResourceQuota": "resourcequota",
    "ConfigMap": "configmap",
    "Node": "node",
}
"""Kind -> what kubectl calls it; with the group, as other groups have kinds of the same name."""


def kubectl(verb: str, *words: str, namespace: str = "") -> str:
    """One command; every word is quoted where the shell would change it."""
    place = [f"--namespace={namespace}"] if namespace else []
    return shlex.join(map(visible, ["kubectl", *place, verb, *words]))


def patch(kind: str, name: str, change: Mapping[str, Any], how: Patch, *, namespace: str = "") -> str:
    """Change one object."""
    return kubectl("patch", thing(kind, name), f"--type={how}", f"--patch={compact(change)}", namespace=namespace)


def apply(manifest: Mapping[str, Any], manager: str) -> str:
    """Make an object, or add to it, from a manifest that comes with the command. What another manager has put there is
    not replaced: the API server reports the conflict.
    """
    command = kubectl("apply", "--server-side", f"--field-manager={manager}", "--filename=-")
    return f"{command} <<'EOF'\n{pretty(manifest)}\nEOF"


def label(nodes: Iterable[str], key: str, value: str) -> str:
    """Label nodes, whatever the label was before."""
    return kubectl("label", *(thing("Node", node) for node in nodes), f"{key}={value}", "--overwrite")


def cordon(nodes: Iterable[str]) -> str:
    """Keep new pods away; those that run stay."""
    return kubectl("cordon", *(thing("Node", node) for node in nodes))


def thing(kind: str, name: str) -> str:
    """An object as kubectl names it. Raises KeyError: a kind that is none of GROUPS."""
    return f"{GROUPS[kind]}/{name}"


def compact(value: Mapping[str, Any]) -> str:
    """JSON on one line."""
    return json.dumps(value, separators=(",", ":"))


def pretty(value: Mapping[str, Any]) -> str:
    """JSON for people, which is YAML too. No line of it is `EOF`: strings keep to one line, and stand in quotes."""
    return json.dumps(value, indent=2)


NAMESPACE = "gpu-operator"
POLICY = "clusterpolicies.nvidia.com/cluster-policy"


Specs = list[dict[str, Any]]
"""One configuration of mig-parted: what becomes of which GPUs of a node."""


class ApplyContext(NamedTuple):
    """What matters beside the recommendation itself. `specs`: of all nodes for which a layout is recommended, as the
    Operator has one ConfigMap for all; `bearer`: id of the recommendation that makes it; `cut`: nodes with a GPU in MIG
    mode; `used`: nodes with a held GPU; `alone`: as of `FleetFacts`.
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
    """The command that makes a ConfigMap, or adds keys to it. Other data has another manager: so the API server
    refuses to replace what an earlier recommendation, or a person, has put there.
    """
    return apply(made, f"gpuwatch-{digest(made['data'])}")


def operator_patch(spec: Mapping[str, Any]) -> str:
    """The command that sets the ConfigMap of a part of the Operator; for notes only, as the part may have one."""
    return kubectl("patch", POLICY, "--type=merge", f"--patch={compact({'spec': spec})}")


def digest(content: Any) -> str:
    """Eight hexadecimal digits, the same for the same content."""
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]
