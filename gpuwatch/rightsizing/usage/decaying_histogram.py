"""Histograms in which new values count more: the shape of a workload in a few hundred bytes, however long it runs.

As the VerticalPodAutoscaler's: a value weighs 2^(age / half-life), so that nothing has to be updated while time
passes. The owner of several histograms computes that weight once, and fades them all before it grows too large.
"""

import math
from array import array
from itertools import accumulate
from typing import NamedTuple

import msgspec

from gpuwatch.model.snapshot import Record
from gpuwatch.model.work import Distribution

FINEST = 10_000
"""The largest bucket of a saved histogram; smaller ones in proportion."""

NEGLIGIBLE = 1e-6
"""Of all weight: so small a share counts as faded."""

HIGH_SHARE = 0.1
"""Share of a long span, at most, that is taken to be at its high end: its 95th percentile or more."""

ROUNDING = 0.95
"""Bucket 0 is zero itself, and the lowest 5 % of a bucket belong to the one below: computed values are never exact."""


class Scale(NamedTuple):
    """Buckets: 0 is zero, then `linear` ones of width `unit`, then each ends at `growth` times the end of the last."""

    unit: float
    linear: int
    growth: float
    size: int

    def bucket(self, value: float) -> int:
        """The bucket of a value of 0 or more; the last bucket takes all above."""
        position = value / self.unit
        if position <= self.linear:
            return int(position + ROUNDING)
        steps = math.log(position / self.linear) / math.log(self.growth)
        return min(self.size - 1, self.linear + int(steps + ROUNDING))

    def end(self, index: int) -> float:
        """The highest value of a bucket."""
        return self.unit * (index if index <= self.linear else self.linear * self.growth ** (index - self.linear))


RATIO = Scale(unit=0.01, linear=100, growth=1.1, size=101)
SLOWDOWN = Scale(unit=0.01, linear=100, growth=1.1, size=140)
WATTS = Scale(unit=10.0, linear=100, growth=1.1, size=120)
BYTES_PER_SECOND = Scale(unit=1024.0, linear=1, growth=1.2, size=120)


class HistogramState(Record, frozen=True, kw_only=True):
    """A Histogram in a checkpoint. `buckets`: from zero on, in proportion to the largest."""

    weight: float
    moment: float
    buckets: tuple[int, ...] = ()


class Histogram:
    """Of weighted values of one scale. It takes memory up to its highest bucket only."""

    __slots__ = ("_buckets", "_linear", "_per_unit", "moment", "scale", "weight")

    def __init__(self, scale: Scale, state: HistogramState | None = None) -> None:
        self.scale, self._linear, self._per_unit = scale, scale.unit * scale.linear, 1 / scale.unit
        self.weight, self.moment = (state.weight, state.moment) if state else (0.0, 0.0)
        total = sum(state.buckets) if state else 0
        self._buckets = array(
            "d", (each * self.weight / total for each in state.buckets[: scale.size]) if state else ()
        )

    def add(self, value: float, weight: float) -> None:
        """Add a value. Negative and infinite values and NaN are left out."""
        if (
            0.0 <= value <= self._linear
        ):  # what `Scale.bucket` does, without the call: most of the ledger's time is here
            index = int(value * self._per_unit + ROUNDING)
        elif 0.0 < value < math.inf:
            index = self.scale.bucket(value)
        else:
            return
        try:
            self._buckets[index] += weight
        except IndexError:
            self._buckets.frombytes(bytes(8 * (index + 1 - len(self._buckets))))
            self._buckets[index] += weight
        self.weight += weight
        self.moment += value * weight

    def add_span(self, mean: float, high: float | None, weight: float) -> None:
        """Take a span of time of which mean and high end are known; the mean stays as it is."""
        if high is None or not 0.0 < mean < high < math.inf:
            self.add(mean, weight)
            return
        share = min(HIGH_SHARE, mean / high)
        self.add(high, weight * share)
        self.add(max(0.0, mean - share * high) / (1 - share), weight * (1 - share))  # rounding may end below zero

    def fade(self, factor: float) -> None:
        """Multiply the weight of all values by `factor`."""
        self.weight *= factor
        self.moment *= factor
        self._buckets = array("d", [each * factor for each in self._buckets])

    def quantile(self, share: float, zeros: float = 0.0) -> float:
        """The upper end of the bucket up to which `share` of the weight lies; 0 of an empty one.

        `zeros`: weight of zeros that were not added.
        """
        wanted = share * (sum(self._buckets) + zeros) - zeros
        return self.scale.end(sum(below < wanted for below in accumulate(self._buckets)))

    def distribution(self) -> Distribution | None:
        """None: nothing was added."""
        if not self.weight > 0:
            return None
        least = NEGLIGIBLE * self.weight
        highest = self.scale.end(max(index for index, weight in enumerate(self._buckets) if weight > least))
        mean, p50, p95 = self.moment / self.weight, self.quantile(0.5), self.quantile(0.95)
        return Distribution(mean=mean, p50=p50, p95=p95, max=max(mean, highest))

    def state(self) -> HistogramState:
        """For the checkpoint; weights are rounded to 0.01 % of the largest, and none but negligible ones are lost."""
        largest = max(self._buckets, default=0.0)
        scale = FINEST / largest if largest > 0 else 0.0
        buckets = (
            tuple([max(round(each * scale), each * scale > NEGLIGIBLE * FINEST) for each in self._buckets])
            if scale
            else ()
        )
        return HistogramState(weight=self.weight, moment=self.moment, buckets=buckets)


class Moments(msgspec.Struct, omit_defaults=True):
    """Weighted mean and spread (Welford)."""

    weight: float = 0.0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float, weight: float) -> None:
        """Add a value. Negative and infinite values and NaN are left out."""
        if not (weight > 0 and 0.0 <= value < math.inf):
            return
        self.weight += weight
        step = value - self.mean
        self.mean += step * weight / self.weight
        self.squares += max(0.0, weight * step * (value - self.mean))  # rounding may end below zero

    def fade(self, factor: float) -> None:
        """Multiply the weight of all values by `factor`."""
        self.weight *= factor
        self.squares *= factor

    @property
    def value(self) -> float | None:
        """The mean; None: nothing was added."""
        return self.mean if self.weight > 0 else None

    @property
    def spread(self) -> float | None:
        """Standard deviation over mean."""
        return math.sqrt(self.squares / self.weight) / self.mean if self.weight > 0 and self.mean > 0 else None
