"""Work of which counters and time part, as measurements say they do.

The published figures, from clock sweeps of V100 and RTX 8000 in which time and counters were both measured: DRAM
activity follows the speed of applications to 0.4-0.5 % on average and 1.7 % at p95, pipe activity times clock to
1.1-1.9 % and 4.6-5.8 %, with up to 7 % promised too much; DRAM activity of kernels that live in caches is off by
18-25 % at p95, by 66 % at worst. Errors are drawn from mixtures of normals with these means and quantiles and grow
with the depth of the cap.

A loader may hold the work back, and drift; work may be periodic, in time or in work. True speed is the account.
"""

import math
import random
from collections.abc import Iterator
from typing import NamedTuple

from gpuwatch.tuning.energy.model import Ladder, Rate, TrialWindow
from tests.bench.tuner.curves import FITS, Curve, drawn
from tests.bench.tuner.play import Gpu, Noise

DEPTH = 0.3
"""The depth of a cap, as a share of the clock, for which the errors below stand."""

FLOOR = 0.0005
"""A counter's own noise in a window, as a share of its scale: what is little used is told with a large error."""

IDLE_WATTS = 0.25
"""Of the draw at work: what a GPU draws while it waits for its loader."""


class Part(NamedTuple):
    """`dram`, `pipe`: natural logarithm of what a counter tells too much at DEPTH; `levels`: their activities at full
    speed. `loader`: the most that comes from it, as a share of what the GPU could do, None: enough. `swing`, `period`:
    of the rate of work, shares and seconds; `by_work`: the period is one of work, not of time.
    """

    dram: float = 0.0
    pipe: float = 0.0
    levels: tuple[float, float] = (0.5, 0.3)
    loader: float | None = None
    swing: float = 0.0
    period: float = 0.0
    by_work: bool = False


def applications(count: int, seed: int) -> Iterator[tuple[Curve, Part]]:
    """Of each fitted range."""
    for name in FITS:
        chance = random.Random(f"applications {name} {seed}")
        for curve in drawn(name, count, seed):
            dram, pipe = _mixture(chance, 0.8, 0.004, 0.014), _mixture(chance, 0.75, 0.008, 0.04)
            if chance.random() < 0.5:  # what a cache catches is missed by both
                pipe = math.copysign(pipe, dram)
            yield curve, Part(dram, min(pipe, 0.07), _levels(chance))


def cache_resident(count: int, seed: int) -> Iterator[tuple[Curve, Part]]:
    """Bound by the clock, while what is left of their DRAM traffic is not what they work on."""
    for name in FITS:
        chance = random.Random(f"caches {name} {seed}")
        for curve in drawn(name, count, seed):
            dram = min(0.5, abs(_mixture(chance, 0.5, 0.04, 0.13)))
            yield curve, Part(dram, min(_mixture(chance, 0.75, 0.008, 0.04), 0.07), _levels(chance, least=0.01))


def periodic(count: int, seed: int) -> Iterator[tuple[Curve, Part]]:
    """Periods of 2-120 s, every third about twice the length of a window."""
    chance = random.Random(f"periodic {seed}")
    curves = [curve for name in FITS for curve in drawn(name, 1 + count // len(FITS), seed)]
    for number, curve in enumerate(curves[:count]):
        period = chance.uniform(9, 13) if number % 3 == 0 else 2 * 60 ** chance.random()
        yield curve, Part(swing=chance.uniform(0.02, 0.15), period=period, by_work=number % 2 == 0)


def _mixture(chance: random.Random, share: float, narrow: float, wide: float) -> float:
    return chance.gauss(0, narrow if chance.random() < share else wide)


def _levels(chance: random.Random, least: float = 0.02) -> tuple[float, float]:
    """Activities of DRAM and pipe, mostly one of them small."""
    dram, pipe = (math.exp(chance.uniform(math.log(least), math.log(0.7))) for _ in range(2))
    return (dram, pipe) if max(dram, pipe) >= 0.06 else (0.2, pipe)


class PartingGpu(Gpu):
    """One GPU at such work. `counts`: its page counts the work, with `progress` of noise of its own in a window."""

    def __init__(self, curve: Curve, noise: Noise, seed: str, part: Part, *, counts: float | None = None) -> None:
        super().__init__(curve, noise, seed)
        self.part, self.counts = part, counts
        self.phase = self.chance.random()

    def truth(self, cap: float | None) -> tuple[float, float]:
        """Speed and energy for a unit of work, relative to no cap."""
        speed, energy = self.curve.at(cap)
        loader = self.part.loader
        if loader is None:
            return speed, energy
        paced = min(speed, loader)
        watts = _waiting(speed * energy, paced / speed)
        full = min(1.0, loader)
        return paced / full, watts / paced / (_waiting(1.0, full) / full)

    def _window(self, seconds: float, *, settled: bool) -> TrialWindow:
        curve, part, chance = self.curve, self.part, self.chance
        own = self.noise.counter * self.noise.sigma
        gpu_speed, energy = curve.at(self.cap)
        speed = gpu_speed if part.loader is None else min(gpu_speed, part.loader)
        clock = self.cap or curve.top
        depth = (1 - clock / curve.top) / DEPTH
        rate = speed * math.exp(self.wave) * self._swing(seconds, speed)
        dram, pipe = part.levels
        told = (
            dram * rate * math.exp(part.dram * depth),
            pipe * rate * math.exp(part.pipe * depth) * curve.top / clock,
        )
        seen = [max(0.0, each * math.exp(chance.gauss(0, own)) + chance.gauss(0, FLOOR)) for each in told]
        engine = min(1.0, speed / gpu_speed)
        watts = curve.watts * _waiting(gpu_speed * energy * math.exp(0.5 * self.wave), engine)
        counted = None if self.counts is None else Rate(1000 * rate * math.exp(chance.gauss(0, self.counts)), math.inf)
        return TrialWindow(
            cap=self.cap,
            seconds=seconds,
            dram=seen[0],
            pipe=seen[1],
            engine=min(1.0, 0.998 * engine * math.exp(chance.gauss(0, own))),
            joules=watts * math.exp(chance.gauss(0, own)) * seconds,
            clock=clock,
            settled=settled,
            progress=() if counted is None else (counted,),
        )

    def _swing(self, seconds: float, speed: float) -> float:
        """The mean of a square wave of the rate of work over the next seconds."""
        if not self.part.period:
            return 1.0
        span = seconds * (speed if self.part.by_work else 1.0) / self.part.period
        begin, self.phase = self.phase, self.phase + span
        high = (_high(self.phase) - _high(begin)) / span
        return 1 + self.part.swing * (2 * high - 1)


def _high(phase: float) -> float:
    """How much of the time up to a phase was in the first half of a period."""
    whole = math.floor(phase)
    return 0.5 * whole + min(0.5, phase - whole)


def _waiting(watts: float, engine: float) -> float:
    return watts * (engine + IDLE_WATTS * (1 - engine))


def best(gpu: PartingGpu, ladder: Ladder, bound: float) -> float:
    """What one who knows the truth saves on the ladder."""
    found = (gpu.truth(cap) for cap in (None, *ladder.caps))
    return 1 - min(energy for speed, energy in found if speed >= 1 - bound - 1e-9)
