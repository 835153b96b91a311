"""What one plan is made from, and the draft that the rules make of it."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Literal

from msgspec.structs import replace

from gpuwatch.kube.objects import DraState, NodeObject, PodObject
from gpuwatch.model.finding import Response
from gpuwatch.model.snapshot import Record
from gpuwatch.model.view import View
from gpuwatch.remediation.model import (
    Blocked,
    BlockReason,
    Fault,
    FreeSlot,
    NodeStage,
    Ownership,
    RemediatorMemory,
    Step,
)
from gpuwatch.remediation.planning.draining import EvictionHistory
from gpuwatch.remediation.planning.evidence import Observation, fault_age, in_force, is_fresh
from gpuwatch.remediation.planning.ownership import ClaimState, acknowledged, read_claim
from gpuwatch.remediation.planning.policy import Policy
from gpuwatch.remediation.planning.slots import Slots, held_slots

Need = Literal["slots", "pods", "devices"]
NEEDS: frozenset[Need] = frozenset({"slots", "pods", "devices"})

CONFINED = "the device plugin gives this GPU to no pod, and the node stays in service"
"""What a quarantine of scope `gpu` means."""


class PlanInputs(Record, frozen=True, kw_only=True):
    """Everything that one plan is made from.

    `slots`, `pods` and `devices` None: not read. A plan that names some of them in `needs` is to be made again with
    them; where one of these is in `unread`, and so may still be read, the plan has no steps. `now` is unix time;
    `jitter`, 0..1 and random for each plan, keeps nodes from doing the same at once.
    """

    observation: Observation
    node: NodeObject
    policy: Policy
    memory: RemediatorMemory
    now: float
    slots: Slots | None = None
    pods: tuple[PodObject, ...] | None = None
    devices: DraState | None = None
    unread: frozenset[Need] = frozenset()
    jitter: float = 0.0
    evictions: EvictionHistory = EvictionHistory()

    @property
    def view(self) -> View:
        """The newest View, old or not. Raises ValueError without one; `plan` calls no rule then."""
        if self.observation.view is None:
            raise ValueError("no View has been received")
        return self.observation.view

    @property
    def is_fresh(self) -> bool:
        """Whether the View is recent enough to act on."""
        return is_fresh(self.observation)

    @property
    def claim(self) -> ClaimState:
        """How far a quarantine went."""
        return read_claim(self.node).claim

    @property
    def owner(self) -> Ownership | None:
        """Our annotation."""
        return read_claim(self.node).owner

    @property
    def overruled(self) -> dict[str, float]:
        """Faults that a person has overruled, by the Node's annotation and by memory."""
        return latest_of(acknowledged(self.node), self.memory.acknowledged)

    def taint_reasons(self) -> "TaintReasons":
        """The faults that call for a taint, sorted by what prevents it."""
        overruled, snapshot = self.overruled, self.view.snapshot
        found = in_force(self.view, self.policy, Response.TAINT) if self.is_fresh else ()
        new = tuple(fault for fault in found if fault.last > overruled.get(fault.key, -1.0))
        young = tuple(fault for fault in new if fault_age(fault, snapshot) < self.policy.config.fault_hold)
        return TaintReasons(
            wanted=tuple(fault for fault in new if fault not in young),
            young=young,
            overruled=tuple(fault for fault in found if fault not in new),
        )

    def free_slots(self) -> tuple[FreeSlot, ...]:
        """Steps that free every slot of this node, or the remembered one where the Leases could not be read."""
        names = {lease.name for lease in held_slots(self.slots, self.node.name)}
        remembered = self.memory.slot or (self.owner.slot if self.owner else None)
        if remembered and (self.slots is None or self.slots.leases is None):
            names = {remembered}
        return tuple(FreeSlot(name=name) for name in sorted(names))


class TaintReasons(Record, frozen=True, kw_only=True):
    """Faults that call for a taint: those that count; those too young; those that a person has overruled."""

    wanted: tuple[Fault, ...] = ()
    young: tuple[Fault, ...] = ()
    overruled: tuple[Fault, ...] = ()


class PlanDraft(Record, frozen=True, kw_only=True):
    """A plan without condition and Events, which go between `steps` and `after`. `quarantined`: the node will be."""

    stage: NodeStage
    message: str
    faults: tuple[Fault, ...] = ()
    owner: Ownership | None = None
    quarantined: bool = False
    steps: tuple[Step, ...] = ()
    after: tuple[Step, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    release_at: float | None = None
    next_cycle: float | None = None
    pods: tuple[str, ...] = ()
    annotations: dict[str, str] = {}
    misplaced_pod: str = ""
    """Which pod proves that a sick GPU is still given to pods, as a clause."""
    needs: frozenset[Need] = frozenset()

    def replace(self, **changes: Any) -> "PlanDraft":
        """The same with changes."""
        return replace(self, **changes)


def blocked(reason: BlockReason, message: str) -> Blocked:
    """One obstacle."""
    return Blocked(reason=reason, message=message)


def latest_of(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Both together; for a key in both, the later time."""
    return {key: max(one.get(key, 0.0), other.get(key, 0.0)) for key in {**one, **other}}


def digest(*parts: object) -> str:
    """A name derived from `parts`: the same parts give the same name."""
    return f"gpuwatch-{sha256('|'.join(map(str, parts)).encode()).hexdigest()[:20]}"
