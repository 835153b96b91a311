"""Sentences about events in the demo's cluster: the actor, the change, and what it means for the work on it; and about
what the driver reports and the repairer does.
"""

import threading
from collections import deque
from collections.abc import Iterable, Iterator

from gpuwatch.cli.look.gather import RECOVERY_ADVICE
from gpuwatch.kube.objects import CONDITION, TAINT
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.event import ActionEvent, Result
from gpuwatch.model.xid import XidEvent
from gpuwatch.model.xid_catalogue import explain, recovery_action
from gpuwatch.remediation.model import OWNER, BlockReason, NodeStage, Plan
from gpuwatch.remediation.planning.inputs import CONFINED
from gpuwatch.sim.kubeapi.messages import Object
from gpuwatch.sim.kubeapi.objects import GPU, gpus_of, is_leaving, is_ready
from gpuwatch.sim.kubeapi.store import CommittedWrite

ACTORS = {
    "gpuwatch": "gpuwatch",
    "admin": "a person",
    "system:kube-scheduler": "scheduler",
    "system:kubelet": "kubelet",
    "system:serviceaccount:kube-system:replicaset-controller": "controller",
}
"""User -> name in the story."""


LINE_SECONDS = 2.0
"""How long after the driver's event the kernel's line may come."""

REPAIRS = {
    ("reset_gpu", Result.INTENDED): "resets {gpu}, which nothing uses any more: {why}",
    ("reset_gpu", Result.DONE): "has reset {gpu}, and it answers again",
    ("validate", Result.DONE): "has put {gpu} to work, and it passed",
}
"""(action, result) -> its sentence; any other is of an action that failed."""


class ClusterNarrator:
    """Observes every write; `sentences` describes those since the last call."""

    def __init__(self) -> None:
        self._writes: deque[CommittedWrite] = deque()
        self._lock = threading.Lock()
        self._refused = ""
        self._stage: NodeStage | None = None

    def observe(self, write: CommittedWrite) -> None:
        """One committed write; an observer of the cluster."""
        with self._lock:
            self._writes.append(write)

    def sentences(self) -> Iterator[tuple[str, str]]:
        """(actor, sentence) for each write since the last call."""
        with self._lock:
            writes = list(self._writes)
            self._writes.clear()
        for write in writes:
            name, before, after = write.key.name, write.previous or {}, write.object
            texts: Iterable[str] = ()
            match write.key.resource:
                case "nodes":
                    texts = _node_sentences(name, before, after)
                case "pods":
                    texts = _pod_sentences(write.change, before, after)
                case "events":
                    about = after["involvedObject"]
                    where = "/".join(filter(None, (about.get("namespace"), about["name"])))
                    texts = (f"Event {after['reason']} on {about['kind'].lower()} {where}: {after['message']}",)
                case "leases":
                    was, now = (each.get("spec", {}).get("holderIdentity") for each in (before, after))
                    if now and now != was:
                        limit = "the fleet's budget, which limits how many nodes may be out of use at once"
                        texts = (f"takes {name} for {now}: {limit}",)
                    elif was and not now:
                        texts = (f"releases {name}: another node may be taken out of use",)
            ended = write.key.resource == "pods" and write.change == "DELETED"
            actor = "kubelet" if ended else ACTORS.get(write.user, "kubernetes")
            for text in texts:
                yield actor, text

    def plan_sentences(self, plan: Plan | None) -> Iterator[tuple[str, str]]:
        """What the remediator waits for, where that has changed."""
        if plan is None:
            return
        refusals = (one.message for one in plan.blocked if one.reason is BlockReason.PDB)
        refused = next(refusals, "").partition(" (asked")[0]
        if refused and refused != self._refused:
            yield "gpuwatch", f"asked it to leave and got a no: {refused}"
        self._refused = refused
        if plan.stage is NodeStage.RECOVERING and self._stage is not NodeStage.RECOVERING:
            yield "gpuwatch", "finds no fault any more, and watches longer before it releases the node"
        self._stage = plan.stage


def is_incomplete(event: XidEvent) -> bool:
    """Whether the kernel's line that explains XID 154 is still to come."""
    return event.xid == RECOVERY_ADVICE and event.recovery is None and SystemClock().time() - event.at < LINE_SECONDS


