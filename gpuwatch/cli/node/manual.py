"""Carries out what a person asked for, with the remediator's own hands, and says what was done.

A Node that somebody else changes meanwhile is read and thought about anew, a few times.
"""

import contextlib
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from gpuwatch.cli.node.access import NodeAccess
from gpuwatch.cli.node.items import ChangeItem, changes
from gpuwatch.kube.errors import AlreadyExists, Conflict, KubeError
from gpuwatch.kube.objects import LeaseObject, NodeObject
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.event import Result
from gpuwatch.model.snapshot import Snapshot
from gpuwatch.model.view import AgentStatus, View
from gpuwatch.remediation.model import Evict, NodeStage, Plan, TakeSlot
from gpuwatch.remediation.planning.draining import DrainProgress, EvictionHistory, drain
from gpuwatch.remediation.planning.manual_quarantine import QuarantineRequest, withdraw
from gpuwatch.remediation.planning.ownership import ClaimState, read_claim
from gpuwatch.remediation.planning.slots import NoSlot, Slots, choose, held_slots
from gpuwatch.remediation.service.executor import PlanExecutor, StepResult
from gpuwatch.remediation.service.node_writer import NodeWriter
from gpuwatch.remediation.service.slots import SlotReader, SlotWriter
from gpuwatch.storage.audit import Audit
from gpuwatch.storage.store import Store

TRIES = 5
POLL_SECONDS = 1.0


class Act(NamedTuple):
    """One step that was tried, in words."""

    change: ChangeItem
    done: StepResult


class Hand:
    """One command's writer; `store` keeps the audit rows where this machine has a store."""

    def __init__(self, access: NodeAccess, store: Store) -> None:
        self._access = access
        settings = access.config.remediation
        also = (settings.handover.annotation,) if settings.handover.annotation else ()
        self.writer = NodeWriter(access.transport, access.name, also=also)
        slots = SlotWriter(self.writer, access.clock, settings.budget.slot_seconds, access.namespace)
        self._audit = Audit(store, access.clock, actor="operator")
        self._actuator = PlanExecutor(self.writer, slots, self._audit, access.clock)
        self._also = also

    def act(self, planned: Callable[[NodeObject], Plan]) -> tuple[Plan, list[Act]]:
        """Read the Node, plan, do it; again when somebody else was faster.

        Raises:
            GpuwatchError: a step on which others depend failed; those before it are done.
        """
        stopped: GpuwatchError | None = None
        for _ in range(TRIES):
            node = self.writer.node()
            plan = planned(node)
            outcome = self._actuator.execute(plan, node)
            stopped = outcome.stopped
            if not isinstance(stopped, Conflict | AlreadyExists):
                break
        if stopped is not None:
            self._withdraw()
            raise stopped
        words = changes(node, plan.steps, self._also)
        return plan, [Act(change, done) for change, done in zip(words, outcome.steps, strict=True)]

    def _withdraw(self) -> None:
        """Take back a claim that did not come to a taint, as far as the API server lets us."""
        with contextlib.suppress(KubeError):
            node = self.writer.node()
            self._actuator.execute(withdraw(node, self._access.clock.time(), self.leases(node)), node)

    def slot(self, node: NodeObject) -> TakeSlot | None:
        """A slot of the budget, None for a node that is quarantined already.

        Raises:
            GpuwatchError: there is none, or it is not known whether there is one.
        """
        if read_claim(node).claim is ClaimState.APPLIED:
            return None
        settings = self._access.config.remediation
        reader = SlotReader(self.writer, self._access.clock, settings.budget, self._access.namespace)
        slots = reader.read()
        if reader.trouble is not None:
            raise reader.trouble
        found = choose(settings.budget, slots, node.name, random.random())  # noqa: S311 no secret
        if isinstance(found, NoSlot):
            raise GpuwatchError("the budget has no slot for this node", found.message, "wait, or use --ignore-budget")
        return found

    def leases(self, node: NodeObject) -> tuple[LeaseObject, ...]:
        """The slots that the node holds; the one its annotation names where the Leases cannot be read."""
        try:
            return held_slots(Slots(leases=self.writer.leases(self._access.namespace)), node.name)
        except KubeError:
            owner = read_claim(node).owner
            return (LeaseObject(name=owner.slot),) if owner and owner.slot else ()

    def drain(
        self, wish: QuarantineRequest, view: View | None, seconds: float, wait: Callable[[float], None]
    ) -> Iterator[DrainProgress]:
        """Ask pods with GPUs to leave until none is left; yields whenever there is something new to say.

        Raises:
            GpuwatchError: they did not leave in time, or evictions are not possible.
        """
        config = self._access.config.remediation.drain
        evictions, before = EvictionHistory(), None
        end = self._access.clock.monotonic() + seconds
        while True:
            now = self._access.clock.time()
            seen = drain(view or _nobody(now), (wish.fault,), self.writer.pods(), config, evictions, now, None)
            for step in seen.steps:
                evictions = self._ask(step, evictions)
            told = ({pod.path for pod in seen.waiting}, {one.message.partition(" (asked")[0] for one in seen.blocked})
            if told != before:
                before = told
                yield seen
            if not seen.waiting:
                return
            if self._access.clock.monotonic() > end:
                names = ", ".join(pod.path for pod in seen.waiting)
                raise GpuwatchError(f"{names} did not leave within {seconds:.0f} s", "", "ask their owners")
            wait(POLL_SECONDS)

    def _ask(self, step: Evict, evictions: EvictionHistory) -> EvictionHistory:
        plan = Plan(node=self._access.name, at=self._access.clock.time(), stage=NodeStage.DRAINING, steps=(step,))
        outcome = self._actuator.execute(plan, _anonymous(self._access.name))
        failed = outcome.steps[0].error
        if outcome.stopped is not None:
            raise outcome.stopped
        refused = failed.why if failed is not None and outcome.steps[0].result is Result.FAILED else ""
        return evictions.asked(step.pod, self._access.clock.time(), refused)


@contextmanager
def hand(access: NodeAccess) -> Iterator[Hand]:
    """A Hand whose audit rows go into the store of this machine, where there is one that can be written."""
    directory = access.config.state_dir
    store = Store.open(directory if directory and os.access(directory, os.W_OK) else "")
    try:
        yield Hand(access, store)
    finally:
        store.close()


def _nobody(at: float) -> View:
    """The View of an agent that sees nothing: draining by hand goes by the pods' own requests."""
    return View(snapshot=Snapshot(at=at, interval=0.0), agent=AgentStatus(version="", started=at))


def _anonymous(name: str) -> NodeObject:
    """EvictionHistory do not look at the Node."""
    return NodeObject(name=name, uid="", resource_version="")
