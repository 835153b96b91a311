"""A node's power budget, shared by estimated loss against equal parts, on measured curves.

`python -m tests.bench.tuner.budget` prints the table.

Each trial puts eight workloads of one GPU model on a node. What the rule is told is noisy: the speed at two or three
limits, each the mean of eight windows that remember their neighbours. What it is judged by is the measured curve.
"""

import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from gpuwatch.tuning.power_budget.allocation import PowerDemand, Range, fill, level, share, uniform
from gpuwatch.tuning.power_budget.curve import Curve as PowerCurve
from gpuwatch.tuning.power_budget.curve import Measured, fit
from tests.bench.measure import table
from tests.bench.tuner.budget_played import States, played, probed, searched, unprobed
from tests.bench.tuner.curves import ZEUS, Curve, load

GPUS = 8
BUDGETS = (0.7, 0.6, 0.5)
"""Of the boards' limits together."""

PROBES = (0.8, 0.6, 0.45)
"""Of its own limit: where a GPU was measured."""

SIGMA = 0.01
MEMORY = 0.7
WINDOWS = 8
PEAK = 1.15
"""p95 of the draw to its mean, which is all that the traces hold."""

HEAD = ("GPU", "budget", "shared by", "mean", "slowest", "its p5", "mean gains", "slowest gains", "trials losing")

WORST_BAR, MEAN_BAR = 0.09, 0.025
"""Speed above equal parts at a budget of 60 %."""

Limits = Callable[[float, Sequence[Curve], random.Random], Sequence[float]]


class Outcome(NamedTuple):
    """One way to share, over all trials: speed relative to no limit."""

    gpu: str
    budget: float
    way: str
    mean: float
    worst: float  # of the slowest GPU of each trial, the mean
    lowest: float  # the same, p5
    mean_gain: float  # over equal parts
    worst_gain: float
    losing: float  # share of trials in which the slowest is slower than with equal parts, by more than 1 pp


TRIALS, OTHER_TRIALS, LOOP_BUDGET = 200, 40, 0.6
"""Nodes. The loop takes its time, five minutes of each one's: other circumstances are played on fewer."""

PROCESSES = 2


def models(curves: Iterable[Curve]) -> dict[str, list[Curve]]:
    """Power curves of at least five points, by GPU model; all of one model start and end at the same limits."""
    found: dict[str, list[Curve]] = defaultdict(list)
    for curve in curves:
        if curve.knob == "power_limit" and len(curve.points) >= 5:
            found[curve.gpu].append(curve)
    return dict(found)


def judge(
    curves: Sequence[Curve], budget: float, trials: int, seed: int = 1, ways: Mapping[str, Limits] | None = None
) -> Iterator[Outcome]:
    """All ways to share on the same nodes, equal parts first. `budget`: of the boards' limits together."""
    ways = ways or WAYS
    speeds: dict[str, list[list[float]]] = {way: [] for way in ways}
    for trial in range(trials):
        chance = random.Random(f"{seed} {trial}")
        node = [chance.choice(curves) for _ in range(GPUS)]
        watts = budget * sum(curve.top for curve in node)
        for way, limits in ways.items():
            given = limits(watts, node, random.Random(f"{seed} {trial} {way}"))
            assert sum(given) <= watts + 1e-6, f"{way}: {sum(given)} W of {watts} W"
            speeds[way].append([curve.at(limit)[0] for curve, limit in zip(node, given, strict=True)])
    equal = speeds["equal parts"]
    for way, each in speeds.items():
        yield _outcome(curves[0].gpu, budget, way, each, equal)