def xid_sentence(event: XidEvent) -> str:
    """An XID in a sentence; for XID 154 the driver's advice, which is all that it contains."""
    if event.xid == RECOVERY_ADVICE:
        action = recovery_action(event.recovery) if event.recovery else None
        asked = f"this: {action.meaning}" if action else "something else than before"
        meaning = f"the GPU now asks for {'nothing any more' if event.recovery == 0 else asked}"
    else:
        info = explain(event.xid)
        meaning = info.description.partition(".")[0] if info else "not documented"
    process = f", process {event.name}" if event.name else ""
    return f"reports XID {event.xid} on GPU {event.uuid or event.pci}{process}: {meaning}"


def repair_sentences(actions: Iterable[ActionEvent]) -> Iterator[tuple[str, str]]:
    """(actor, sentence) for each of the repairer's actions."""
    for each in actions:
        sentence = REPAIRS.get((each.action, each.result), "{action} of {gpu} failed: {detail}{why}")
        if each.actor == "repairer" and each.action != "repaired":
            gpu = each.target.removeprefix("gpu/")
            yield "repairer", sentence.format(gpu=gpu, action=each.action, why=each.why, detail=each.detail)


def _node_sentences(name: str, before: Object, after: Object) -> Iterator[str]:
    was, now = (
        {
            f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"
            for taint in node.get("spec", {}).get("taints", [])
            if taint["key"] == TAINT
        }
        for node in (before, after)
    )
    notes = (_annotations(before), _annotations(after))
    if OWNER in notes[1] and OWNER not in notes[0]:
        yield f"writes on {name} what it is about to do and why, so that anyone can see and undo it"
        if '"scope":"gpu"' in notes[1][OWNER]:
            yield f"needs no taint on {name}: {CONFINED}"
    if OWNER in notes[0] and OWNER not in notes[1]:
        yield f"removes from {name} what it wrote there: nothing is out of service any more"
    gpus = [each.get("status", {}).get("allocatable", {}).get(GPU) for each in (before, after)]
    if gpus[0] and gpus[0] != gpus[1]:
        yield f"offers pods {gpus[1]} GPUs of {name} instead of {gpus[0]}, as the device plugin says"
    for taint in now - was:
        yield f"taints {name} with {taint}: no new work here, running pods stay"
    for taint in was - now:
        yield f"takes the taint {taint} off {name}: new work may come again"
    conditions = [condition_of(each) for each in (before, after)]
    if conditions[0] != conditions[1] and conditions[1] is not None:
        yield f"sets the condition {CONDITION} of {name} to {conditions[1][0]}: {conditions[1][1]}"
    cordons = [bool(each.get("spec", {}).get("unschedulable")) for each in (before, after)]
    if cordons[0] != cordons[1]:
        yield f"cordons {name}: no new pods at all" if cordons[1] else f"uncordons {name}"


def _pod_sentences(change: str, before: Object, after: Object) -> Iterator[str]:
    name = f"{after['metadata']['namespace']}/{after['metadata']['name']}"
    if change == "ADDED":
        if after["status"].get("phase") == "Pending":
            yield f"{name} is wanted and asks for {gpus_of(after)} GPU{'s' if gpus_of(after) > 1 else ''}"
        return
    if change == "DELETED":
        yield f"{name} has ended"
        return
    if added := _annotations(after).items() - _annotations(before).items():
        yield f"annotates {name} with {', '.join(sorted(f'{key}={value}' for key, value in added))}"
    if is_leaving(after) and not is_leaving(before):
        yield f"asks {name} to leave, within its disruption budget: it may finish what it does and then ends"
    placed = after["spec"].get("nodeName")
    if placed and placed != before.get("spec", {}).get("nodeName"):
        yield f"places {name} on {placed}"
    elif is_ready(after) and not is_ready(before):
        yield f"{name} is ready"


def _annotations(node: Object) -> Object:
    found: Object = node.get("metadata", {}).get("annotations", {})
    return found


def condition_of(node: Object) -> tuple[str, str] | None:
    """Status and message of the condition GPUHealthy."""
    conditions = node.get("status", {}).get("conditions", [])
    found = next((each for each in conditions if each["type"] == CONDITION), None)
    return (found["status"], found.get("message", "")) if found else None
