"""Ownership of a taint: which marks on a Node are gpuwatch's, and which belong to other controllers or to persons.

The problem. A Node is shared. Schedulers, autoscalers, other remediation tools and administrators all write its taints,
labels, annotations and its cordon, and each may write a taint with our key. gpuwatch must remove everything it has
set, must remove nothing else, and must notice when a person has overruled it. It must do so after a crash between any
two requests, after its own state file was lost, and when the Node was deleted and created again under its name.

What does not work. The taint's key proves nothing: `kubectl taint` can write it. Field managers of server-side apply
would name us, but `spec.taints` is an atomic list, so the last writer owns all of it. A record on our own disk is lost
with the disk, and cannot be written in the same step as the taint, so a crash leaves the two in disagreement.

The solution is an annotation (`Ownership`) that is written in the same PATCH as what it describes, which makes them
agree at all times, and in two states that make a missing taint mean one thing each:

    claimed   written alone, before the budget's slot and the taint. No taint yet: we were interrupted, and begin again.
    applied   written together with the taint. No taint any more: a person removed it, and that decision stands. A claim
              to sick GPUs alone (scope gpu) has no taint; it ends with the annotation.

It names the Node's uid, so that a copied annotation or a new Node of the old name is not ours, and the taint's value
and effect, so that a taint which a person has edited counts as theirs. Nor does gpuwatch change an annotation that
it cannot decode. Every combination of annotation and taint is one `ClaimState`, and the planner reads only that.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, NamedTuple, TypeVar

from msgspec import json

from gpuwatch.kube.objects import TAINT, NodeObject, Taint
from gpuwatch.model.snapshot import UNREADABLE
from gpuwatch.model.text import json_text
from gpuwatch.remediation.model import ACKNOWLEDGED, FAULTS, OPT_OUT, OWNER, Fault, Ownership

MAX_FAULTS = 16
MAX_MESSAGE = 200

Kind = TypeVar("Kind")


class ClaimState(StrEnum):
    """How far a quarantine of this Node went, by the Node's own annotations and taints."""

    NONE = "none"
    CLAIMED = "claimed"  # intended, not carried out
    APPLIED = "applied"
    OVERRULED = "overruled"  # carried out, and since undone or changed by a person
    FOREIGN = "foreign"  # a taint with our key that we did not set
    UNREADABLE = "unreadable"  # the annotation is not one of ours for this Node


class NodeClaim(NamedTuple):
    """`owner` is there for claimed, applied and overruled; for `foreign` when there is a claim beside the taint."""

    claim: ClaimState
    owner: Ownership | None = None


def read_claim(node: NodeObject) -> NodeClaim:
    """Our claim on a Node."""
    text = node.annotations.get(OWNER)
    if text is None:
        return NodeClaim(ClaimState.FOREIGN if node.taint else ClaimState.NONE)
    owner = decode(text, Ownership)
    if owner is None or owner.node_uid != node.uid:
        return NodeClaim(ClaimState.UNREADABLE)
    if owner.state == "claimed":
        return NodeClaim(ClaimState.FOREIGN if node.taint else ClaimState.CLAIMED, owner)
    if owner.scope == "gpu":
        return NodeClaim(ClaimState.FOREIGN if node.taint else ClaimState.APPLIED, owner)
    return NodeClaim(ClaimState.APPLIED if own_taint(node, owner) else ClaimState.OVERRULED, owner)


def own_taint(node: NodeObject, owner: Ownership) -> Taint | None:
    """The taint that we set: with our key, and with the value and effect that we wrote."""
    wanted = (TAINT, owner.value, owner.effect)
    return next((taint for taint in node.taints if (taint.key, taint.value, taint.effect) == wanted), None)


def foreign_taints(node: NodeObject, owner: Ownership) -> tuple[Taint, ...]:
    """All taints but ours, in their order."""
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
    return json_text(json.encode(noun, order="sorted"))


def decode(text: str | None, kind: type[Kind]) -> Kind | None:
    """Members of newer versions are ignored; a value that cannot be decoded makes the whole text unreadable: None."""
    try:
        return None if text is None else json.decode(text, type=kind)
    except UNREADABLE:  # also lone surrogates in JSON text from elsewhere
        return None


Place = Literal["label", "annotation", "taint"]


class ControllerMark(NamedTuple):
    """How a controller marks a Node it is working on. `key` ending in * is a prefix, beginning with * a suffix.

    `idle`: values at rest; None: any value counts.
    """

    controller: str
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
"""Two controllers at work on one Node undo each other. Sources: the projects' documentation of their marks."""


def other_controller(node: NodeObject, *, cordoned: bool, more: Sequence[str] = ()) -> str | None:
    """Which other controller is working on the Node, and by which mark, as a sentence; None: no other.

    `cordoned`: its cordon is ours. `more`: keys from the configuration, in any place.
    """
    if node.deleting:
        return "the Node is being deleted"
    if node.unschedulable and not cordoned:
        return "a person or another controller has cordoned the node"
    present: dict[Place, list[tuple[str, str]]] = {
        "label": list(node.labels.items()),
        "annotation": list(node.annotations.items()),
        "taint": [(taint.key, taint.value) for taint in node.taints],
    }
    own = tuple(ControllerMark("another controller", place, key) for key in more for place in present)
    for mark in (*OTHER_CONTROLLERS, *own):
        prefix, star, end = mark.key.partition("*")
        for key, value in present[mark.place]:
            if not (key == mark.key or (star and key.startswith(prefix) and key.endswith(end))):
                continue
            if mark.idle is None or value not in mark.idle:
                return f"{mark.controller} is working on the node ({mark.place} {key}{value and f'={value}'})"
    return None


def opted_out(node: NodeObject) -> bool:
    """Whether the Node's label or annotation `gpuwatch.io/opt-out` is true."""
    return "true" in {marks.get(OPT_OUT, "").strip().lower() for marks in (node.labels, node.annotations)}
