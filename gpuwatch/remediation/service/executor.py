"""Carries out a plan step by step; an audit entry is written before and after each step.

Nothing is retried here: after a conflict or a failure the remediator plans again. So whichever step was the last one
before a crash, the next cycle starts from the state that is really there.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gpuwatch.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, KubeError, NotFound, TooMany
from gpuwatch.kube.objects import Condition, DeviceRule, LeaseObject, NodeObject, Taint
from gpuwatch.model.clock import Clock
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.event import Result
from gpuwatch.model.finding import Response
from gpuwatch.remediation.model import (
    ACTIONS,
    FAULTS,
    LABELS,
    OWNER,
    CreateEvent,
    DeleteRule,
    Evict,
    FreeSlot,
    PatchNode,
    Plan,
    SetCondition,
    SetRebootSentinel,
    Step,
    TakeSlot,
    WriteRule,
)
from gpuwatch.remediation.planning.ownership import ClaimState, read_claim
from gpuwatch.remediation.service.node_writer import NodeWriter
from gpuwatch.remediation.service.reboot_sentinel import set_sentinel
from gpuwatch.remediation.service.slots import SlotWriter
from gpuwatch.storage.audit import Audit, AuditEntry

log = logging.getLogger(__name__)

Answer = NodeObject | LeaseObject | bool
"""The changed object as it is now; True for a step without an answer, False where nothing had to be changed."""

CRASH_POINTS = tuple(f"{action}.{moment}" for action in ACTIONS for moment in ("intended", "sent", "recorded"))
"""Points between two effects at which the process may be killed: the intention is written, the API server has answered,
the result is written. `checkpoint` is called with each when it is passed.
"""

_ACTION_OF: dict[type[Step], str] = {
    TakeSlot: "slot",
    FreeSlot: "free_slot",
    SetCondition: "condition",
    CreateEvent: "event",
    Evict: "evict",
    WriteRule: "rule",
    DeleteRule: "unrule",
    SetRebootSentinel: "handover",
}


class StepResult(NamedTuple):
    """A step and its result; `error` where it failed."""

    step: Step
    result: Result
    error: GpuwatchError | None = None


class PlanOutcome(NamedTuple):
    """The result of a plan. `node` is as the last write left it. `stopped`: why later steps were not tried. `put_off`:
    its condition or Events are left for a later cycle.
    """

    node: NodeObject
    steps: tuple[StepResult, ...]
    stopped: GpuwatchError | None = None
    lease: LeaseObject | None = None
    put_off: bool = False

    @property
    def done(self) -> tuple[Step, ...]:
        """Steps that have had their effect, now or before."""
        return tuple(each.step for each in self.steps if each.error is None)

    @property
    def refused(self) -> GpuwatchError | None:
        """An error that a person has to correct before a step can be done, though later ones could be tried."""
        return next((each.error for each in self.steps if isinstance(each.error, Forbidden | Invalid)), None)


class PlanExecutor:
    """Writes for one remediator or one command. A remediator has one in mode `enforce` only, as it has a NodeWriter."""

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

    def execute(self, plan: Plan, node: NodeObject, is_crowded: Callable[[], bool] = lambda: False) -> PlanOutcome:
        """Do the steps of `plan`, which was made for `node` as it was read last. Raises no errors of the API. Where a
        quarantine that lets pods stay begins while the API server `is_crowded`, condition and Events are put off.
        """
        steps: list[StepResult] = []
        lease: LeaseObject | None = None
        can_wait = not any(fault.response.reaches(Response.DRAIN) for fault in plan.faults)
        can_wait, begun, put_off = can_wait and not any(isinstance(step, Evict) for step in plan.steps), False, False
        for step in plan.steps:
            if begun and isinstance(step, SetCondition | CreateEvent) and is_crowded():
                put_off = True
                continue
            try:
                result, answer = self._execute_step(step, plan, node)
            except GpuwatchError as error:
                failed = StepResult(step, _result_of(error), error)
                steps.append(failed)
                if _ends_the_plan(failed):
                    return PlanOutcome(node, tuple(steps), error, lease)
                continue
            steps.append(StepResult(step, result))
            node = answer if isinstance(answer, NodeObject) else node
            lease = answer if isinstance(answer, LeaseObject) else lease
            begun = begun or (can_wait and action_of(step) in ("taint", "confine"))
        return PlanOutcome(node, tuple(steps), None, lease, put_off)

    def _execute_step(self, step: Step, plan: Plan, node: NodeObject) -> tuple[Result, Answer]:
        if isinstance(step, TakeSlot) and self._slots.is_verified(step):
            return Result.DONE, True
        if is_routine(step, node):
            return Result.DONE, self._request(step, node)
        action, entry = action_of(step), audit_entry(step, plan, node)
        number = self._audit.intend(entry)
        self._checkpoint(f"{action}.intended")
        try:
            answer = self._request(step, node)
        except GpuwatchError as error:
            if isinstance(error, Conflict) and isinstance(
                step, PatchNode
            ):  # tried again at once, and it may succeed then
                log.debug("%s: the Node was changed meanwhile; reading it again", action)
            else:
                self._audit.finish(entry, number, _result_of(error), str(error))
            raise
        self._checkpoint(f"{action}.sent")
        result = Result.SKIPPED if answer is False else Result.DONE
        self._audit.finish(entry, number, result)
        self._checkpoint(f"{action}.recorded")
        return result, answer

    def _request(self, step: Step, node: NodeObject) -> Answer:
        """One request or one file."""
        done = True
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
            case WriteRule() | DeleteRule():
                done = self._writer.change_rule(step)
            case SetRebootSentinel():
                done = set_sentinel(Path(step.sentinel), wanted=step.wanted)
            case SetCondition():  # no later patch may carry the resourceVersion it leaves: it was planned before
                self._writer.set_condition(node, step.condition)
            case Evict():
                self._writer.evict(step.pod)
        return done


def _result_of(error: GpuwatchError) -> Result:
    """Skipped: the cluster had changed. Failed: the request was not carried out."""
    return Result.SKIPPED if isinstance(error, Conflict | AlreadyExists | NotFound) else Result.FAILED


def _ends_the_plan(failed: StepResult) -> bool:
    """Whether later steps may not, or should not, be tried.

    The steps after a patch or a slot are only right once that is done. An Event or a condition may fail alone, and a
    disruption budget that keeps one pod need not keep the next; a server that is busy or does not answer is left alone.
    """
    match failed.step, failed.error:
        case ((PatchNode() | TakeSlot() | SetRebootSentinel() | WriteRule() | DeleteRule()), _):
            return True
        case _, TooMany(disruption_budget=budget):
            return not budget
        case _, (Forbidden() | Conflict() | NotFound() | Invalid()):
            return False
        case _, KubeError():
            return True
    return False


def action_of(step: Step) -> str:
    """The name of a step in ACTIONS."""
    return step.step if isinstance(step, PatchNode) else _ACTION_OF[type(step)]


def step_summary(step: Step, plan: Plan) -> tuple[str, str]:
    """Action and target of a step, without the values it writes."""
    match step:
        case TakeSlot(name=name) | FreeSlot(name=name):
            target = f"lease/{name}"
        case Evict(pod=pod):
            target = f"pod/{pod.path}"
        case CreateEvent(pod=(namespace, name, _)):
            target = f"pod/{namespace}/{name}"
        case WriteRule(rule=DeviceRule(name=rule)) | DeleteRule(name=rule):
            target = f"devicetaintrule/{rule}"
        case SetRebootSentinel(sentinel=sentinel):
            target = f"file/{sentinel}"
        case _:
            target = f"node/{plan.node}"
    return action_of(step), target


def audit_entry(step: Step, plan: Plan, node: NodeObject) -> AuditEntry:
    """The audit line of a step that is about to be done to `node`."""
    before, after = "", ""
    match step:
        case PatchNode():
            before, after = _node_change(step, node)
        case SetCondition(condition=wanted):
            before, after = _condition_text(node.condition), _condition_text(wanted)
        case CreateEvent():
            after = f"{step.reason}: {step.message}"
        case WriteRule(rule=rule):
            after = f"{rule.value}:{rule.effect} on device {rule.pool}/{rule.device}"
        case SetRebootSentinel(wanted=present):
            after = "file" if present else "no file"
    action, target = step_summary(step, plan)
    evidence = tuple(fault.key for fault in plan.faults)
    return AuditEntry(action, target, plan.message, evidence, before, after)


def is_routine(step: Step, node: NodeObject) -> bool:
    """Whether it only repeats the present state: a heartbeat, or the renewal of a slot. It leaves no audit line."""
    if isinstance(step, SetCondition) and step.condition is not None and node.condition is not None:
        wanted, there = step.condition, node.condition
        return (wanted.status, wanted.reason, wanted.message) == (there.status, there.reason, there.message)
    return isinstance(step, TakeSlot) and (node.taint is not None or read_claim(node).claim is ClaimState.APPLIED)


def _node_change(step: PatchNode, node: NodeObject) -> tuple[str, str]:
    """Only what the step names; our own annotations are described by the action's name and its evidence."""
    changes: list[tuple[str, str, str]] = []
    if step.taints is not None:
        changes.append(("taints ", _taints_text(node.taints), _taints_text(step.taints)))
    if step.unschedulable is not None:
        changes.append(("unschedulable ", str(node.unschedulable).lower(), str(step.unschedulable).lower()))
    for kind, wanted, there in (
        ("label", step.labels, node.labels),
        ("annotation", step.annotations, node.annotations),
    ):
        keys = sorted(wanted.keys() - {OWNER, FAULTS, LABELS})
        changes += [(f"{kind} {key}=", there.get(key, ""), wanted[key] or "") for key in keys]
    return "; ".join(name + old for name, old, _ in changes), "; ".join(name + new for name, _, new in changes)


def _taints_text(taints: tuple[Taint, ...]) -> str:
    return "[" + ", ".join(f"{taint.key}={taint.value}:{taint.effect}" for taint in taints) + "]"


def _condition_text(condition: Condition | None) -> str:
    return f"{condition.type}={condition.status} {condition.reason}" if condition else "none"
