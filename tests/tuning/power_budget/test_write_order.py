"""The order of writes: limits stay within the budget though writes fail, readings miss and the writer dies."""

import random
from collections.abc import Iterator

import pytest

from gpuwatch.tuning.power_budget.allocation import PowerDemand, emergency, share
from gpuwatch.tuning.power_budget.curve import Curve
from gpuwatch.tuning.power_budget.limits import DEAD_BAND_WATTS, InForce, LimitWrite, steps
from tests.seeds import seeded

STEPS = 1_000
"""Of each of ten seeds, of which three are tried in `make test`."""

ROUNDS = 1e-6
"""Watts by which a sum of limits may be off."""

FLOOR, DEFAULT = 100.0, 300.0


def in_force(**watts: float | None) -> tuple[InForce, ...]:
    return tuple(InForce(uuid=uuid, watts=each, most=DEFAULT) for uuid, each in watts.items())


def planned(
    now: tuple[InForce, ...], wanted: dict[str, float], budget: float, **failed: float
) -> list[tuple[str, float]]:
    return [(write.uuid, write.watts) for write in steps(now, wanted, budget, failed)]


def test_decreases_come_first_and_the_largest_before_the_others() -> None:
    now = in_force(up=150.0, little=170.0, much=250.0)
    assert planned(now, {"up": 260.0, "little": 160.0, "much": 150.0}, 570.0) == [
        ("much", 150.0), ("little", 160.0), ("up", 260.0),
    ]  # fmt: skip


def test_an_increase_gets_only_what_is_free_now() -> None:
    assert planned(in_force(a=150.0, b=150.0), {"a": 200.0}, 330.0) == [("a", 180.0)]
    assert planned(in_force(a=150.0, b=150.0), {"a": 200.0}, 300.0) == []


def test_who_could_not_be_lowered_is_counted_as_it_is() -> None:
    now = in_force(stuck=200.0, up=150.0)
    assert planned(now, {"stuck": 150.0, "up": 200.0}, 350.0, stuck=150.0) == []


def test_an_increase_that_did_not_show_may_still_come() -> None:
    now = in_force(late=150.0, up=150.0)
    assert planned(now, {"late": 200.0, "up": 200.0}, 380.0, late=200.0) == [("up", 180.0)]


def test_who_cannot_be_read_counts_for_the_most_and_is_not_written() -> None:
    now = in_force(silent=None, up=150.0)
    assert planned(now, {"silent": 150.0, "up": 250.0}, 460.0) == [("up", 160.0)]


def test_who_is_not_tuned_counts_too() -> None:
    assert planned(in_force(foreign=300.0, up=150.0), {"up": 250.0}, 460.0) == [("up", 160.0)]


def test_a_few_watts_are_no_reason_to_write_unless_the_budget_is_exceeded() -> None:
    wanted = {"a": 154.0, "b": 146.0}
    assert planned(in_force(a=150.0, b=150.0), wanted, 300.0) == []
    assert planned(in_force(a=150.0, b=151.5), wanted, 300.0)[0] == ("b", 146.0)


def test_a_budget_that_fell_is_kept_after_as_few_writes_as_can_be() -> None:
    now = in_force(a=250.0, b=200.0, c=160.0)
    plan = steps(now, {"a": 150.0, "b": 150.0, "c": 150.0}, 520.0)
    assert plan[0] == LimitWrite(uuid="a", before=250.0, watts=150.0)
    assert sum(each.at_worst for each in now) - 100.0 <= 520.0


class Node:
    """The driver's side: limits in force, and boards that refuse writes or readings."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.limits: dict[str, float] = {}
        self.budget = 1_600.0
        self.made = 0
        self.writes = 0
        self.faults = True
        self.late: list[LimitWrite] = []

    def come(self, watts: float = DEFAULT) -> None:
        self.made += 1
        self.limits[f"GPU-{self.made}"] = watts

    def total(self) -> float:
        return sum(self.limits.values())

    def read(self) -> tuple[InForce, ...]:
        blind = self.faults and self.random.random() < 0.05
        silent = self.random.choice([*self.limits, None]) if blind else None
        return tuple(
            InForce(uuid=uuid, watts=None if uuid == silent else watts, most=DEFAULT)
            for uuid, watts in self.limits.items()
        )

    def write(self, write: LimitWrite) -> None:
        """One in ten comes to nothing and one in ten comes late; the writer learns it only by reading back."""
        luck = self.random.random() if self.faults else 1.0
        self.writes += 1
        if luck >= 0.2:
            self.limits[write.uuid] = write.watts
        elif luck >= 0.1:
            self.late.append(write)
        if self.random.random() < 0.3:
            self.arrive()

    def arrive(self) -> None:
        """What was late."""
        self.limits |= {write.uuid: write.watts for write in self.late}
        self.late.clear()


def requests(node: Node, now: tuple[InForce, ...]) -> dict[str, float]:
    """What `share` wants for random loads, as a tuner would ask it."""
    roll = node.random
    gpus = [
        PowerDemand(
            uuid=each.uuid,
            floor=FLOOR,
            ceiling=DEFAULT,
            draw=roll.choice([None, roll.uniform(50.0, 300.0)]),
            curve=roll.choice([None, Curve(draw=roll.uniform(100.0, 320.0), waits=roll.uniform(0.1, 1.0))]),
            priority=roll.randint(0, 1),
            fixed=each.most if each.watts is None else None,
        )
        for each in now
    ]
    if roll.random() < 0.1:
        return emergency(node.budget, gpus, {each.uuid: each.at_worst for each in now})
    return dict(share(node.budget, gpus).limits)


def cycle(node: Node, dies_after: int) -> Iterator[float]:
    """One cycle of a tuner that dies after so many writes; yields the node's total after each."""
    failed: dict[str, float] = {}
    wanted = requests(node, node.read())
    for _ in range(dies_after):
        plan = steps(node.read(), wanted, node.budget, failed)
        if not plan:
            break
        node.write(plan[0])
        yield node.total()
        seen = {each.uuid: each.watts for each in node.read()}
        if seen[plan[0].uuid] != plan[0].watts:
            failed[plan[0].uuid] = plan[0].watts
    node.arrive()
    yield node.total()


