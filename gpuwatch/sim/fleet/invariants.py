"""Checks every write, when it is committed, against rules that must always hold.

It shares no code with the remediator except the names and the form of the annotations.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from gpuwatch.kube.objects import CONDITION, DOMAIN, TAINT
from gpuwatch.model.clock import Clock
from gpuwatch.model.decoding import prepared
from gpuwatch.remediation.model import DEGRADED, FAULTS, GPU_CLASS, HEALTHY_COUNT, LABELS, NVLINK, OWNER
from gpuwatch.sim.kubeapi.messages import Object
from gpuwatch.sim.kubeapi.store import CommittedWrite

TRAIL = 400
"""Writes kept to show what led to a violation."""
TRAIL_LINES = 64
"""The last of these writes that a violation shows."""

SCHEDULING = frozenset({DEGRADED, GPU_CLASS, HEALTHY_COUNT, NVLINK})
MIN_LABEL_SECONDS = 299.0
"""Least seconds between two changes of the labels for schedulers."""


class Violation(NamedTuple):
    """An invariant that did not hold, at the moment of the write; `trail`: the writes that led there, oldest first."""

    at: float
    node: str
    rule: str
    message: str
    trail: tuple[str, ...] = ()


class _Fault(msgspec.Struct):
    key: str
    last: float = 0.0


class InvariantChecker:
    """An observer of the cluster; called under its lock.

    `user`: the remediators' user. `well_for`: seconds for which a node has had no real fault, None while it is sick.
    """

    def __init__(
        self, clock: Clock, user: str, budget: int, recovery_hold: float, well_for: Callable[[str], float | None]
    ) -> None:
        self.budget, self.recovery_hold = budget, recovery_hold
        self.tainted: set[str] = set()
        self.confined: set[str] = set()
        """Nodes of which only sick GPUs are out of service."""
        self.most = 0
        """Nodes tainted at one time, since it was last set to 0."""
        self.writes = self.quarantines = 0
        self.violations: list[Violation] = []
        self._clock, self._user, self._well_for = clock, user, well_for
        self.held: dict[str, str] = {}
        """Slot in use -> node that holds it."""
        self._occurrences: set[tuple[str, str, float]] = set()
        self._labelled: dict[str, float] = {}
        self._trail: deque[tuple[str, str]] = deque(maxlen=TRAIL)

    def __call__(self, write: CommittedWrite) -> None:
        """Check one write."""
        self.writes += 1
        match write.key.resource:
            case "nodes":
                self._node(write)
            case "leases":
                self._lease(write)

    def slots_of(self, node: str) -> tuple[str, ...]:
        """The Leases that a node holds."""
        return tuple(name for name, holder in self.held.items() if holder == node)

    def _node(self, write: CommittedWrite) -> None:
        name, before, after = write.key.name, write.previous or {}, write.object
        if write.change == "DELETED":
            self.tainted.discard(name)
            self.confined.discard(name)
            return
        had, has = _ours(before), _ours(after)
        changes = tuple(_changes(before, after))
        if changes:
            self._trail.append((name, f"{self._now()} node/{name} by {write.user}: {', '.join(changes)}"))
        if len(has) > 1:
            self._violation(name, "tainted twice", f"{len(has)} taints with our key")
        if write.user == self._user:
            for message in _foreign_changes(before, after):
                self._violation(name, "not ours", message)
            self._labels(name, before, after)
        owner = after["metadata"].get("annotations", {}).get(OWNER, "")
        was_confined, is_confined = name in self.confined, '"applied"' in owner and '"scope":"gpu"' in owner
        if is_confined and not was_confined:
            self._confined(name, after)
        if has and not had:
            self._tainted(name, after)
        elif (had and not has and not is_confined) or (was_confined and not (is_confined or has)):
            self._released(name)
        elif had != has and not is_confined:
            self._violation(name, "tainted twice", f"the taint was replaced: {had} by {has}")

    def _labels(self, name: str, before: Object, after: Object) -> None:
        had, has = (
            {k: v for k, v in node["metadata"].get("labels", {}).items() if k in SCHEDULING} for node in (before, after)
        )
        if had == has:
            return
        now, last = self._clock.monotonic(), self._labelled.get(name)
        if last is not None and now - last < MIN_LABEL_SECONDS:
            self._violation(name, "restless", f"labels changed after {now - last:.0f} s: {had} to {has}")
        self._labelled[name] = now

    def _tainted(self, name: str, node: Object) -> None:
        self.confined.discard(name)
        self.tainted.add(name)
        self.quarantines += 1
        self.most = max(self.most, len(self.tainted))
        if len(self.tainted) > self.budget:
            self._violation(name, "budget", f"{len(self.tainted)} nodes are tainted, {self.budget} may be")
        if not self.slots_of(name):
            self._violation(name, "slot", "tainted without a slot of the budget")
        annotations = node["metadata"].get("annotations", {})
        if '"applied"' not in annotations.get(OWNER, ""):
            self._violation(name, "unowned", f"tainted without saying so in {OWNER}")
        if self._well_for(name) is not None:
            self._violation(name, "healthy node", "tainted though nothing is wrong with it")
        for fault in msgspec.json.decode(annotations.get(FAULTS, "[]"), type=prepared(list[_Fault])):
            occurrence = name, fault.key, fault.last
            if occurrence in self._occurrences:
                self._violation(name, "tainted twice", f"a second time for {fault.key}, which has not come back since")
            self._occurrences.add(occurrence)

    def _confined(self, name: str, node: Object) -> None:
        """Only the sick GPU is out of service: the kubelet must offer fewer GPUs, not only the remediator claim so."""
        self.tainted.discard(name)
        self.confined.add(name)
        self.quarantines += 1
        status = node["status"]
        if status["allocatable"] == status["capacity"]:
            self._violation(name, "unconfined", "no taint, and the sick GPU is still given to pods")
        if self._well_for(name) is not None:
            self._violation(name, "healthy node", "a GPU was taken out though nothing is wrong with it")
        if not self.slots_of(name):
            self._violation(name, "slot", "a GPU was taken out without a slot of the budget")

    def _released(self, name: str) -> None:
        self.tainted.discard(name)
        self.confined.discard(name)
        well = self._well_for(name)
        if well is None or well < self.recovery_hold:
            how = "is still sick" if well is None else f"has been healthy for {well:.0f} s only"
            self._violation(name, "released too early", f"it {how}")

    def _lease(self, write: CommittedWrite) -> None:
        slot = write.key.name
        was = self.held.get(slot, "")
        now = "" if write.change == "DELETED" else write.object["spec"].get("holderIdentity") or ""
        if was == now:
            return
        message = f"{self._now()} lease/{slot} by {write.user}: {was or 'free'} -> {now or 'free'}"
        self._trail += [(node, message) for node in (was, now) if node]
        if was in self.tainted and len(self.slots_of(was)) == 1:
            self._violation(was, "slot", f"{slot} was taken from a tainted node by {now or 'releasing it'}")
        if now:
            self.held[slot] = now
        else:
            self.held.pop(slot, None)

    def _violation(self, node: str, rule: str, message: str) -> None:
        """Record it, with the writes to its node; where the budget was exceeded, with those to all nodes."""
        lines = (line for about, line in self._trail if rule == "budget" or about == node)
        self.violations.append(Violation(self._clock.time(), node, rule, message, tuple(lines)[-TRAIL_LINES:]))

    def _now(self) -> str:
        return f"{self._clock.monotonic():9.1f} s"


def visible_state(node: Object) -> Object:
    """The state that other controllers read of a node, without heartbeats and scheduling labels: it must not change."""
    metadata, spec = node["metadata"], node["spec"]
    conditions = node["status"].get("conditions", [])
    return {
        "labels": {k: v for k, v in metadata.get("labels", {}).items() if k not in SCHEDULING},
        "annotations": {k: v for k, v in metadata.get("annotations", {}).items() if k != LABELS},
        "taints": spec.get("taints", []),
        "unschedulable": spec.get("unschedulable", False),
        "conditions": {each["type"]: each["status"] for each in conditions},
    }


def _ours(node: Object) -> list[Object]:
    return [taint for taint in node.get("spec", {}).get("taints", []) if taint["key"] == TAINT]


def _foreign_changes(before: Object, after: Object) -> Iterable[str]:
    """Changes of a remediator to values that are not gpuwatch's."""
    one, two = visible_state(before), visible_state(after)
    for kind in ("labels", "annotations"):
        if _foreign(one[kind]) != _foreign(two[kind]):
            yield f"a foreign one of the {kind} changed"
    if [t for t in one["taints"] if t["key"] != TAINT] != [t for t in two["taints"] if t["key"] != TAINT]:
        yield f"a foreign taint changed: {one['taints']} to {two['taints']}"
    if one["unschedulable"] != two["unschedulable"]:
        yield f"unschedulable became {two['unschedulable']}"
    foreign = [{key: value for key, value in each["conditions"].items() if key != CONDITION} for each in (one, two)]
    if foreign[0] != foreign[1]:
        yield f"foreign conditions changed: {foreign[0]} to {foreign[1]}"


def _foreign(marks: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in marks.items() if not key.startswith(f"{DOMAIN}/")}


def _changes(before: Object, after: Object) -> Iterable[str]:
    """The relevant changes of a write to a node, in short."""
    one, two = (_ours(node) for node in (before, after))
    if one != two:
        yield f"taint {one[0]['value'] if one else 'none'} -> {two[0]['value'] if two else 'none'}"
    states = [
        re.search(r'"state":"(\w+)"', node.get("metadata", {}).get("annotations", {}).get(OWNER, ""))
        for node in (before, after)
    ]
    message = [found[1] if found else "none" for found in states]
    if message[0] != message[1]:
        yield f"owner {message[0]} -> {message[1]}"
