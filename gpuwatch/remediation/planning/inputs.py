"""What one plan is made from, and the draft that the rules make of it."""

from typing import Any, Literal

from msgspec.structs import replace

from gpuwatch.kube.objects import NodeObject, PodObject
from gpuwatch.model.response import Response
from gpuwatch.model.snapshot import Record
from gpuwatch.model.view import View
from gpuwatch.remediation.model.plan import Blocked, Fault, FreeSlot, Memory, Ownership, Reason, Stage, Step
from gpuwatch.remediation.planning.draining import Evictions
from gpuwatch.remediation.planning.evidence import Sight, in_force, is_fresh, lasted
from gpuwatch.remediation.planning.ownership import Claim, acknowledged, hold
from gpuwatch.remediation.planning.policy import Policy
from gpuwatch.remediation.planning.slots import Slots, held

Want = Literal["slots", "pods"]


class Case(Record, frozen=True, kw_only=True):
    """Everything the rules may look at. `view` is there, though it may be old, and is of this Node's machine."""

    view: View
    sight: Sight
    node: NodeObject
    policy: Policy
    memory: Memory
    slots: Slots | None
    pods: tuple[PodObject, ...] | None
    now: float
    jitter: float
    evictions: Evictions

    @property
    def claim(self) -> Claim:
        """How far a quarantine went."""
        return hold(self.node).claim

    @property
    def owner(self) -> Ownership | None:
        """Our annotation."""
        return hold(self.node).owner

    @property
    def is_fresh(self) -> bool:
        """Whether the View tells of now."""
        return is_fresh(self.sight)

    @property
    def overruled(self) -> dict[str, float]:
        """Faults that a person has overruled, by the Node's word and by our own memory."""
        both = (acknowledged(self.node), self.memory.acknowledged)
        return {key: max(acks.get(key, 0.0) for acks in both) for acks in both for key in acks}

    def reasons(self) -> "Reasons":
        """The faults that call for a taint, sorted by what stands against each."""
        overruled, snapshot = self.overruled, self.view.snapshot
        found = in_force(self.view, self.policy, Response.TAINT) if self.is_fresh else ()
        new = tuple(fault for fault in found if fault.last > overruled.get(fault.key, -1.0))
        young = tuple(fault for fault in new if lasted(fault, snapshot) < self.policy.config.fault_hold)
        return Reasons(
            wanted=tuple(fault for fault in new if fault not in young),
            young=young,
            overruled=tuple(fault for fault in found if fault not in new),
        )

    def freed(self) -> tuple[FreeSlot, ...]:
        """Give back every slot this node holds, also where they could not be read."""
        names = {lease.name for lease in held(self.slots, self.node.name)}
        remembered = self.memory.slot or (self.owner.slot if self.owner else None)
        if remembered and (self.slots is None or self.slots.leases is None):
            names = {remembered}
        return tuple(FreeSlot(name=name) for name in sorted(names))


class Reasons(Record, frozen=True, kw_only=True):
    """Faults that call for a taint: those that count; those too young; those that a person has overruled."""

    wanted: tuple[Fault, ...] = ()
    young: tuple[Fault, ...] = ()
    overruled: tuple[Fault, ...] = ()


class Draft(Record, frozen=True, kw_only=True):
    """A plan without its condition and Events, which go between `steps` and `after`. `quarantined`: it will be."""

    stage: Stage
    words: str
    faults: tuple[Fault, ...] = ()
    owner: Ownership | None = None
    quarantined: bool = False
    steps: tuple[Step, ...] = ()
    after: tuple[Step, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    release_at: float | None = None
    look_again: float | None = None
    pods: tuple[str, ...] = ()
    annotations: dict[str, str] = {}
    wants: frozenset[Want] = frozenset()

    def but(self, **changes: Any) -> "Draft":
        """The same with changes."""
        return replace(self, **changes)


def blocked(reason: Reason, words: str) -> Blocked:
    """One obstacle."""
    return Blocked(reason=reason, words=words)
