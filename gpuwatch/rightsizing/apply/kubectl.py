"""kubectl commands as text that a person pastes into a shell: whole, quoted, with the kind's API group."""

import json
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Literal

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
    return shlex.join(["kubectl", *place, verb, *words])


def patch(kind: str, name: str, change: Mapping[str, Any], how: Patch, *, namespace: str = "") -> str:
    """Change one object."""
    return kubectl("patch", thing(kind, name), f"--type={how}", f"--patch={compact(change)}", namespace=namespace)


def apply(manifest: Mapping[str, Any], manager: str) -> str:
    """Make an object, or add to it, from a manifest that comes with the command. What another manager has put there is
    not replaced: the API server names the conflict.
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
