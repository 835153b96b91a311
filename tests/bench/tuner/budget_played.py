"""The power budget as its loop keeps it: GPUs at work, seconds that pass, and limits that are written one by one.

Nothing is handed to the rule but what the loop itself has seen: draws that flicker and are cut off by the limit, and
the probes of an energy tuner. The budget comes, or falls, while all GPUs are at their own limits.
"""

import math
import random
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from gpuwatch.tuning.energy.model import Probe, Terms, TrialPhase, TrialState, WindowPair
from gpuwatch.tuning.energy.tuner import step, target_cap
from tests.bench.tuner.curves import Curve
from tests.bench.tuner.play import Gpu, Noise
from tests.tuning.power_budget.budget_node import Node

SECONDS, WATCHED, CYCLE = 300.0, 64.0, 2.0
"""Of each node with the budget, and before it, and between two cycles."""

FLICKER = 0.09
"""Standard deviation of the draw from second to second: its p95 is 1.15 times the mean, as the table above takes it."""

PAIRS = 8

SLOWED = 0.99
"""Below this speed, and this share of the draw, the driver says that the limit is why."""

States = Callable[[Curve, random.Random], TrialState | None]


def played(
    budget: float, node: Sequence[Curve], chance: random.Random, states: States, *, watched: bool
) -> Sequence[float]:
    """The limits that the loop has come to, watts. It is an error if it ever raised their sum above the budget.

    `watched`: it has seen a minute without a need to hold anybody; if not, it begins with an emergency.
    """
    world = Node(budget, seed=chance.randrange(1 << 30), noise=FLICKER)
    for curve in node:
        uuid = world.come(curve.top, drawing(curve), default=curve.top, floor=curve.points[0][0])
        world.boards[uuid].state, world.boards[uuid].is_capped = states(curve, chance), _slows(curve)
    if watched:
        world.budget = sum(curve.top for curve in node)
        world.run(WATCHED, CYCLE)
        world.budget = budget
    is_kept = False
    for _ in range(round(SECONDS / CYCLE)):
        for total in world.step(CYCLE):
            assert not is_kept or total <= budget + 1e-6, f"{total} W of {budget} W"
        is_kept = is_kept or world.total <= budget + 1e-6
    return list(world.limits.values())


def drawing(curve: Curve) -> Callable[[float], float]:
    """The mean draw under a limit: energy for a unit of work times work for a second."""
    return lambda limit: curve.watts * math.prod(curve.at(limit))


def _slows(curve: Curve) -> Callable[[float], bool]:
    return lambda limit: max(curve.at(limit)[0], math.prod(curve.at(limit))) < SLOWED


def unprobed(curve: Curve, chance: random.Random) -> TrialState | None:
    """Nobody has looked before."""
    return None


def probed(shares: Iterable[float], sigma: float) -> States:
    """An energy tuner has tried these shares of the full setting."""

    def states(curve: Curve, chance: random.Random) -> TrialState:
        probes = []
        for share in shares:
            speed, energy = curve.at(share * curve.top)
            noise = [chance.gauss(0.0, sigma) for _ in range(PAIRS)]
            pairs = tuple(
                WindowPair(speed=(math.log(speed) + each, None), energy=math.log(energy) - each / 2) for each in noise
            )
            probes.append(Probe(cap=share * curve.top, pairs=pairs, good=True))
        return TrialState(phase=TrialPhase.REFUSED, probes=tuple(probes))

    return states


def searched(curve: Curve, chance: random.Random) -> TrialState:
    """An energy tuner has looked for the cap that costs 5 % of the speed at most."""
    return TrialState(phase=TrialPhase.REFUSED, probes=_search(curve).probes)


@cache
def _search(curve: Curve) -> TrialState:
    gpu, ladder, terms, state, cap = (
        Gpu(curve, Noise(0.01), curve.workload),
        curve.ladder(),
        Terms(),
        TrialState(),
        None,
    )
    for _ in range(1_000):
        for window in gpu.tick(cap):
            state = step(state, (window,), ladder, terms)
            cap = target_cap(state)
        if state.phase in (TrialPhase.HOLD, TrialPhase.REFUSED):
            break
    return state
