"""OWNERSHIP"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Literal, NamedTuple, TypeVar

import msgspec
from msgspec import json

from gpuwatch.kube.objects import TAINT, NodeObject, Taint
from gpuwatch.remediation.model import ACKNOWLEDGED, FAULTS, OPT_OUT, OWNER, Fault, Ownership

MAX_FAULTS = 16
MAX_MESSAGE = 200

Kind = TypeVar("Kind")


class ClaimState(StrEnum):
    """How far a quarantine of this Node went, as the Node itself tells it."""

    NONE = "none"
    CLAIMED = "claimed"  # announced, not carried out
    APPLIED = "applied"
    OVERRULED = "overruled"  # carried out, and since undone or changed by a person
    FOREIGN = "foreign"  # a taint with our key that we did not put there
    UNREADABLE = "unreadable"  # the annotation is not one of ours for this Node


class NodeClaim(NamedTuple):
    """`owner` is there for claimed, applied and overruled; with `foreign` when a claim lies beside the taint."""

    claim: ClaimState
    owner: Ownership | None = None


def read_claim(node: NodeObject) -> NodeClaim:
    """What the Node says of us."""
    text = node.annotations.get(OWNER)
    if text is None:
        return NodeClaim(ClaimState.FOREIGN if node.taint else ClaimState.NONE)
    owner = decode(text, Ownership)
    if owner is None or owner.node_uid != node.uid:
        return NodeClaim(ClaimState.UNREADABLE)
    if owner.state == "claimed":
        return NodeClaim(ClaimState.FOREIGN if node.taint else ClaimState.CLAIMED, owner)
    return NodeClaim(ClaimState.APPLIED if own_taint(node, owner) else ClaimState.OVERRULED, owner)


def own_taint(node: NodeObject, owner: Ownership) -> Taint | None:
    """Our very taint: of our key, and of the value and effect we gave it."""
    wanted = (TAINT, owner.value, owner.effect)
    return next((taint for taint in node.taints if (taint.key, taint.value, taint.effect) == wanted), None)


def foreign_taints(node: NodeObject, owner: Ownership) -> tuple[Taint, ...]:
    """Everybody else's taints, in their order."""
    mine = own_taint(node, owner)
    return tuple(taint for taint in node.taints if taint is not mine)


def recorded_faults(node: NodeObject) -> tuple[Fault, ...]:
    """Why the Node is quarantined; empty when that cannot be read."""
    return decode(node.annotations.get(FAULTS), tuple[Fault, ...]) or ()


def acknowledged(node: NodeObject) -> dict[str, float]:
    """Fault key -> its latest occurrence that a person has overruled; empty when that cannot be read."""
    return decode(node.annotations.get(ACKNOWLEDGED), dict[str, float]) or {}


def encode(noun: object) -> str:
    """The text of an annotation; the same noun always gives the same text."""
    return json.encode(noun, order="sorted").decode()


def decode(text: str | None, kind: type[Kind]) -> Kind | None:
    """Members of newer versions are passed over; a value that is not understood makes the whole unreadable."""
    try:
        return None if text is None else json.decode(text, type=kind)
    except msgspec.MsgspecError:  # malformed, or of another shape
        return None
    except UnicodeEncodeError:  # lone surrogates, which JSON text from elsewhere may hold
        return None


Place = Literal["label", "annotation", "taint"]


class ControllerMark(NamedTuple):
    """One row; `idle`: values at rest, None: any value counts."""

    who: str
    place: Place
    key: str
    idle: tuple[str, ...] | None = None


OTHER_CONTROLLERS: tuple[ControllerMark, ...] = (
    ControllerMark("NVSentinel", "label", "dgxc.nvidia.com/nvsentinel-state", ("", "remediation-succeeded")),
    ControllerMark("NVSentinel", "label", "*nvidia.com/cordon-by", ("",)),
    ControllerMark("NVSentinel", "annotation", "quarantineHealthEvent", ("", "{}", "[]")),
    ControllerMark("Karpenter", "taint", "karpenter.sh/disrupted"),
    ControllerMark("Karpenter", "taint", "karpenter.sh/disruption"),
    ControllerMark("the cluster autoscaler", "taint", "ToBeDeletedByClusterAutoscaler"),
    ControllerMark("the cluster autoscaler", "taint", "DeletionCandidateOfClusterAutoscaler"),
    ControllerMark(
        "the GPU operator's driver upgrade",
        "label",
        "nvidia.com/gpu-driver-upgrade-state",
        ("", "upgrade-done", "upgrade-required", "unknown"),  # `required` only waits in the queue
    ),
    ControllerMark("the MIG manager", "label", "nvidia.com/mig.config.state", ("", "success", "failed")),
    ControllerMark("the cloud provider", "taint", "node.cloudprovider.kubernetes.io/shutdown"),
    ControllerMark("the cloud provider", "taint", "node.cloudprovider.kubernetes.io/uninitialized"),
    ControllerMark("the cloud provider", "taint", "cloud.google.com/impending-node-termination"),
    ControllerMark("the cloud provider", "taint", "aws-node-termination-handler/*"),
    ControllerMark("the cloud provider", "taint", "remediator.aks.microsoft.com/unschedulable"),
    ControllerMark("an administrator", "taint", "node.kubernetes.io/out-of-service"),
    ControllerMark("medik8s", "taint", "medik8s.io/*"),
    ControllerMark("medik8s", "annotation", "remediation.medik8s.io/*"),
    ControllerMark("kured", "annotation", "weave.works/kured-reboot-in-progress"),
    ControllerMark("kured", "annotation", "kured.dev/reboot-in-progress"),
    ControllerMark(
        "the machine config operator", "annotation", "machineconfiguration.openshift.io/state", ("", "Done")
    ),
)


def other_controller(node: NodeObject, *, cordoned: bool, more: Sequence[str] = ()) -> str | None:
    """Who else has the Node in hand and how that is seen, in words; None: nobody.

    `cordoned`: its cordon is ours. `more`: keys from the configuration, wherever they stand.
    """
    if node.deleting:
        return "the Node is being deleted"
    if node.unschedulable and not cordoned:
        return "somebody else has cordoned the node"
    places: tuple[Place, ...] = ("label", "annotation", "taint")
    own = tuple(ControllerMark("somebody", place, key) for key in more for place in places)
    for mark in (*OTHER_CONTROLLERS, *own):
        for key, value in _matches(node, mark):
            if mark.idle is None or value not in mark.idle:
                return f"{mark.who} has the node in hand ({mark.place} {key}{value and f'={value}'})"
    return None


def opted_out(node: NodeObject) -> bool:
    """Whether the Node, by label or annotation, is to be left alone."""
    return "true" in {marks.get(OPT_OUT, "").strip().lower() for marks in (node.labels, node.annotations)}


def _matches(node: NodeObject, mark: ControllerMark) -> Iterator[tuple[str, str]]:
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
