"""How much a mean of few and dependent numbers can be trusted.

Neighbouring pairs share a full window, and the noise of real work lasts longer than one window. The error is therefore
the larger of two: that of pairs that depend on each other as shared windows make them, and that of batch means, which
also sees what lasts longer.
"""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from gpuwatch.tuning.energy.model import WindowPair

ONE_SIDED_95 = 1.6449
SHARED = 4 / 3
"""What sharing full windows makes of the variance of a mean of pairs, at most: white noise. Lasting noise cancels."""

BATCHES = 8

DISAGREE = 0.02
"""Two signals of one GPU that differ by more than this share of its speed do not tell the same story."""


class Estimate(NamedTuple):
    """The mean of natural logarithms, its standard error, and how far it has to be trusted (Student's t)."""

    mean: float
    error: float
    quantile: float

    @property
    def lower(self) -> float:
        """The ratio is above this with 95 % confidence."""
        return math.exp(self.mean - self.quantile * self.error)

    @property
    def upper(self) -> float:
        """The ratio is below this with 95 % confidence."""
        return math.exp(self.mean + self.quantile * self.error)

    @property
    def ratio(self) -> float:
        """The most likely ratio."""
        return math.exp(self.mean)


def estimate(values: Sequence[float]) -> Estimate:
    """Of two values or more, in the order in which they were measured."""
    count = len(values)
    variance = SHARED * spread(values) ** 2 / count
    size = count // BATCHES
    if size > 1:
        batches = [fmean(values[start : start + size]) for start in range(0, count - size + 1, size)]
        variance = max(variance, spread(batches) ** 2 / len(batches))
    return Estimate(fmean(values), math.sqrt(variance), student(count - 1))


def spread(values: Sequence[float]) -> float:
    """The standard deviation of a sample of two or more; `statistics.stdev` is exact and thirty times slower."""
    mean = fmean(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def student(freedom: int) -> float:
    """The one-sided 95 % quantile of Student's t (Cornish-Fisher; 3 % low at two degrees, where nothing is decided)."""
    z, n = ONE_SIDED_95, float(freedom)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3


def speeds(pairs: Sequence[WindowPair]) -> list[Estimate]:
    """What each signal that was there all the time says; empty: some GPU had none, and no other speaks for it."""
    columns = zip(*(each.speed for each in pairs), strict=True)
    known = [[value for value in column if value is not None] for column in columns]
    found = [estimate(values) if len(values) == len(pairs) else None for values in known]
    if any(dram is None and pipe is None for dram, pipe in zip(found[::2], found[1::2], strict=True)):
        return []
    return [each for each in found if each is not None]


def slowest(pairs: Sequence[WindowPair]) -> Estimate | None:
    """The signal that promises least. None: there is none."""
    return min(speeds(pairs), key=lambda found: found.lower, default=None)


def energy(pairs: Sequence[WindowPair]) -> Estimate | None:
    """Energy for each unit of work. None: not known."""
    values = [each.energy for each in pairs if each.energy is not None]
    return estimate(values) if len(values) == len(pairs) else None


def disagree(pairs: Sequence[WindowPair]) -> bool:
    """Whether the two signals of a GPU differ by more than DISAGREE and more than their error."""
    for member in range(0, len(pairs[0].speed), 2):
        both = [(each.speed[member], each.speed[member + 1]) for each in pairs]
        gaps = [dram - pipe for dram, pipe in both if dram is not None and pipe is not None]
        if len(gaps) < len(pairs):
            continue
        gap = estimate(gaps)
        if abs(gap.mean) - gap.quantile * gap.error > DISAGREE:
            return True
    return False
