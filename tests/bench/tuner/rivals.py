"""What the tuner is measured against: an oracle that knows the curve, and rules that are in use."""

import math
import random
from collections.abc import Callable, Iterator, Sequence

from gpuwatch.tuning.energy.model import Ladder
from tests.bench.tuner.curves import Curve

Rule = Callable[[Curve, Ladder], float | None]
"""Picks a cap for a workload at once."""


def oracle(curve: Curve, slowdown: float, floor: float) -> float:
    """The cap of least energy that keeps the bound, on a grid of 1 % of the top, not below `floor`."""
    grid = (curve.top * (1 - n / 100) for n in range(101))
    kept = [cap for cap in grid if cap >= floor - 1e-6 and _keeps(curve, cap, slowdown)]
    return min(kept, key=lambda cap: curve.at(cap)[1])


def fixed(curve: Curve, ladder: Ladder) -> float:
    """85 % of the clock, or 70 % of the power limit, whatever the work."""
    return max(ladder.floor, curve.top * (0.7 if curve.knob == "power_limit" else 0.85))


def grid(slowdown: float) -> Rule:
    """Zeus: tries its grid in the training loop, so that it knows speed and energy, and takes the best one allowed.

    The grid is 25 W, as Zeus has it; clocks, which it does not try, in 5 % steps.
    """

    def pick(curve: Curve, ladder: Ladder) -> float:
        step = 25.0 if curve.knob == "power_limit" else 0.05 * curve.top
        count = int((curve.top - ladder.floor) / step + 1e-6)
        tried = [curve.top - step * number for number in range(count + 1)]
        return min((cap for cap in tried if _keeps(curve, cap, slowdown)), key=lambda cap: curve.at(cap)[1])

    return pick


def fold_line(slowdown: float, sigma: float, seed: int) -> Rule:
    """GEEPAFS, from its description: two short samples of memory utilization at each of four clocks, a line with one
    fold through them, and of the clocks that keep the bound on that line the most efficient one.

    Its samples of 0.2 s have the noise of our windows of 5 s here, which is kind to it.
    """

    def pick(curve: Curve, ladder: Ladder) -> float:
        chance = random.Random(f"fold {curve.workload} {seed}")
        lowest = max(0.55, ladder.floor / curve.top)
        shares = [1 - number * (1 - lowest) / 3 for number in range(4)]
        sampled = [
            (share, curve.at(share * curve.top)[0] * math.exp(chance.gauss(0, sigma)), _watts(curve, share))
            for share in shares
            for _ in range(2)
        ]
        speed = _folded([(x, y) for x, y, _ in sampled])
        power = _folded([(x, y) for x, _, y in sampled])
        allowed = [step for step in ladder.steps if speed(step / curve.top) >= (1 - slowdown) * speed(1.0)]
        return max(allowed or [curve.top], key=lambda step: speed(step / curve.top) / power(step / curve.top))

    return pick


def _watts(curve: Curve, share: float) -> float:
    speed, energy = curve.at(share * curve.top)
    return speed * energy


def _keeps(curve: Curve, cap: float, slowdown: float) -> bool:
    return curve.at(cap)[0] >= 1 - slowdown - 1e-9


def _folded(points: Sequence[tuple[float, float]]) -> Callable[[float], float]:
    """The line with one fold that is nearest to points, by least squares over where it folds."""
    folds = [0.6 + 0.02 * number for number in range(20)]
    fits = [(fold, *_least(points, fold)) for fold in folds]
    fold, a, b, c = min(fits, key=lambda fit: sum((y - _value(fit[0], *fit[1:], x)) ** 2 for x, y in points))
    return lambda x: _value(fold, a, b, c, x)


def _value(fold: float, a: float, b: float, c: float, x: float) -> float:
    return a + b * min(x, fold) + c * max(x - fold, 0.0)


def _least(points: Sequence[tuple[float, float]], fold: float) -> tuple[float, float, float]:
    """Normal equations of a + b min(x, fold) + c max(x - fold, 0), by elimination."""
    rows = [((1.0, min(x, fold), max(x - fold, 0.0)), y) for x, y in points]
    matrix = [
        [sum(row[i] * row[j] for row, _ in rows) + (1e-9 if i == j else 0.0) for j in range(3)]
        + [sum(row[i] * y for row, y in rows)]
        for i in range(3)
    ]
    for pivot in range(3):
        for other in _others(pivot):
            factor = matrix[other][pivot] / matrix[pivot][pivot]
            matrix[other] = [x - factor * y for x, y in zip(matrix[other], matrix[pivot], strict=True)]
    a, b, c = (matrix[i][3] / matrix[i][i] for i in range(3))
    return a, b, c


def _others(pivot: int) -> Iterator[int]:
    return (other for other in range(3) if other != pivot)
