"""Carries out a plan step by step; an audit entry is written before and after each step.

Nothing is retried here: after a conflict or a failure the Node is read and planned for anew. So whichever step was the
last one before a crash, the next cycle starts from the state that is really there.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gpuwatch.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, KubeError, NotFound, TooMany
from gpuwatch.kube.objects import Condition, LeaseObject, NodeObject, Taint
from gpuwatch.model.clock import Clock
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.event import Result
from gpuwatch.remediation.model import (
    ACTIONS,
    FAULTS,
    LABELS,
    OWNER,
    CreateEvent,
    Evict,
    FreeSlot,
    PatchNode,
    Plan,
    SetCondition,
    SetRebootSentinel,
    Step,
    TakeSlot,
)
from gpuwatch.remediation.planning.ownership import read_claim
from gpuwatch.remediation.service.node_writer import NodeWriter
from gpuwatch.remediation.service.reboot_sentinel import set_sentinel
from gpuwatch.remediation.service.slots import SlotWriter
from gpuwatch.storage.audit import Audit, AuditEntry

_BY_KIND: dict[type[Step], str] = {
    TakeSlot: "slot",
    FreeSlot: "free_slot",
    SetCondition: "condition",
    CreateEvent: "event",
    Evict: "evict",
    SetRebootSentinel: "handover",
}


def action_of(step: Step) -> str:
    """The one of ACTIONS that a step is."""
    return step.step if isinstance(step, PatchNode) else _BY_KIND[type(step)]


def step_summary(step: Step, plan: Plan) -> tuple[str, str]:
    """What a step does to whom, whatever it writes there."""
    return action_of(step), _target(step, plan)


def audit_entry(step: Step, plan: Plan, node: NodeObject) -> AuditEntry:
    """The audit line of a step that is about to be done to `node`."""
    before, after = _change(step, node)
    return AuditEntry(
        action=action_of(step),
        target=_target(step, plan),
        why=plan.message,
        evidence=tuple(fault.key for fault in plan.faults),
        before=before,
        after=after,
    )


def is_routine(step: Step, node: NodeObject) -> bool:
    """Whether it only says again what stands there: a heartbeat, or the renewal of a slot. It leaves no audit line."""
    match step:
        case SetCondition(condition=wanted):
            there = node.condition
            return (
                wanted is not None
                and there is not None
                and (wanted.status, wanted.reason, wanted.message) == (there.status, there.reason, there.message)
            )
        case TakeSlot():
            return node.taint is not None
    return False


def _target(step: Step, plan: Plan) -> str:
    match step:
        case TakeSlot(name=name) | FreeSlot(name=name):
            return f"lease/{name}"
        case Evict(pod=pod):
            return f"pod/{pod.path}"
        case CreateEvent(pod=(namespace, name, _)):
            return f"pod/{namespace}/{name}"
        case SetRebootSentinel(sentinel=sentinel):
            return f"file/{sentinel}"
    return f"node/{plan.node}"


def _change(step: Step, node: NodeObject) -> tuple[str, str]:
    match step:
        case PatchNode():
            return _node_change(step, node)
        case SetCondition(condition=wanted):
            return _told(node.condition), _told(wanted)
        case CreateEvent():
            return "", f"{step.reason}: {step.message}"
        case SetRebootSentinel(wanted=wanted):
            return "", "file" if wanted else "no file"
    return "", ""


def _node_change(step: PatchNode, node: NodeObject) -> tuple[str, str]:
    """Only what the step names; what our own annotations say is told by the action's name and its evidence."""
    before: list[str] = []
    after: list[str] = []
    if step.taints is not None:
        before.append(f"taints {_taints(node.taints)}")
        after.append(f"taints {_taints(step.taints)}")
    if step.unschedulable is not None:
        before.append(f"unschedulable {str(node.unschedulable).lower()}")
        after.append(f"unschedulable {str(step.unschedulable).lower()}")
    for kind, changes, there in (
        ("label", step.labels, node.labels),
        ("annotation", step.annotations, node.annotations),
    ):
        for key in sorted(changes.keys() - {OWNER, FAULTS, LABELS}):
            before.append(f"{kind} {key}={there.get(key, '')}")
            after.append(f"{kind} {key}={changes[key] or ''}")
    return "; ".join(before), "; ".join(after)


def _taints(taints: tuple[Taint, ...]) -> str:
    return "[" + ", ".join(f"{taint.key}={taint.value}:{taint.effect}" for taint in taints) + "]"


def _told(condition: Condition | None) -> str:
    return f"{condition.type}={condition.status} {condition.reason}" if condition else "none"


log = logging.getLogger(__name__)

Answer = NodeObject | LeaseObject | bool
"""What was changed, as it is now; True for what has no answer, False where nothing had to be changed."""

CRASH_POINTS = tuple(f"{action}.{moment}" for action in ACTIONS for moment in ("intended", "sent", "recorded"))
"""Where a kill can come between two effects: the intention is written, the API server has answered, the result is
written. Each is handed to `checkpoint` when it is passed.
"""


