"""How much of its speed a GPU keeps under a power limit, by two or three measurements, by none, and by observed limits.

The form is that of a GPU whose clock falls until its draw fits the limit: a share of the draw does not depend on the
clock, the rest goes with the clock's power of 2.75, and a share of the work waits for the clock. Both fit published
curves within 2 %, while a straight line through the measurements misses the steep end, where a budget hurts most.

Probes show what speed goes with what share of the draw, but not which limit leaves that share: a limit cuts the peaks
of bursty work long before it reaches the mean, at 5 % above it or at 40 %. So the observed effect of limits replaces
an estimate.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise, product
from typing import NamedTuple

from msgspec.structs import replace

from gpuwatch.model.snapshot import Record

EXPONENT = 2.75
"""The exponent of the clock in the draw; the median of what was fitted to 33 workloads on V100."""

LEAST = 1e-9
"""Share of the draw that is left for the clock, below which a GPU is taken to stand still."""


class Measured(NamedTuple):
    """Speed under a power limit of so many watts, relative to that without one (1 is no loss)."""

    watts: float
    performance: float


class Curve(Record, frozen=True, kw_only=True):
    """One GPU with one workload. `draw`: watts above which a limit costs nothing; `waits`: share of the time without a
    limit that goes with the clock, 0..1; `static`: share of the draw that does not; `lowest`: watts of the lowest limit
    measured, below which speed is taken to fall at least as the limit does.
    """

    draw: float
    waits: float = 0.6
    static: float = 0.4
    lowest: float = 0.0

    @property
    def is_sound(self) -> bool:
        """Whether its numbers are possible; one that another version has saved may hold others."""
        shares = 0 <= self.waits <= 1 and 0 <= self.static < 1
        return shares and 0 < self.draw < math.inf and 0 <= self.lowest <= self.draw

    def performance(self, watts: float) -> float:
        """Relative speed under a limit, 0..1."""
        if watts >= self.lowest:
            return self._at(watts)
        return min(self._at(watts), self._at(self.lowest) * watts / self.lowest)

    def watts(self, performance: float) -> float:
        """The lowest limit that gives so much relative speed."""
        known = self._at(self.lowest)
        needed = self._needed(performance)
        return max(needed, self.lowest * performance / known) if performance < known else needed

    def _at(self, watts: float) -> float:
        dynamic = (watts / self.draw - self.static) / (1 - self.static)
        if dynamic >= 1:
            return 1.0
        if dynamic <= LEAST:
            return 0.0
        return float(1 / (1 - self.waits + self.waits / dynamic ** (1 / EXPONENT)))

    def _needed(self, performance: float) -> float:
        if performance >= 1:
            return self.draw
        if performance <= 0:
            return 0.0
        clock = self.waits / (1 / performance - 1 + self.waits)
        return float(self.draw * (self.static + (1 - self.static) * clock**EXPONENT))


HEADROOM = 1.15
"""A limit that costs nothing, as a multiple of the draw that was read: it also cuts peaks that no reading shows."""


def prior(draw: float) -> Curve:
    """The curve to assume for a GPU of which only its draw without a limit is known, watts."""
    return Curve(draw=draw * HEADROOM)


WAITS = tuple(step / 10 for step in range(1, 11))
STATIC = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
MULTIPLES = (0.85, 0.95, 1.05, 1.15, 1.25, 1.35, 1.5, 1.7)
DEVIATIONS = (0.3, 0.1, 0.15)
"""How far these three usually are from the prior."""

ERROR = 0.01
"""How far a measured speed is usually off."""


def _cost(waits: float, static: float, multiple: float) -> float:
    usual = prior(1.0)
    deviations = (waits - usual.waits, static - usual.static, multiple - HEADROOM)
    return sum((each / usually) ** 2 for each, usually in zip(deviations, DEVIATIONS, strict=True))


CANDIDATES = sorted((_cost(*each), *each) for each in product(WAITS, STATIC, MULTIPLES))
"""Each with its cost, which grows with the distance from the prior; the cheapest first."""


def fit(points: Iterable[Measured], draw: float) -> Curve:
    """The likeliest curve of 560; without points, the prior. `draw`: as for `prior`."""
    known = tuple(points)
    if not known:
        return prior(draw)
    lowest, best, least = min(point.watts for point in known), prior(draw), math.inf
    for cost, waits, static, multiple in CANDIDATES:
        if cost >= least:
            break
        full = draw * multiple
        curve = Curve(draw=full, waits=waits, static=static, lowest=min(lowest, full))
        total = cost + _miss(curve, known, least - cost)
        if total < least:
            best, least = curve, total
    return best


def _miss(curve: Curve, points: tuple[Measured, ...], enough: float) -> float:
    """How far the curve is off; the sum ends once it reaches `enough`."""
    missed = 0.0
    for point in points:
        missed += ((curve.performance(point.watts) - min(1.0, point.performance)) / ERROR) ** 2
        if missed >= enough:
            break
    return missed


DRIFT = 1.05
"""A draw so much higher than the known one is another load's."""

