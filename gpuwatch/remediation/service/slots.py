"""This node's part of the fleet's budget, read and written: Leases `gpuwatch-slot-0` to `-(N-1)`.

Nothing coordinates the nodes but the API server's own compare-and-swap. What a plan decides on is read here, in the
order that makes taking over safe: first the Leases, then the Nodes of those holders that did not renew in time. Whether
they did is measured by our own clock, as in leader election: two nodes' clocks may differ by more than a slot's time.
"""

import logging
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from gpuwatch.config import BudgetConfig
from gpuwatch.kube.errors import KubeError, NotFound
from gpuwatch.kube.objects import LeaseObject, NodeObject
from gpuwatch.kube.reader import NodeReader
from gpuwatch.model.clock import Clock
from gpuwatch.remediation.model import QUARANTINED, TakeSlot
from gpuwatch.remediation.planning.ownership import read_claim
from gpuwatch.remediation.planning.slots import RENEW, Slots, slot_number
from gpuwatch.remediation.service.node_writer import NodeWriter

log = logging.getLogger(__name__)

CLAIM_SECONDS = 1800.0
"""A claim older than this, whose node has no taint, was given up."""

VERIFIED_SECONDS = 60.0
"""A slot known to be ours for less than this need not be asked for again."""

COUNT_SECONDS = 600.0
"""Seconds for which an answer about all Nodes is used: they come and go slowly, and the answer is costly."""

SECONDS_A_NODE, OLDEST_COUNT = 1.0, 3600.0
"""In a large fleet the answer is used for so long for each node, so that about two nodes a second ask; and never for
longer than an hour: the budget of a fleet that shrinks must follow it.
"""

MAX_HOLDERS = 5
"""Most holders whose Nodes are read at once; the others' slots count as used until their turn comes."""


class SlotReader:
    """Reads the budget. What cannot be read is None in it, for the reason `error`. Its first reading finds no slot that
    ran out.
    """

    def __init__(self, reader: NodeReader, clock: Clock, budget: BudgetConfig, namespace: str) -> None:
        self._reader, self._clock, self._budget, self._namespace = reader, clock, budget, namespace
        self._count: int | None = None
        self._without_slot: frozenset[str] = frozenset()
        self._counted = float("-inf")
        self._leases = 0
        self.last: Slots | None = None
        """What was read last, with our own writes since."""
        self._unchanged: dict[tuple[str, str], float] = {}
        self._turn = 0
        self.error: KubeError | None = None

    def read(self, share: float = 1.0) -> Slots:
        """The budget as it is now. `share`: for which share of its time the answer about all Nodes is used."""
        self.error = None
        try:
            while True:
                found = self._reader.leases(self._namespace)
                leases = tuple(each for each in found if slot_number(each.name) is not None)
                if not self._ask_about_nodes(leases, share):
                    break  # else again: a node tainted before the Nodes were read has its slot in the next answer
            given_up = frozenset(self._given_up(self._run_out(leases)))
            self.last = Slots(leases=leases, nodes=self._count, given_up=given_up, without_slot=self._without_slot)
        except KubeError as error:
            self.error = error
            self.last = Slots()
        return self.last

    def refresh(self) -> None:
        """Ask about all Nodes when it is due, before it is needed: the nodes of a sick fleet would all ask at once."""
        if not isinstance(self._budget.max_unavailable, int) and self._is_outdated(RENEW):
            self.read(RENEW)

    def own(self) -> str | None:
        """The slot that this node holds, by the Leases alone. Raises KubeError."""
        leases = self._reader.leases(self._namespace)
        mine = (each.name for each in leases if each.holder == self._reader.name and slot_number(each.name) is not None)
        return next(mine, None)

    def update(self, lease: LeaseObject) -> None:
        """Put the answer to a write into what was read."""
        if self.last is not None and self.last.leases is not None:
            others = tuple(each for each in self.last.leases if each.name != lease.name)
            self.last = replace(self.last, leases=(*others, lease))

    def _ask_about_nodes(self, leases: Sequence[LeaseObject], share: float) -> bool:
        """How many there are, and which are quarantined without a slot; only where the budget is a share of them, for
        all Nodes are read. Also when there are fewer Leases than before: the deletion of a Lease frees no node. Return
        whether they were read now.
        """
        if isinstance(self._budget.max_unavailable, int):
            return False
        now = self._clock.monotonic()
        asks = self._is_outdated(share) or len(leases) < self._leases
        if asks:
            self._count = self._reader.count_nodes(self._budget.node_selector)
            self._without_slot = self._reader.nodes_with(QUARANTINED)
            self._counted = now
        self._without_slot -= {lease.holder for lease in leases}
        self._leases = len(leases)
        return asks

    def _is_outdated(self, share: float) -> bool:
        """Whether the answer about all Nodes is older than that share of the time for which it is used."""
        seconds = min(max(COUNT_SECONDS, SECONDS_A_NODE * (self._count or 0)), OLDEST_COUNT)
        return self._clock.monotonic() - self._counted > share * seconds

    def _run_out(self, leases: Sequence[LeaseObject]) -> list[LeaseObject]:
        """Slots of other nodes that we have read unchanged for their whole time."""
        now = self._clock.monotonic()
        known = {(lease.name, lease.resource_version) for lease in leases}
        self._unchanged = {lease: self._unchanged.get(lease, now) for lease in known}
        return [
            lease
            for lease in leases
            if lease.holder
            and lease.holder != self._reader.name
            and lease.duration is not None  # not written by us: its time is not known
            and now - self._unchanged[lease.name, lease.resource_version]
            > max(lease.duration, self._budget.slot_seconds)
        ]

    def _given_up(self, run_out: list[LeaseObject]) -> Iterator[str]:
        """Those whose holders' Nodes do not use them. At most MAX_HOLDERS Nodes, in turn."""
        first = self._turn % max(len(run_out), 1)
        self._turn += MAX_HOLDERS
        for lease in (*run_out[first:], *run_out[:first])[:MAX_HOLDERS]:
            if not lease.holder:
                continue
            try:
                is_used = uses_a_slot(self._reader.other_node(lease.holder), self._clock.time())
            except NotFound:
                is_used = False
            if not is_used:
                yield lease.name


