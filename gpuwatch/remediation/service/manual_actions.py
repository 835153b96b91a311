"""Carries out what a person asked for, with the remediator's own executor: quarantine, release, drain, uninstall."""

import contextlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from gpuwatch.config import RemediationConfig
from gpuwatch.kube.errors import AlreadyExists, Conflict, KubeError
from gpuwatch.kube.objects import LeaseObject, NodeObject
from gpuwatch.kube.reader import OwnNode
from gpuwatch.kube.transport import Transport
from gpuwatch.model.clock import Clock
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.event import Result
from gpuwatch.model.snapshot import Snapshot
from gpuwatch.model.view import AgentStatus, View
from gpuwatch.remediation.model import NodeStage, Plan, TakeSlot
from gpuwatch.remediation.planning.draining import DrainProgress, EvictionHistory, drain
from gpuwatch.remediation.planning.manual_quarantine import QuarantineRequest, release, withdraw
from gpuwatch.remediation.planning.ownership import ClaimState, read_claim
from gpuwatch.remediation.planning.slots import NoSlot, Slots, choose, held_slots
from gpuwatch.remediation.service.executor import PlanExecutor, PlanOutcome
from gpuwatch.remediation.service.memory import load_memory
from gpuwatch.remediation.service.node_writer import NodeWriter
from gpuwatch.remediation.service.reboot_sentinel import set_sentinel
from gpuwatch.remediation.service.slots import SlotReader, SlotWriter
from gpuwatch.storage.audit import ActionStore, Audit

TRIES = 10
POLL_SECONDS = 1.0


class ManualActions:
    """The writer of one command on the Node `own`; `ledger` keeps the audit rows."""

    def __init__(
        self, config: RemediationConfig, own: OwnNode, transport: Transport, clock: Clock, ledger: ActionStore
    ) -> None:
        self._config, self._own, self._clock = config, own, clock
        self.namespace = config.budget.namespace or own.namespace
        self.also = (config.handover.annotation,) if config.handover.annotation else ()
        """Annotations outside our domain that may be written."""
        self.writer = NodeWriter(transport, own.node, also=self.also)
        slots = SlotWriter(self.writer, clock, config.budget.slot_seconds, self.namespace)
        self.executor = PlanExecutor(self.writer, slots, Audit(ledger, clock, actor="operator"), clock)

    def execute(self, planned: Callable[[NodeObject], Plan]) -> tuple[NodeObject, Plan, PlanOutcome]:
        """Read the Node, plan, execute; again when another writer was faster. The Node returned is as it was read.

        Raises:
            GpuwatchError: a step on which others depend failed; those before it are done.
        """
        stopped: GpuwatchError | None = None
        for _ in range(TRIES):
            node = self.writer.node()
            plan = planned(node)
            outcome = self.executor.execute(plan, node)
            stopped = outcome.stopped
            if not isinstance(stopped, Conflict | AlreadyExists):
                break
        if stopped is None:
            return node, plan, outcome
        with contextlib.suppress(KubeError):  # undo a claim that did not become a taint
            node = self.writer.node()
            self.executor.execute(withdraw(node, self._clock.time(), self.leases(node)), node)
        raise stopped

    def slot(self, node: NodeObject) -> TakeSlot | None:
        """A slot of the budget, None for a node that is quarantined already.

        Raises:
            GpuwatchError: there is none, or it is not known whether there is one.
        """
        if read_claim(node).claim is ClaimState.APPLIED:
            return None
        reader = SlotReader(self.writer, self._clock, self._config.budget, self.namespace)
        slots = reader.read()
        if reader.error is not None:
            raise reader.error
        found = choose(self._config.budget, slots, node.name, random.random())  # noqa: S311 no secret
        if isinstance(found, NoSlot):
            raise GpuwatchError("the budget has no slot for this node", found.message, "wait, or use --ignore-budget")
        return found

    def leases(self, node: NodeObject) -> tuple[LeaseObject, ...]:
        """The slots that the node holds; the one its annotation names where the Leases cannot be read."""
        try:
            return held_slots(Slots(leases=self.writer.leases(self.namespace)), node.name)
        except KubeError:
            owner = read_claim(node).owner
            return (LeaseObject(name=owner.slot),) if owner and owner.slot else ()

    def drain(
        self, request: QuarantineRequest, view: View | None, seconds: float, wait: Callable[[float], None]
    ) -> Iterator[DrainProgress]:
        """Evict the pods with GPUs until none is left; yields whenever the progress changes. Without a View, the pods'
        own requests show which have GPUs.

        Raises:
            GpuwatchError: they did not leave in time, or evictions are not possible.
        """
        evictions, before = EvictionHistory(), None
        no_node = NodeObject(name=self._own.node, uid="", resource_version="")  # evictions do not look at the Node
        end = self._clock.monotonic() + seconds
        while True:
            now = self._clock.time()
            seen = view or View(snapshot=Snapshot(at=now, interval=0.0), agent=AgentStatus(version="", started=now))
            pods, faults = self.writer.pods(), (request.fault,)
            progress = drain(seen, faults, pods, self._config.drain, evictions, now, None)
            plan = Plan(node=self._own.node, at=now, stage=NodeStage.DRAINING, steps=progress.steps)
            outcome = self.executor.execute(plan, no_node)
            for (_, result, error), eviction in zip(outcome.steps, progress.steps, strict=False):
                refused = error.why if error is not None and result is Result.FAILED else ""
                evictions = evictions.with_attempt(eviction.pod, self._clock.time(), refused)
            if outcome.stopped is not None:
                raise outcome.stopped
            blocked = {one.message.partition(" (asked")[0] for one in progress.blocked}
            if (state := ({pod.path for pod in progress.waiting}, blocked)) != before:
                before = state
                yield progress
            if not progress.waiting:
                return
            if self._clock.monotonic() > end:
                names = ", ".join(pod.path for pod in progress.waiting)
                raise GpuwatchError(f"{names} did not leave within {seconds:.0f} s", "", "ask their owners")
            wait(POLL_SECONDS)


def release_everything(
    config: RemediationConfig, own: OwnNode, transport: Transport, clock: Clock, ledger: ActionStore
) -> PlanOutcome:
    """Remove taint, cordon, labels, annotations, condition, slot and file, as far as they are ours, whatever state the
    Node is in: the last step of an uninstall.

    Raises:
        GpuwatchError: something of ours had to be left there.
    """
    for sentinel in {config.handover.sentinel, load_memory(ledger).sentinel} - {"", None}:
        set_sentinel(Path(str(sentinel)), wanted=False)
    actions = ManualActions(config, own, transport, clock, ledger)
    for _ in range(TRIES):
        node = actions.writer.node()
        request = QuarantineRequest(at=clock.time(), reason="gpuwatch is taken off this node")
        leases = held_slots(Slots(leases=actions.writer.leases(actions.namespace)), node.name)
        outcome = actions.executor.execute(release(node, request, leases, forget=True), node)
        failed = next((each.error for each in outcome.steps if each.error is not None), None)
        if not isinstance(failed, Conflict):
            break
    if failed is not None:
        raise failed
    return outcome
