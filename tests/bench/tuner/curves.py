"""Workloads as curves: for each cap the speed that is left and the energy for a unit of work, both relative to no cap.

Measured ones come from files of the columns gpu, workload, power_limit_w or clock_mhz, relative_perf, relative_energy
and, where known, avg_power_w; drawn ones from ranges that were fitted to published measurements.
"""

import csv
import random
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from gpuwatch.tuning.energy.model import Ladder, clocks, limits

ZEUS = Path(__file__).with_name("curves") / "zeus.csv"
MHZ = 1e6
CLOCK_STEP = 15 * MHZ


class Curve(NamedTuple):
    """`points`: (cap, speed, energy), lowest cap first; the last is without a cap. `watts`: the draw there."""

    gpu: str
    workload: str
    knob: str
    points: tuple[tuple[float, float, float], ...]
    watts: float

    @property
    def top(self) -> float:
        """Without a cap."""
        return self.points[-1][0]

    def at(self, cap: float | None) -> tuple[float, float]:
        """Speed and energy, on the straight line between the measured points."""
        if cap is None or cap >= self.top:
            return 1.0, 1.0
        index = max(1, bisect_left(self.points, cap, key=lambda point: point[0]))
        (a, *low), (b, *high) = self.points[index - 1 : index + 1]
        share = (cap - a) / (b - a)
        speed, energy = (x + share * (y - x) for x, y in zip(low, high, strict=True))
        return speed, energy

    def ladder(self, step_watts: float = 5.0, min_fraction: float = 0.5) -> Ladder:
        """What may be tried of it."""
        lowest = self.points[0][0]
        if self.knob == "power_limit":
            return limits(top=self.top, lowest=lowest, step=step_watts)
        count = int((self.top - lowest) / CLOCK_STEP)
        return clocks((self.top - CLOCK_STEP * n for n in range(count + 1)), top=self.top, min_fraction=min_fraction)

    @property
    def binds(self) -> bool:
        """Whether the knob does anything to it: a power limit above the draw does not."""
        return self.knob == "locked_clocks" or self.points[0][0] < self.watts


def load(path: Path) -> Iterator[Curve]:
    """The curves of a file, each scaled to its own highest setting. Raises ValueError on a row that is no number."""
    found: dict[tuple[str, str, str], list[tuple[float, float, float, float]]] = defaultdict(list)
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            for knob, column, unit in (("power_limit", "power_limit_w", 1.0), ("locked_clocks", "clock_mhz", MHZ)):
                if row.get(column):
                    watts = float(row.get("avg_power_w") or 0.0)
                    point = (
                        float(row[column]) * unit,
                        float(row["relative_perf"]),
                        float(row["relative_energy"]),
                        watts,
                    )
                    found[row["gpu"], row["workload"], knob].append(point)
    for (gpu, workload, knob), measured in found.items():
        rows = list(_once(measured))
        top, speed, energy, watts = rows[-1]
        if len(rows) > 1:
            points = tuple((cap, perf / speed, joules / energy) for cap, perf, joules, _ in rows)
            yield Curve(gpu, workload, knob, points, watts or (0.8 * top if knob == "power_limit" else 300.0))


def _once(rows: list[tuple[float, float, float, float]]) -> Iterator[tuple[float, ...]]:
    """The mean of what was measured at the same setting, lowest setting first."""
    for _, same in groupby(sorted(rows), key=itemgetter(0)):
        yield tuple(fmean(column) for column in zip(*same, strict=True))


class Fit(NamedTuple):
    """Ranges of a model: time 1-b+b*x, power s+(1-s)*x**-a, x = full clock / clock. Each (p10, p50, p90)."""

    clock: float  # MHz
    bound: tuple[float, float, float]
    static: tuple[float, float, float]
    exponent: tuple[float, float, float]


FITS = {
    "V100-300W": Fit(1530, (0.02, 0.24, 0.52), (0.35, 0.40, 0.60), (2.0, 2.75, 3.75)),
    "V100-DSO": Fit(1530, (0.48, 0.90, 1.0), (0.10, 0.25, 0.45), (1.0, 2.0, 3.25)),
    "RTX8000-DSO": Fit(1770, (0.04, 0.66, 0.98), (0.45, 0.45, 0.60), (3.0, 3.75, 4.5)),
    "A100-80-PCIe": Fit(1410, (0.00, 0.64, 0.64), (0.30, 0.40, 0.40), (4.0, 5.0, 5.0)),
    "RTX-PRO-6000": Fit(2430, (0.20, 0.54, 0.90), (0.20, 0.30, 0.35), (1.25, 2.0, 2.25)),
}
"""V100: the GEEPAFS and DSO data sets; RTX 8000: DSO; A100 and RTX PRO 6000: sweeps of single boards."""


def drawn(name: str, count: int, seed: int) -> Iterator[Curve]:
    """Workloads of a fitted range: the same ones for the same seed."""
    fit, chance = FITS[name], random.Random(f"{name} {seed}")
    for number in range(count):
        b, s, a = parameters(name, chance)
        yield model(f"{name}", f"b={b:.2f} s={s:.2f} a={a:.2f} #{number}", fit.clock * MHZ, b, s, a)


def parameters(name: str, chance: random.Random) -> tuple[float, float, float]:
    """b, s and a of a workload of a fitted range."""
    fit = FITS[name]
    b = min(1.0, _between(fit.bound, chance.random()))
    return b, _between(fit.static, chance.random()), _between(fit.exponent, chance.random())


def model(gpu: str, workload: str, top: float, b: float, s: float, a: float) -> Curve:
    """A workload of known parameters, at each clock step down to 30 % of the top."""
    points = []
    for step in range(int(0.7 * top / CLOCK_STEP), -1, -1):
        clock = top - step * CLOCK_STEP
        time = 1 - b + b * top / clock
        points.append((clock, 1 / time, time * (s + (1 - s) * (clock / top) ** a)))
    return Curve(gpu, workload, "locked_clocks", tuple(points), 250.0)


def _between(quantiles: tuple[float, float, float], share: float) -> float:
    """The value at a share, on straight lines through p10, p50 and p90 that go on to both ends."""
    low, middle, high = quantiles
    value = middle + (share - 0.5) / 0.4 * ((middle - low) if share < 0.5 else (high - middle))
    return max(0.0, value)