CUT = 0.97
"""Share of its draw above which it is not sure that a limit cuts anything."""

KEPT = 3
SAME_LIMIT = 4.0
"""Watts; of limits that differ by less, the newer one counts."""


class LimitEffect(NamedTuple):
    """A limit, watts, and the share of its mean draw that it has left to a GPU."""

    limit: float
    ratio: float


class LimitEffects(Record, frozen=True, kw_only=True):
    """One GPU with one load. `full`: watts it draws on average when no limit holds it; `enough`: the lowest limit known
    to cost nothing, by its effect; None: not known. `effects`: limits that did hold it, newest last.
    """

    full: float | None = None
    enough: float | None = None
    effects: tuple[LimitEffect, ...] = ()


def free(hold: LimitEffects, mean: float) -> LimitEffects:
    """It draws `mean` watts, and no limit could hold it."""
    return replace(hold, full=mean)


def unhindered(hold: LimitEffects, limit: float, mean: float) -> LimitEffects:
    """It draws `mean` watts under a limit that slows nothing down, as the driver reports."""
    if hold.full is None or mean > hold.full:
        hold = replace(hold, full=mean)
    is_whole = hold.full is not None and mean >= CUT * hold.full  # otherwise it only has less to do
    return replace(hold, enough=min(limit, hold.enough or limit)) if is_whole else hold


def hindered(hold: LimitEffects, limit: float, mean: float) -> LimitEffects:
    """It draws `mean` watts under a limit that slows it down, as the driver reports."""
    if hold.full is None or mean > hold.full * DRIFT:
        return LimitEffects()
    ratio = mean / hold.full
    if ratio >= CUT:
        return hold
    others = tuple(each for each in hold.effects if abs(each.limit - limit) >= SAME_LIMIT)
    return replace(hold, enough=limit / ratio, effects=(*others, LimitEffect(limit, ratio))[-KEPT:])


def measured(
    hold: LimitEffects, probes: Sequence[tuple[float, float]], demand: float, ceiling: float
) -> list[Measured]:
    """Speed by limit, from the limits that held it and from `probes`: shares of the mean draw and of the speed.
    `demand`, `ceiling`: watts it peaks at, and of the limit without which it is probed.
    """
    enough = hold.enough or min(demand * HEADROOM, ceiling)
    estimated = [Measured(min(1.0, ratio) * enough, speed) for ratio, speed in probes]
    return estimated + [Measured(each.limit, _speed(probes, each.ratio)) for each in hold.effects]


def _speed(probes: Sequence[tuple[float, float]], ratio: float) -> float:
    """On straight lines through what was probed, from a standstill to full speed."""
    known = sorted({(0.0, 0.0), (1.0, 1.0), *((share, speed) for share, speed in probes if 0 < share < 1)})
    for (low, slow), (high, fast) in pairwise(known):
        if low <= ratio <= high:
            return slow + (fast - slow) * (ratio - low) / max(high - low, 1e-9)
    return 1.0
