"""What on a Node is ours, read back from our own annotations.

They may have been edited, copied from another Node or written by another version: what cannot be read is not ours to
touch. The taint's key alone proves nothing, for anybody can write it.
"""

from enum import StrEnum
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import json

from gpuwatch.kube.objects import TAINT, NodeObject, Taint
from gpuwatch.remediation.model.plan import ACKNOWLEDGED, FAULTS, OWNER, Fault, Ownership

MAX_FAULTS = 16
MAX_MESSAGE = 200

Kind = TypeVar("Kind")


class Claim(StrEnum):
    """How far a quarantine of this Node went, as the Node itself tells it."""

    NONE = "none"
    CLAIMED = "claimed"  # announced, not carried out
    APPLIED = "applied"
    OVERRULED = "overruled"  # carried out, and since undone or changed by a person
    FOREIGN = "foreign"  # a taint with our key that we did not put there
    UNREADABLE = "unreadable"  # the annotation is not one of ours for this Node


class Hold(NamedTuple):
    """`owner` is there for claimed, applied and overruled; with `foreign` when a claim lies beside the taint."""

    claim: Claim
    owner: Ownership | None = None


def hold(node: NodeObject) -> Hold:
    """What the Node says of us."""
    text = node.annotations.get(OWNER)
    if text is None:
        return Hold(Claim.FOREIGN if node.taint else Claim.NONE)
    owner = decode(text, Ownership)
    if owner is None or owner.node_uid != node.uid:
        return Hold(Claim.UNREADABLE)
    if owner.state == "claimed":
        return Hold(Claim.FOREIGN if node.taint else Claim.CLAIMED, owner)
    return Hold(Claim.APPLIED if ours(node, owner) else Claim.OVERRULED, owner)


def ours(node: NodeObject, owner: Ownership) -> Taint | None:
    """Our very taint: of our key, and of the value and effect we gave it."""
    wanted = (TAINT, owner.value, owner.effect)
    return next((taint for taint in node.taints if (taint.key, taint.value, taint.effect) == wanted), None)


def without_ours(node: NodeObject, owner: Ownership) -> tuple[Taint, ...]:
    """Everybody else's taints, in their order."""
    mine = ours(node, owner)
    return tuple(taint for taint in node.taints if taint is not mine)


def faults(node: NodeObject) -> tuple[Fault, ...]:
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
