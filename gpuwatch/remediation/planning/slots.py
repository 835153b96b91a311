"""The fleet's budget without a controller: numbered Leases, of which every tainted node holds one.

It limits adding taints, never removing them; what cannot be read gives no slot. A slot that ran out may be taken over
only when its holder's Node is not tainted: a crashed remediator must not make room for one more sick node. A slot
has run out when a reader finds its Lease unchanged for its whole time: the time in a Lease is by its holder's clock.
"""

import re
from typing import NamedTuple

from gpuwatch.config import BudgetConfig
from gpuwatch.kube.objects import LeaseObject
from gpuwatch.model.snapshot import Record
from gpuwatch.remediation.model import TakeSlot

SLOT = "gpuwatch-slot-"
_SLOT_NAME = re.compile(re.escape(SLOT) + r"(\d{1,6})", re.ASCII)

RENEW = 2 / 3
"""Share of a slot's time after which it is renewed."""


class Slots(Record, frozen=True, kw_only=True):
    """The budget as it was read last. `leases` None: unreadable. `nodes`: how many Nodes with GPUs the cluster has,
    None: unreadable. `given_up`: names of slots that ran out during our reads, and whose holder's Node has neither our
    taint nor a young claim.
    """

    leases: tuple[LeaseObject, ...] | None = None
    nodes: int | None = None
    given_up: frozenset[str] = frozenset()
    without_slot: frozenset[str] = frozenset()
    """Nodes that are quarantined without a slot: their Leases were deleted, or a person asked for no slot."""


class NoSlot(NamedTuple):
    """Why there is none. `unreadable`: it is not known whether there would be one."""

    unreadable: bool
    message: str


def slot_limit(budget: BudgetConfig, nodes: int | None) -> int | None:
    """How many nodes may be tainted at once; None: not known. A share is never less than one node unless it is 0 %."""
    if isinstance(budget.max_unavailable, int):
        return budget.max_unavailable
    share = float(budget.max_unavailable.rstrip("%"))
    if share == 0:
        return 0
    return None if nodes is None else max(1, int(nodes * share / 100))


def held_slots(slots: Slots | None, node: str) -> tuple[LeaseObject, ...]:
    """The slots this node holds; more than one only after a failure."""
    leases = (slots and slots.leases) or ()
    return tuple(lease for lease in leases if lease.holder == node and slot_number(lease.name) is not None)


def choose(budget: BudgetConfig, slots: Slots, node: str, jitter: float) -> TakeSlot | NoSlot:
    """The slot to take: our own, else a free one, by `jitter` (0..1) so that not all nodes choose the same."""
    most = slot_limit(budget, slots.nodes)
    if slots.leases is None or most is None:
        what = "the Leases of the budget" if slots.leases is None else "how many nodes have GPUs"
        return NoSlot(True, f"{what} cannot be read: no new taint")
    leases = {n: lease for lease in slots.leases if (n := slot_number(lease.name)) is not None}
    used = {n for n, lease in leases.items() if _is_used(lease, slots, node)}
    mine = {n for n in used if leases[n].holder == node}
    others = used - mine
    without_slot = len(slots.without_slot - {node})
    free = [n for n in range(_reach(others, most - without_slot)) if n not in others]
    if not free:
        there = len(others) + without_slot
        return NoSlot(False, f"{there} of {most} nodes that may be tainted at once are; waiting for a slot")
    kept = next((n for n in free if n in mine), None)
    chosen = free[min(int(jitter * len(free)), len(free) - 1)] if kept is None else kept
    lease = leases.get(chosen)
    return TakeSlot(slots=most, name=f"{SLOT}{chosen}", resource_version=lease.resource_version if lease else "")


def renewal(budget: BudgetConfig, slots: Slots, node: str, now: float) -> TakeSlot | None:
    """Our slot, when it is time to renew it."""
    for lease in held_slots(slots, node)[:1]:
        age = now - (lease.renewed or 0.0)
        if not 0 <= age < budget.slot_seconds * RENEW:
            most = slot_limit(budget, slots.nodes)
            return TakeSlot(slots=most or 0, name=lease.name, resource_version=lease.resource_version)
    return None


def slot_number(name: str) -> int | None:
    """N of `gpuwatch-slot-N`; None: another Lease."""
    found = _SLOT_NAME.fullmatch(name)
    return int(found[1]) if found else None


def _is_used(lease: LeaseObject, slots: Slots, node: str) -> bool:
    return bool(lease.holder) and (lease.holder == node or lease.name not in slots.given_up)


def _reach(used: set[int], most: int) -> int:
    """Slots with a lower number may be taken. Where the budget has shrunk, those still held above it count as well, so
    that nodes which take slots at the same moment cannot together exceed it.
    """
    return next((n for n in range(most, 0, -1) if n + sum(u >= n for u in used) <= most), 0)