def _outcome(gpu: str, budget: float, way: str, speeds: list[list[float]], equal: list[list[float]]) -> Outcome:
    worst = [min(node) for node in speeds]
    mean = statistics.fmean(map(statistics.fmean, speeds))
    return Outcome(
        gpu=gpu,
        budget=budget,
        way=way,
        mean=mean,
        worst=statistics.fmean(worst),
        lowest=sorted(worst)[len(worst) // 20],
        mean_gain=mean - statistics.fmean(map(statistics.fmean, equal)),
        worst_gain=statistics.fmean(worst) - statistics.fmean(map(min, equal)),
        losing=statistics.fmean(w < min(e) - 0.01 for w, e in zip(worst, equal, strict=True)),
    )


def _demand(number: int, load: Curve, draw: float | None = None, curve: PowerCurve | None = None) -> PowerDemand:
    return PowerDemand(uuid=str(number), floor=load.points[0][0], ceiling=load.top, draw=draw, curve=curve)


def _shared(budget: float, demands: Sequence[PowerDemand]) -> list[float]:
    limits = share(budget, demands).limits
    return [limits[demand.uuid] for demand in demands]


def _equal(budget: float, node: Sequence[Curve], _: random.Random) -> Sequence[float]:
    return uniform(budget, [_demand(n, curve) for n, curve in enumerate(node)])


def _measured(curve: Curve, watts: float, chance: random.Random) -> Measured:
    """Speed as the mean of windows under the limit over that of as many without one, both noisy."""
    here, full = (statistics.fmean(_windows(chance)) for _ in range(2))
    return Measured(watts, curve.at(watts)[0] * here / full)


def _windows(chance: random.Random) -> Iterator[float]:
    """1, with noise that remembers."""
    noise = chance.gauss(0.0, SIGMA)
    for _ in range(WINDOWS):
        yield 1.0 + noise
        noise = MEMORY * noise + (1 - MEMORY**2) ** 0.5 * chance.gauss(0.0, SIGMA)


def _after_probes(count: int, every: int = 1) -> Limits:
    """Each, or each second, GPU was measured at the first so many limits; of the others nothing is known."""

    def limits(budget: float, node: Sequence[Curve], chance: random.Random) -> Sequence[float]:
        demands = []
        for number, curve in enumerate(node):
            draw = PEAK * curve.watts
            points = [_measured(curve, probe * curve.top, chance) for probe in PROBES[:count]]
            known = number % every == 0
            demands.append(_demand(number, curve, draw, fit(points, draw)) if known else _demand(number, curve))
        return _shared(budget, demands)

    return limits


def _knowing_all(budget: float, node: Sequence[Curve], _: random.Random) -> Sequence[float]:
    """What could be had by one who knows the measured curves."""
    given = fill(budget, lambda speed: [_needs(curve, speed) for curve in node], 1.0)
    return level(budget, [Range(watts, curve.top) for watts, curve in zip(given, node, strict=True)])


def _needs(curve: Curve, speed: float) -> float:
    """The lowest limit from which on it is never slower than so."""
    for (low, slow, _), (high, fast, _) in reversed(list(pairwise(curve.points))):
        if slow < speed:
            return high if fast <= speed else low + (high - low) * (speed - slow) / (fast - slow)
    return curve.points[0][0]


WAYS: dict[str, Limits] = {
    "equal parts": _equal,
    "draw known only": _after_probes(0),
    "2 measurements": _after_probes(2),
    "3 measurements": _after_probes(3),
    "3 of each second GPU": _after_probes(3, every=2),
    "curves known": _knowing_all,
}


def _in_loop(states: States, *, watched: bool = True) -> Limits:
    return lambda budget, node, chance: played(budget, node, chance, states, watched=watched)


LOOP: dict[str, Limits] = {
    "equal parts": _equal,
    "3 measurements": WAYS["3 measurements"],
    "loop": _in_loop(probed(PROBES, SIGMA)),
    "curves known": _knowing_all,
}
"""What the running loop comes to by itself, where the rule alone is told the draws and which limit was measured."""

OTHERS: dict[str, Limits] = {
    "equal parts": _equal,
    "loop, draws only": _in_loop(unprobed),
    "loop, its own search": _in_loop(searched),
    "loop": LOOP["loop"],
    "loop, from an emergency": _in_loop(probed(PROBES, SIGMA), watched=False),
}
"""The loop where less is known, or in worse circumstances."""


def run(curves: Iterable[Curve], trials: int = TRIALS) -> list[Outcome]:
    """The loop on nodes of each GPU model, the same ones as those of `evaluate`."""
    return _at_once(partial(_looped, trials), curves)


def others(curves: Iterable[Curve], trials: int = OTHER_TRIALS) -> list[Outcome]:
    """The loop in other circumstances."""
    return _at_once(partial(_otherwise, trials), curves)


def _at_once(job: Callable[[Sequence[Curve]], list[Outcome]], curves: Iterable[Curve]) -> list[Outcome]:
    with ProcessPoolExecutor(PROCESSES) as pool:
        return [each for found in pool.map(job, models(curves).values()) for each in found]


def _looped(trials: int, curves: Sequence[Curve]) -> list[Outcome]:
    return list(judge(curves, LOOP_BUDGET, trials, ways=LOOP))


def _otherwise(trials: int, curves: Sequence[Curve]) -> list[Outcome]:
    return list(judge(curves, LOOP_BUDGET, trials, ways=OTHERS))


def evaluate(curves: Iterable[Curve], trials: int, budgets: Sequence[float] = BUDGETS) -> list[Outcome]:
    """Every GPU model at every budget."""
    return [outcome for own in models(curves).values() for budget in budgets for outcome in judge(own, budget, trials)]


IN_LOOP = ", limits that the running loop comes to"


def show(outcomes: Iterable[Outcome], what: str = "") -> None:
    """Print them; speeds are shares of that without a limit."""
    table(f"Power budget, {GPUS} GPUs a node{what}", HEAD, [_cells(each) for each in outcomes])


def _cells(each: Outcome) -> list[str]:
    speeds = [f"{value:.1%}" for value in (each.mean, each.worst, each.lowest)]
    gains = [f"{100 * value:+.1f} pp" for value in (each.mean_gain, each.worst_gain)]
    return [each.gpu, f"{each.budget:.0%}", each.way, *speeds, *gains, f"{each.losing:.0%}"]


if __name__ == "__main__":
    show(evaluate(load(ZEUS), TRIALS))
    show(run(load(ZEUS)), IN_LOOP)
    show(others(load(ZEUS)), ", the loop in other circumstances")
