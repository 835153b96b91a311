"""Loaders that become faster and slower under a held cap: how long work is slower than promised after each change."""

import random
from itertools import pairwise
from typing import NamedTuple

from gpuwatch.tuning.energy.model import Terms
from tests.bench.tuner.curves import FITS, drawn
from tests.bench.tuner.parting import Part, PartingGpu
from tests.bench.tuner.play import Noise, play

HOUR = 3600.0


class Drift(NamedTuple):
    """Seconds over the bound by a percentage point for each change of a loader; `saved`: over all scripts."""

    scripts: int
    changes: int
    mean: float
    worst: float
    late: float  # share of the changes with more than a minute
    saved: float


class _Loader(NamedTuple):
    """`begun`: the seconds over the bound at each change."""

    gpu: PartingGpu
    changes: list[tuple[float, float]]
    begun: list[float]

    def change(self, now: float, over: float) -> None:
        if len(self.begun) < len(self.changes) and now >= self.changes[len(self.begun)][0]:
            self.gpu.part = self.gpu.part._replace(loader=self.changes[len(self.begun)][1])
            self.begun.append(over)


def drifting(count: int, noise: Noise, bound: float, seed: int) -> Drift:
    """`count` scripts of four hours, in each of which the loader changes by 10-60 % five times, mostly to faster."""
    chance = random.Random(f"drift {seed}")
    curves = [curve for name in FITS for curve in drawn(name, 1 + count // len(FITS), seed)][:count]
    seconds: list[float] = []
    saved = 0.0
    for number, curve in enumerate(curves):
        gpu = PartingGpu(curve, noise, f"drift {number} {seed}", Part(loader=chance.uniform(0.5, 0.95)))
        times = sorted(chance.uniform(0.3, 3.9) * HOUR for _ in range(5))
        loaders = [chance.uniform(0.6, 1.4) if step % 2 == 0 else chance.uniform(0.5, 0.95) for step in range(5)]
        begun: list[float] = []

        changing = _Loader(gpu, list(zip(times, loaders, strict=True)), begun)
        account = play(gpu, curve.ladder(), Terms(slowdown=bound), 4 * HOUR, changing.change)
        seconds += [after - before for before, after in pairwise([*begun, account.over])]
        saved += account.saving / len(curves)
    late = sum(each > 60 for each in seconds) / len(seconds)
    return Drift(len(curves), len(seconds), sum(seconds) / len(seconds), max(seconds), late, saved)
