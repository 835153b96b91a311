"""kubectl commands as text that a person pastes into a shell: whole, quoted, with the kind's API group."""

import json
import shlex
from collections.abc import Mapping
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


def apply(manifest: Mapping[str, Any]) -> str:
    """Make or change the objects of a manifest, which comes with the command."""
    return f"kubectl apply --filename=- <<'EOF'\n{pretty(manifest)}\nEOF"


def label(nodes: tuple[str, ...], key: str, value: str) -> str:
    """Label nodes, whatever the label was before."""
    return kubectl("label", *(thing("Node", node) for node in nodes), f"{key}={value}", "--overwrite")


def thing(kind: str, name: str) -> str:
    """An object as kubectl names it. Raises KeyError: a kind that is none of GROUPS."""
    return f"{GROUPS[kind]}/{name}"


def compact(value: Mapping[str, Any]) -> str:
    """JSON on one line."""
    return json.dumps(value, separators=(",", ":"))


def pretty(value: Mapping[str, Any]) -> str:
    """JSON for people, which is YAML too. No line of it is `EOF`: strings keep to one line, and stand in quotes."""
    return json.dumps(value, indent=2)
