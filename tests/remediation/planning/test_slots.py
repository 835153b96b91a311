"""The budget: who gets which slot, and that what cannot be read gives none."""

import pytest

from gpuwatch.config import BudgetConfig
from gpuwatch.kube.objects import LeaseObject
from gpuwatch.remediation.model import TakeSlot
from gpuwatch.remediation.planning.slots import NoSlot, Slots, choose, slot_limit

NOW = 10_000.0


def lease(number: int, holder: str | None, age: float = 0.0) -> LeaseObject:
    return LeaseObject(
        name=f"gpuwatch-slot-{number}", resource_version=str(number), holder=holder, renewed=NOW - age, duration=900.0
    )


def chosen(most: int | str, *leases: LeaseObject, given_up: tuple[int, ...] = ()) -> str | None:
    names = frozenset(f"gpuwatch-slot-{number}" for number in given_up)
    slots = Slots(leases=leases, nodes=100, given_up=names)
    found = choose(BudgetConfig(max_unavailable=most), slots, "me", 0.0)
    return found.name.removeprefix("gpuwatch-slot-") if isinstance(found, TakeSlot) else None


@pytest.mark.parametrize(
    ("most", "nodes", "expected"),
    [(0, 5, 0), (3, None, 3), ("0%", None, 0), ("10%", 5, 1), ("10%", 0, 1), ("10%", 39, 3), ("10%", None, None)],
)
def test_a_share_is_never_less_than_a_node_unless_it_is_none(
    most: int | str, nodes: int | None, expected: int | None
) -> None:
    assert slot_limit(BudgetConfig(max_unavailable=most), nodes) == expected


@pytest.mark.parametrize(
    ("leases", "given_up", "expected"),
    [
        ((), (), "0"),
        ((lease(0, "a"),), (), "1"),
        ((lease(0, "a"), lease(1, "b")), (), None),
        ((lease(0, "a"), lease(1, "me")), (), "1"),
        ((lease(0, "a", 901), lease(1, "b")), (0,), "0"),
        ((lease(0, "a", 901), lease(1, "b")), (), None),
        ((lease(0, "a", -5000), lease(1, "b")), (), None),
        ((lease(0, "me", 901), lease(1, "b")), (0,), "0"),
        ((lease(0, None), lease(1, "b")), (), "0"),
        ((lease(5, "a"),), (), "0"),
        ((lease(5, "a"), lease(7, "b")), (), None),
        ((lease(5, "a"), lease(0, "b")), (), None),
    ],
    ids=[
        "nobody", "first", "full", "mine", "given-up", "expired-by-its-own-time", "from-the-future",
        "mine-given-up", "given-back", "shrunk-one-left", "shrunk-full", "shrunk-mixed",
    ],
)  # fmt: skip
def test_of_two_slots(leases: tuple[LeaseObject, ...], given_up: tuple[int, ...], expected: str | None) -> None:
    assert chosen(2, *leases, given_up=given_up) == expected


@pytest.mark.parametrize(
    ("leases", "without_slot", "expected"),
    [((), {"a"}, "0"), ((), {"a", "b"}, None), ((), {"a", "me"}, "0"), ((lease(1, "c"),), {"a"}, None)],
)
def test_nodes_without_a_slot_count_too(
    leases: tuple[LeaseObject, ...], without_slot: set[str], expected: str | None
) -> None:
    slots = Slots(leases=leases, nodes=100, without_slot=frozenset(without_slot))
    found = choose(BudgetConfig(max_unavailable=2), slots, "me", 0.99)
    assert (found.name if isinstance(found, TakeSlot) else None) == (expected and f"gpuwatch-slot-{expected}")


@pytest.mark.parametrize("slots", [Slots(nodes=10), Slots(leases=())], ids=["leases", "nodes"])
def test_what_cannot_be_read_gives_no_slot(slots: Slots) -> None:
    found = choose(BudgetConfig(max_unavailable="10%"), slots, "me", 0.0)
    assert isinstance(found, NoSlot)
    assert found.unreadable


def test_jitter_spreads_nodes_over_the_free_slots() -> None:
    slots = Slots(leases=(), nodes=100)
    names = {choose(BudgetConfig(max_unavailable=4), slots, "me", j / 4) for j in range(4)}
    assert len(names) == 4