class SlotWriter:
    """Takes, renews and frees a slot. `take` and `free` raise the errors of `kube.errors`."""

    def __init__(self, writer: NodeWriter, clock: Clock, seconds: float, namespace: str) -> None:
        self._writer, self._clock, self._seconds, self._namespace = writer, clock, seconds, namespace
        self._held: tuple[LeaseObject, float] | None = None

    def is_verified(self, step: TakeSlot) -> bool:
        """Whether the slot, as the plan read it, is what we wrote within VERIFIED_SECONDS: ours beyond doubt."""
        if self._held is None:
            return False
        lease, at = self._held
        seen = (step.name, step.resource_version)
        return (lease.name, lease.resource_version) == seen and self._clock.monotonic() - at < VERIFIED_SECONDS

    def take(self, step: TakeSlot) -> LeaseObject:
        """Take or renew the slot as the plan read it.

        Raises:
            Conflict, AlreadyExists: it is no longer as it was read.
        """
        at, before = self._clock.time(), self._clock.monotonic()
        if step.resource_version:
            ours = self._held is not None and self._held[0].name == step.name
            seen = LeaseObject(
                name=step.name, resource_version=step.resource_version, holder=self._writer.name if ours else None
            )
            lease = self._writer.hold_lease(self._namespace, seen, at, self._seconds)
        else:
            lease = self._writer.create_lease(self._namespace, step.name, at, self._seconds)
        self._held = lease, before
        return lease

    def free(self, name: str) -> LeaseObject | None:
        """Free it; None where it was not ours any more."""
        self._held = None
        try:
            lease = self._writer.lease(self._namespace, name)
            if lease.holder != self._writer.name:
                return None
            return self._writer.free_lease(self._namespace, lease, self._clock.time())
        except NotFound:
            return None


def uses_a_slot(node: NodeObject, now: float) -> bool:
    """Whether it, or a GPU of it, is taken out by us or about to be. Old claims, and future ones, do not count."""
    owner = read_claim(node).owner
    is_claimed = owner is not None and (owner.scope == "gpu" or abs(now - owner.since) < CLAIM_SECONDS)
    return node.taint is not None or is_claimed
