"""Labels that tell schedulers of a node's GPUs what no other label tells: changed seldom, and only when they differ.

Every change of a Node's label makes schedulers and watchers look again, so what varies belongs into metrics. A label
that a person has set, changed or taken off is left as it is.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from gpuwatch.kube.objects import DOMAIN, NodeObject
from gpuwatch.model.finding import Health
from gpuwatch.model.response import Response
from gpuwatch.model.view import View
from gpuwatch.remediation.model.plan import DEGRADED, GPU_CLASS, HEALTHY_COUNT, LABELS, NVLINK, PatchNode, Published
from gpuwatch.remediation.planning.evidence import in_force
from gpuwatch.remediation.planning.gpu_class import gpu_class, nvlink
from gpuwatch.remediation.planning.inputs import Case, Draft
from gpuwatch.remediation.planning.other_controllers import opted_out
from gpuwatch.remediation.planning.ownership import Claim, decode, encode

LABEL_SECONDS = 300.0
"""Between two changes of a Node's labels, at least."""

ALL = (DEGRADED, GPU_CLASS, HEALTHY_COUNT, NVLINK)

Values = Mapping[str, str | None]


def publication(case: Case, draft: Draft) -> PatchNode | None:
    """The patch that is due now, if any. `draft`: of the same plan."""
    published = _published(case.node)
    if published is None or case.node.deleting or not case.is_fresh:
        return None
    if 0 <= case.now - published.at < LABEL_SECONDS:
        return None
    node, is_off = case.node, opted_out(case.node) or not case.policy.config.labels
    labels, left = _changes(node, published.labels, _wanted(case, draft))
    is_kept = bool(left) or (LABELS in node.annotations and not is_off)  # also without a label it says when
    if not labels and left == published.labels and is_kept == (LABELS in node.annotations):
        return None
    text = encode(replace(published, at=case.now, labels=left)) if is_kept else None
    return PatchNode(step="label", annotations={LABELS: text}, labels=labels)


def values(view: View, *, degraded: bool) -> Values:
    """What the labels should say: None takes one away, and what is not known now is left out."""
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
    """Labels of ours on the Node that say something else than they should, and what they say."""
    published = _published(node) or Published(at=0.0)
    ours = {key: value for key, value in published.labels.items() if node.labels.get(key) == value}
    return {key: value for key, value in ours.items() if key in now and now[key] != value}


def published_by_us(node: NodeObject) -> dict[str, str | None]:
    """What takes our labels off the Node, but for those that say by now what somebody else wants."""
    published = _published(node) or Published(at=0.0)
    return {key: None for key, value in published.labels.items() if key in ALL and node.labels.get(key) == value}


def _wanted(case: Case, draft: Draft) -> Values:
    if opted_out(case.node):
        return dict.fromkeys(ALL)
    by_us = case.claim is Claim.APPLIED and draft.owner is not None and draft.owner.by == "remediator"
    found = values(case.view, degraded=by_us or bool(in_force(case.view, case.policy, Response.CONDITION)))
    chosen = {f"{DOMAIN}/{name}" for name in case.policy.config.labels}
    return {key: found.get(key) if key in chosen else None for key in ALL if key in found or key not in chosen}


def _changes(
    node: NodeObject, before: Mapping[str, str], wanted: Values
) -> tuple[dict[str, str | None], dict[str, str]]:
    """Labels to write, and those that are ours afterwards; `before`: those that were."""
    labels: dict[str, str | None] = {}
    left = dict(before)
    for key, value in wanted.items():
        there, ours = node.labels.get(key), before.get(key)
        if there is not None and there != ours:  # a person's, now or all along
            left.pop(key, None)
        elif value is None:
            left.pop(key, None)
            labels |= {key: None} if there is not None else {}
        elif value != ours:  # where it says the same and is not there, a person took it off
            labels[key] = left[key] = value
    return labels, left


def _published(node: NodeObject) -> Published | None:
    """None: the annotation is not one of ours, so no label is known to be."""
    text = node.annotations.get(LABELS)
    return Published(at=float("-inf")) if text is None else decode(text, Published)