class StepResult(NamedTuple):
    """A step and how it went; `error` where it did not."""

    step: Step
    result: Result
    error: GpuwatchError | None = None


class PlanOutcome(NamedTuple):
    """What has become of a plan. `node` is as the last write left it. `stopped` says why steps are left undone."""

    node: NodeObject
    steps: tuple[StepResult, ...]
    stopped: GpuwatchError | None = None
    lease: LeaseObject | None = None

    @property
    def done(self) -> tuple[Step, ...]:
        """Steps that have had their effect, now or before."""
        return tuple(each.step for each in self.steps if each.error is None)

    @property
    def refused(self) -> GpuwatchError | None:
        """What a person has to mend before a step can be done, though later ones could be tried."""
        return next((each.error for each in self.steps if isinstance(each.error, Forbidden | Invalid)), None)


class PlanExecutor:
    """The hands of one remediator. It is made in mode `enforce` only, as only there a NodeWriter is."""

    def __init__(
        self,
        writer: NodeWriter,
        slots: SlotWriter,
        audit: Audit,
        clock: Clock,
        *,
        checkpoint: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._writer, self._slots, self._audit, self._clock = writer, slots, audit, clock
        self._checkpoint = checkpoint

    def execute(self, plan: Plan, node: NodeObject) -> PlanOutcome:
        """Do the steps of `plan`, which was made for `node` as it was just read. Raises no errors of the API."""
        steps: list[StepResult] = []
        lease: LeaseObject | None = None
        for step in plan.steps:
            try:
                result, answer = self._take_step(step, plan, node)
            except GpuwatchError as error:
                failed = StepResult(step, _result_of(error), error)
                steps.append(failed)
                if _ends_the_plan(failed):
                    return PlanOutcome(node, tuple(steps), error, lease)
                continue
            steps.append(StepResult(step, result))
            node = answer if isinstance(answer, NodeObject) else node
            lease = answer if isinstance(answer, LeaseObject) else lease
        return PlanOutcome(node, tuple(steps), None, lease)

    def _take_step(self, step: Step, plan: Plan, node: NodeObject) -> tuple[Result, Answer]:
        if isinstance(step, TakeSlot) and self._slots.is_verified(step):
            return Result.DONE, True
        if is_routine(step, node):
            return Result.DONE, self._do(step, node)
        action, deed = action_of(step), audit_entry(step, plan, node)
        number = self._audit.intend(deed)
        self._checkpoint(f"{action}.intended")
        try:
            answer = self._do(step, node)
        except GpuwatchError as error:
            self._failed(step, deed, number, error)
            raise
        self._checkpoint(f"{action}.sent")
        result = Result.SKIPPED if answer is False else Result.DONE
        self._audit.finish(deed, number, result)
        self._checkpoint(f"{action}.recorded")
        return result, answer

    def _failed(self, step: Step, deed: AuditEntry, number: int, error: GpuwatchError) -> None:
        """Write it down, but for a conflict: the same step is tried again at once, and may then be done."""
        if isinstance(error, Conflict) and isinstance(step, PatchNode):
            log.debug("%s: somebody else wrote first; looking again", deed.action)
            return
        self._audit.finish(deed, number, _result_of(error), str(error))

    def _do(self, step: Step, node: NodeObject) -> Answer:
        """One request or one file, whatever comes of it."""
        match step:
            case PatchNode():
                owner = read_claim(node).owner
                return self._writer.patch_node(node, step, listed=owner.handover if owner else None)
            case TakeSlot():
                return self._slots.take(step)
            case FreeSlot():
                return self._slots.free(step.name) or False
            case CreateEvent():
                return self._writer.create_event(node, step, self._clock.time())
            case SetRebootSentinel():
                return set_sentinel(Path(step.sentinel), wanted=step.wanted)
            case SetCondition():  # no later patch may carry the resourceVersion it leaves: it was planned before
                self._writer.set_condition(node, step.condition)
            case Evict():
                self._writer.evict(step.pod)
        return True


def _result_of(error: GpuwatchError) -> Result:
    """The world had changed, or it would not do it."""
    return Result.SKIPPED if isinstance(error, Conflict | AlreadyExists | NotFound) else Result.FAILED


def _ends_the_plan(failed: StepResult) -> bool:
    """Whether later steps may not, or had better not, be tried.

    What comes after a patch or a slot is only right once that is done. An Event or a condition may fail alone, and a
    pod that a disruption budget keeps says nothing about the next; but a server that is busy or away is left alone.
    """
    match failed.step, failed.error:
        case ((PatchNode() | TakeSlot() | SetRebootSentinel()), _):
            return True
        case _, TooMany(disruption_budget=budget):
            return not budget
        case _, (Forbidden() | Conflict() | NotFound() | Invalid()):
            return False
        case _, KubeError():
            return True
    return False