def happens(node: Node, grows: bool) -> None:
    """Something from outside. Unless it `grows`, nothing that alone makes the limits exceed the budget."""
    event = node.random.choice(["comes", "goes", "budget", "reset", "another", "another"])
    room = node.budget - node.total()
    if event == "comes" and len(node.limits) < 10 and (grows or room >= FLOOR):
        node.come(DEFAULT if grows else min(DEFAULT, room))
    elif event == "goes" and len(node.limits) > 1:
        del node.limits[node.random.choice(list(node.limits))]
    elif event == "budget":
        node.budget = node.random.uniform(700.0, 3_000.0) if grows else node.random.uniform(1.0, 1.2) * node.total()
    elif event == "another" and not grows:
        node.limits.clear()
        for _ in range(node.random.randint(2, 10)):
            node.come(node.random.uniform(FLOOR, DEFAULT))
        node.budget = node.total()
    elif event == "reset" and grows:
        node.limits[node.random.choice(list(node.limits))] = DEFAULT  # a driver that was loaded anew


@pytest.mark.parametrize("seed", seeded(range(10)))
def test_limits_never_exceed_the_budget_whatever_fails_and_when_it_dies(seed: int) -> None:
    node = Node(seed)
    for _ in range(5):
        node.come()
    for _ in range(STEPS):
        happens(node, grows=False)
        for total in cycle(node, dies_after=node.random.choice([0, 1, 2, 3, 50])):
            assert total <= node.budget + ROUNDS
    assert node.writes > STEPS


@pytest.mark.parametrize("seed", seeded(range(10)))
def test_what_comes_from_outside_is_answered_with_decreases_only_until_the_budget_is_kept(seed: int) -> None:
    node = Node(seed)
    for _ in range(5):
        node.come()
    exceeded = 0
    for _ in range(STEPS):
        happens(node, grows=True)
        before = node.total()
        exceeded += before > node.budget
        for total in cycle(node, dies_after=node.random.choice([0, 1, 2, 3, 50])):
            assert total <= max(before, node.budget) + ROUNDS
            before = total
    assert exceeded > STEPS / 20


@pytest.mark.parametrize("seed", seeded(range(20)))
def test_once_faults_are_over_one_cycle_brings_the_limits_to_what_is_wanted(seed: int) -> None:
    node = Node(seed)
    for _ in range(8):
        node.come(node.random.uniform(FLOOR, DEFAULT))
    node.faults = False
    wanted = requests(node, node.read())
    while plan := steps(node.read(), wanted, node.budget):
        node.write(plan[0])
    assert node.total() <= node.budget + ROUNDS
    assert max(abs(node.limits[uuid] - watts) for uuid, watts in wanted.items()) < DEAD_BAND_WATTS


def fewest(drops: list[float], excess: float) -> int:
    """How many of these decreases it takes at least to lose so many watts."""
    return next(count for count in range(len(drops) + 1) if sum(sorted(drops, reverse=True)[:count]) >= excess - ROUNDS)


@pytest.mark.parametrize("seed", seeded(range(10)))
def test_no_shorter_sequence_keeps_a_budget_that_fell(seed: int) -> None:
    node = Node(seed)
    node.faults = False
    for _ in range(100):
        node.limits = {f"GPU-{n}": node.random.uniform(FLOOR, DEFAULT) for n in range(8)}
        node.budget = node.random.uniform(8 * FLOOR, node.total())
        wanted = requests(node, node.read())
        needed = fewest([watts - wanted[uuid] for uuid, watts in node.limits.items()], node.total() - node.budget)
        for write in steps(node.read(), wanted, node.budget)[:needed]:
            node.write(write)
        assert node.total() <= node.budget + ROUNDS
