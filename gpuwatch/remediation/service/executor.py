"""Carries out a plan, step by step, each written down before and after; the first thing that goes wrong may end it.

Nothing is tried twice here: after a conflict or a failure the world is looked at and planned for anew. So whatever is
the last step that ever happened, killed or not, the next cycle starts from what is really there.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gpuwatch.kube.errors import AlreadyExists, Conflict, Forbidden, Invalid, KubeError, NotFound, TooMany
from gpuwatch.kube.objects import LeaseObject, NodeObject
from gpuwatch.model.clock import Clock
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.event import Result
from gpuwatch.remediation.model.plan import (
    Announce,
    Evict,
    FreeSlot,
    HandOver,
    PatchNode,
    Plan,
    SetCondition,
    Step,
    TakeSlot,
)
from gpuwatch.remediation.model.status import ACTIONS
from gpuwatch.remediation.planning.ownership import hold
from gpuwatch.remediation.service.audit_entries import action_of, deed_of, is_routine
from gpuwatch.remediation.service.node_writer import NodeWriter
from gpuwatch.remediation.service.reboot_sentinel import set_sentinel
from gpuwatch.remediation.service.slots import SlotWriter
from gpuwatch.storage.audit import Audit, Deed

log = logging.getLogger(__name__)

Answer = NodeObject | LeaseObject | bool
"""What was changed, as it is now; True for what has no answer, False where nothing had to be changed."""

CRASH_POINTS = tuple(f"{action}.{moment}" for action in ACTIONS for moment in ("intended", "sent", "recorded"))
"""Where a kill can come between two effects: the intention is written, the API server has answered, the result is
written. Each is handed to `checkpoint` when it is passed.
"""


class Done(NamedTuple):
    """A step and how it went; `error` where it did not."""

    step: Step
    result: Result
    error: GpuwatchError | None = None


class Outcome(NamedTuple):
    """What has become of a plan. `node` is as the last write left it. `stopped` says why steps are left undone."""

    node: NodeObject
    steps: tuple[Done, ...]
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


class Actuator:
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

    def execute(self, plan: Plan, node: NodeObject) -> Outcome:
        """Do the steps of `plan`, which was made for `node` as it was just read. Raises no errors of the API."""
        steps: list[Done] = []
        lease: LeaseObject | None = None
        for step in plan.steps:
            try:
                result, answer = self._take_step(step, plan, node)
            except GpuwatchError as error:
                failed = Done(step, _result_of(error), error)
                steps.append(failed)
                if _ends_the_plan(failed):
                    return Outcome(node, tuple(steps), error, lease)
                continue
            steps.append(Done(step, result))
            node = answer if isinstance(answer, NodeObject) else node
            lease = answer if isinstance(answer, LeaseObject) else lease
        return Outcome(node, tuple(steps), None, lease)

    def _take_step(self, step: Step, plan: Plan, node: NodeObject) -> tuple[Result, Answer]:
        if isinstance(step, TakeSlot) and self._slots.is_verified(step):
            return Result.DONE, True
        if is_routine(step, node):
            return Result.DONE, self._do(step, node)
        action, deed = action_of(step), deed_of(step, plan, node)
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

    def _failed(self, step: Step, deed: Deed, number: int, error: GpuwatchError) -> None:
        """Write it down, but for a conflict: the same step is tried again at once, and may then be done."""
        if isinstance(error, Conflict) and isinstance(step, PatchNode):
            log.debug("%s: somebody else wrote first; looking again", deed.action)
            return
        self._audit.finish(deed, number, _result_of(error), str(error))

    def _do(self, step: Step, node: NodeObject) -> Answer:
        """One request or one file, whatever comes of it."""
        match step:
            case PatchNode():
                owner = hold(node).owner
                return self._writer.patch_node(node, step, listed=owner.handover if owner else None)
            case TakeSlot():
                return self._slots.take(step)
            case FreeSlot():
                return self._slots.free(step.name) or False
            case Announce():
                return self._writer.create_event(node, step, self._clock.time())
            case HandOver():
                return set_sentinel(Path(step.sentinel), wanted=step.wanted)
            case SetCondition():  # no later patch may carry the resourceVersion it leaves: it was planned before
                self._writer.set_condition(node, step.condition)
            case Evict():
                self._writer.evict(step.pod)
        return True


def _result_of(error: GpuwatchError) -> Result:
    """The world had changed, or it would not do it."""
    return Result.SKIPPED if isinstance(error, Conflict | AlreadyExists | NotFound) else Result.FAILED


def _ends_the_plan(failed: Done) -> bool:
    """Whether later steps may not, or had better not, be tried.

    What comes after a patch or a slot is only right once that is done. An Event or a condition may fail alone, and a
    pod that a disruption budget keeps says nothing about the next; but a server that is busy or away is left alone.
    """
    match failed.step, failed.error:
        case ((PatchNode() | TakeSlot() | HandOver()), _):
            return True
        case _, TooMany(disruption_budget=budget):
            return not budget
        case _, (Forbidden() | Conflict() | NotFound() | Invalid()):
            return False
        case _, KubeError():
            return True
    return False
