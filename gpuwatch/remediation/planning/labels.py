"""Labels that describe a node's GPUs to schedulers: changed seldom, and only when they differ.

Every change of a Node's label wakes schedulers and watchers, so values that vary belong in metrics. A label that
a person has set, changed or removed is left as it is.
"""

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from gpuwatch.kube.objects import DOMAIN, NodeObject
from gpuwatch.model.finding import Health, Response
from gpuwatch.model.snapshot import Gpu
from gpuwatch.model.view import View
from gpuwatch.remediation.model import DEGRADED, GPU_CLASS, HEALTHY_COUNT, LABELS, NVLINK, PatchNode, PublishedLabels
from gpuwatch.remediation.planning.evidence import in_force
from gpuwatch.remediation.planning.inputs import PlanDraft, PlanInputs
from gpuwatch.remediation.planning.ownership import ClaimState, decode, encode, opted_out

GIB = 2**30
MAX_VALUE = 63
"""Of a label's value, in bytes."""

SIZES = (
    4, 6, 8, 10, 11, 12, 16, 20, 24, 32, 40, 48, 64, 80, 94, 96, 128, 141, 144, 180, 186, 192, 288,
)  # fmt: skip
"""Gigabytes by which NVIDIA sells GPUs."""

SHORT = 0.925
"""NVML reports at least this share of the size sold: ECC of GDDR uses a sixteenth, and firmware a little more."""

_NO_MODEL = re.compile(
    r"NVIDIA|Tesla|GeForce|Quadro|GRID|SXM\d*( AC)?|PCIe|PCI-E|NVL|HBM\d\w*|(?<!\d)\d++GB|Graphics|Device", re.I
)
_NO_VALUE = re.compile(r"[^a-z0-9.]+")


def gpu_class(gpus: Sequence[Gpu]) -> str | None:
    """`h100-80`, `l40s-48`, `rtx-4080-super-16`; `mixed` for several; None where NVML names none of them."""
    named = [gpu for gpu in gpus if gpu.identity.name]
    sized = [gpu for gpu in named if gpu.memory.total]
    classes = {_class(gpu.identity.name or "", gpu.memory.total) for gpu in sized or named}
    return next(iter(classes)) if len(classes) == 1 else "mixed" if classes else None


def nvlink(gpus: Sequence[Gpu], *, missing: int = 0) -> str:
    """`full`: every link of every GPU is up; `none`: no link is up, or there are none; else `partial`. `missing`:
    how many GPUs should be there but are not.
    """
    links = [link.active for gpu in gpus for link in gpu.nvlinks]
    if not any(links):
        return "none"
    return "full" if all(links) and all(gpu.nvlinks for gpu in gpus) and not missing else "partial"


def _class(name: str, memory: int | None) -> str:
    model = _NO_VALUE.sub("-", _NO_MODEL.sub(" ", name).lower()).strip("-.") or "gpu"
    size = ""
    if memory:  # the size by which it is sold, else the memory it has, in GiB
        there = memory / GIB
        sold = next((size for size in SIZES if SHORT * size <= there <= 1.01 * size), max(1, round(there)))
        size = f"-{sold}"
    return f"{model[: MAX_VALUE - len(size)].rstrip('-.')}{size}"


LABEL_SECONDS = 300.0
"""Least seconds between two changes of a Node's labels."""

ALL = (DEGRADED, GPU_CLASS, HEALTHY_COUNT, NVLINK)

Values = Mapping[str, str | None]


def publication(inputs: PlanInputs, draft: PlanDraft) -> PatchNode | None:
    """The patch that is due now, if any. `draft`: of the same plan."""
    published = _published(inputs.node)
    if published is None or inputs.node.deleting or not inputs.is_fresh:
        return None
    if 0 <= inputs.now - published.at < LABEL_SECONDS:
        return None
    node, is_off = inputs.node, opted_out(inputs.node) or not inputs.policy.config.labels
    wanted: Values = dict.fromkeys(ALL)
    if not opted_out(node):
        by_us = inputs.claim is ClaimState.APPLIED and draft.owner is not None and draft.owner.by == "remediator"
        degraded = by_us or bool(in_force(inputs.view, inputs.policy, Response.CONDITION))
        known = values(inputs.view, degraded=degraded)
        chosen = {f"{DOMAIN}/{name}" for name in inputs.policy.config.labels}
        wanted = {key: known.get(key) if key in chosen else None for key in ALL if key in known or key not in chosen}
    labels, left = _changes(node, published.labels, wanted)
    is_kept = bool(left) or (LABELS in node.annotations and not is_off)  # also without a label it keeps the time
    if not labels and left == published.labels and is_kept == (LABELS in node.annotations):
        return None
    text = encode(replace(published, at=inputs.now, labels=left)) if is_kept else None
    return PatchNode(step="label", annotations={LABELS: text}, labels=labels)


def values(view: View, *, degraded: bool) -> Values:
    """The values that the labels should have: None removes a label; one whose value is not known now is left out."""
    healths = view.judgement.gpus
    if not healths or Health.UNKNOWN in healths.values():
        return {}
    well = sum(health is Health.HEALTHY for health in healths.values())
    found: dict[str, str | None] = {DEGRADED: "true" if degraded else None, HEALTHY_COUNT: str(well)}
    gpus, statuses = view.snapshot.gpus, view.snapshot.statuses
    if gpus:
        found[NVLINK] = nvlink(gpus, missing=max(len(statuses), view.snapshot.expected_gpus or 0) - len(gpus))
        names = {status.identity.name for status in statuses} - {gpu.identity.name for gpu in gpus}
        kind = "mixed" if names - {None} else gpu_class(gpus)
        found |= {GPU_CLASS: kind} if kind else {}
    return found


def outdated(node: NodeObject, now: Values) -> dict[str, str]:
    """Our labels on the Node that do not have the value they should have, with the value they have."""
    published = _published(node) or PublishedLabels(at=0.0)
    ours = {key: value for key, value in published.labels.items() if node.labels.get(key) == value}
    return {key: value for key, value in ours.items() if key in now and now[key] != value}


def published_by_us(node: NodeObject) -> dict[str, str | None]:
    """A change that removes our labels from the Node, except those whose value another writer has changed."""
    published = _published(node) or PublishedLabels(at=0.0)
    return {key: None for key, value in published.labels.items() if key in ALL and node.labels.get(key) == value}


def _changes(
    node: NodeObject, before: Mapping[str, str], wanted: Values
) -> tuple[dict[str, str | None], dict[str, str]]:
    """Labels to write, and those that are ours afterwards; `before`: those that were ours."""
    labels: dict[str, str | None] = {}
    left = dict(before)
    for key, value in wanted.items():
        there, ours = node.labels.get(key), before.get(key)
        if there is not None and there != ours:  # a person set it, after our write or before
            left.pop(key, None)
        elif value is None:
            left.pop(key, None)
            labels |= {key: None} if there is not None else {}
        elif value != ours:  # else, where the label is not there, a person removed it
            labels[key] = left[key] = value
    return labels, left


def _published(node: NodeObject) -> PublishedLabels | None:
    """None: the annotation is not one of ours, so no label is known to be ours."""
    text = node.annotations.get(LABELS)
    return PublishedLabels(at=float("-inf")) if text is None else decode(text, PublishedLabels)
