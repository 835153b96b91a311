"""FOREIGN: the marks by which other controllers say that they have a Node in hand. Two at one Node undo each other.

A row is who, where the mark is, its key and the values that mean nothing is going on (a key ending in * is a beginning,
one beginning with * an end). Sources: the projects' own documentation of their labels, annotations and taints.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from gpuwatch.kube.objects import NodeObject
from gpuwatch.remediation.model.plan import OPT_OUT

Place = Literal["label", "annotation", "taint"]


class Mark(NamedTuple):
    """One row; `idle`: values at rest, None: any value counts."""

    who: str
    place: Place
    key: str
    idle: tuple[str, ...] | None = None


FOREIGN: tuple[Mark, ...] = (
    Mark("NVSentinel", "label", "dgxc.nvidia.com/nvsentinel-state", ("", "remediation-succeeded")),
    Mark("NVSentinel", "label", "*nvidia.com/cordon-by", ("",)),
    Mark("NVSentinel", "annotation", "quarantineHealthEvent", ("", "{}", "[]")),
    Mark("Karpenter", "taint", "karpenter.sh/disrupted"),
    Mark("Karpenter", "taint", "karpenter.sh/disruption"),
    Mark("the cluster autoscaler", "taint", "ToBeDeletedByClusterAutoscaler"),
    Mark("the cluster autoscaler", "taint", "DeletionCandidateOfClusterAutoscaler"),
    Mark(
        "the GPU operator's driver upgrade",
        "label",
        "nvidia.com/gpu-driver-upgrade-state",
        ("", "upgrade-done", "upgrade-required", "unknown"),  # `required` only waits in the queue
    ),
    Mark("the MIG manager", "label", "nvidia.com/mig.config.state", ("", "success", "failed")),
    Mark("the cloud provider", "taint", "node.cloudprovider.kubernetes.io/shutdown"),
    Mark("the cloud provider", "taint", "node.cloudprovider.kubernetes.io/uninitialized"),
    Mark("the cloud provider", "taint", "cloud.google.com/impending-node-termination"),
    Mark("the cloud provider", "taint", "aws-node-termination-handler/*"),
    Mark("the cloud provider", "taint", "remediator.aks.microsoft.com/unschedulable"),
    Mark("an administrator", "taint", "node.kubernetes.io/out-of-service"),
    Mark("medik8s", "taint", "medik8s.io/*"),
    Mark("medik8s", "annotation", "remediation.medik8s.io/*"),
    Mark("kured", "annotation", "weave.works/kured-reboot-in-progress"),
    Mark("kured", "annotation", "kured.dev/reboot-in-progress"),
    Mark("the machine config operator", "annotation", "machineconfiguration.openshift.io/state", ("", "Done")),
)


def foreign(node: NodeObject, *, cordoned: bool, more: Sequence[str] = ()) -> str | None:
    """Who else has the Node in hand and how that is seen, in words; None: nobody.

    `cordoned`: its cordon is ours. `more`: keys from the configuration, wherever they stand.
    """
    if node.deleting:
        return "the Node is being deleted"
    if node.unschedulable and not cordoned:
        return "somebody else has cordoned the node"
    places: tuple[Place, ...] = ("label", "annotation", "taint")
    own = tuple(Mark("somebody", place, key) for key in more for place in places)
    for mark in (*FOREIGN, *own):
        for key, value in _matches(node, mark):
            if mark.idle is None or value not in mark.idle:
                return f"{mark.who} has the node in hand ({mark.place} {key}{value and f'={value}'})"
    return None


def opted_out(node: NodeObject) -> bool:
    """Whether the Node, by label or annotation, is to be left alone."""
    return "true" in {marks.get(OPT_OUT, "").strip().lower() for marks in (node.labels, node.annotations)}


def _matches(node: NodeObject, mark: Mark) -> Iterator[tuple[str, str]]:
    marks: dict[Place, list[tuple[str, str]]] = {
        "label": list(node.labels.items()),
        "annotation": list(node.annotations.items()),
        "taint": [(taint.key, taint.value) for taint in node.taints],
    }
    return ((key, value) for key, value in marks[mark.place] if _is_meant(key, mark.key))


def _is_meant(key: str, pattern: str) -> bool:
    if pattern.endswith("*"):
        return key.startswith(pattern[:-1])
    return key.endswith(pattern[1:]) if pattern.startswith("*") else key == pattern
