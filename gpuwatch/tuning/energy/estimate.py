"""How much a mean of few and dependent numbers can be trusted.

Neighbouring pairs share a full window, and the noise of real work lasts longer than one window. The error is therefore
the larger of two: that of pairs that depend on each other as shared windows make them, and that of batch means, which
also covers noise that lasts longer.
"""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from gpuwatch.tuning.energy.model import WindowPair

ONE_SIDED_95 = 1.6449
SHARED = 4 / 3
"""Sharing full windows multiplies the variance of a mean of pairs by this with white noise; lasting noise cancels."""

BATCHES = 8

WEAK_MARGIN = 0.01
"""The slowdown beyond the bound that a weak signal has to rule out."""

VETO = 0.03
"""GPU counters that all show so much more slowdown than the bound overrule a counter of progress or an SLO."""

DISAGREE = 0.012
"""Two signals of one GPU that differ by more than this share of its speed contradict each other."""


class Estimate(NamedTuple):
    """The mean of natural logarithms, its standard error, and how many errors a bound is away (Student's t)."""

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


def _columns(rows: Iterable[tuple[float | None, ...]]) -> list[Estimate | None]:
    """The estimate of each signal; None: it was not known all the time."""
    columns = zip(*rows, strict=True)
    return [
        None if None in column else estimate([value for value in column if value is not None]) for column in columns
    ]


def _counters(pairs: Sequence[WindowPair], *, strong: bool) -> list[Estimate | None]:
    """Of the GPU counters the strong ones, or those that are weak in some pair; None in the places of the others, and
    of those that are not known.
    """
    weak = frozenset().union(*(each.weak for each in pairs))
    found = _columns(each.speed for each in pairs)
    return [each if (place not in weak) is strong else None for place, each in enumerate(found)]


def speeds(pairs: Sequence[WindowPair]) -> list[Estimate]:
    """The speed by each counter of progress, or else by each GPU counter; empty: an owner or a GPU
    has no strong counter that was known all the time, or an SLO is the signal, which shows no speed.
    """
    if not pairs or pairs[0].served:
        return []
    if pairs[0].progress:
        progress = _columns(each.progress for each in pairs)
        return [] if None in progress else [each for each in progress if each is not None]
    found = _counters(pairs, strong=True)
    if any(dram is None and pipe is None for dram, pipe in zip(found[::2], found[1::2], strict=True)):
        return []
    return [each for each in found if each is not None]


def slowest(pairs: Sequence[WindowPair]) -> Estimate | None:
    """The signal with the least lower bound. None: there is none."""
    return min(speeds(pairs), key=lambda found: found.lower, default=None)


def energy(pairs: Sequence[WindowPair]) -> Estimate | None:
    """Energy for each unit of work. None: not known."""
    values = [each.energy for each in pairs if each.energy is not None]
    return estimate(values) if len(values) == len(pairs) else None


def weak_signals_allow(pairs: Sequence[WindowPair], slowdown: float) -> bool | None:
    """Whether the weak signals let a cap pass, each by its own error. None: not known yet."""
    if pairs[0].progress:
        return True
    found = [each for each in _counters(pairs, strong=False) if each is not None]
    if any(each.upper < 1 - slowdown for each in found):
        return False
    sure = all(each.ratio >= 1 - slowdown and each.lower >= 1 - slowdown - WEAK_MARGIN for each in found)
    return True if sure else None


def contradicted(pairs: Sequence[WindowPair], slowdown: float) -> bool:
    """Whether a cap is not to be kept, whatever its slowest signal shows: GPU counters contradict each other; or
    progress or an SLO is the signal, and every counter of some GPU shows more than `slowdown`, by more than counters
    are known to err.
    """
    if not (pairs[0].progress or pairs[0].served):
        return disagree(pairs)
    speed = slowest(pairs)
    if pairs[0].progress and (speed is None or speed.ratio < 1 - slowdown):
        return False  # progress itself is against it
    found = _columns(each.speed for each in pairs)
    return any(
        max((each.upper for each in gpu if each is not None), default=1.0) < 1 - slowdown - VETO
        for gpu in zip(found[::2], found[1::2], strict=True)
    )


def disagree(pairs: Sequence[WindowPair]) -> bool:
    """Whether the two signals of a GPU differ by more than DISAGREE and more than their error. A weak one does
    not count where it shows more.
    """
    weak = frozenset().union(*(each.weak for each in pairs))
    for member in range(0, len(pairs[0].speed), 2):
        both = [(each.speed[member], each.speed[member + 1]) for each in pairs]
        gaps = [dram - pipe for dram, pipe in both if dram is not None and pipe is not None]
        if len(gaps) < len(pairs):
            continue
        gap = estimate(gaps)
        if gap.mean - gap.quantile * gap.error > DISAGREE and member not in weak:
            return True
        if -gap.mean - gap.quantile * gap.error > DISAGREE and member + 1 not in weak:
            return True
    return False
