"""How much memory a workload must be given, so that it never has less than it wants: memory cannot be throttled.

The highest daily peak, by how much a bad day was above a usual one, and the growth until the advice expires. A
percentile is of no use here: work that lacks memory for one second of a week fails in that second.
"""

from collections.abc import Sequence
from itertools import combinations
from statistics import median

from gpuwatch.model.snapshot import Record
from gpuwatch.model.work import DayPeak

DAY_SECONDS = 86400.0
LEAST_MARGIN = 512 * 2**20
FULL = 0.97
"""Of the device: a workload that used so much may need more."""

TREND_DAYS = 4
"""A trend needs so many days."""

UNKNOWN_GROWTH = 0.25
"""Of the peak, where there are too few days for a trend."""


class MemoryDemand(Record, frozen=True, kw_only=True):
    """Bytes. `needed` is all of it: `peak`, the larger of `margin` and `spread`, and `growth`.

    `spread`: by how much the worst day was above the median, less the trend; `growth`: until the advice expires;
    `per_day`: the trend; `sure`: there are enough days for it.
    """

    peak: int
    margin: int
    spread: int
    growth: int
    per_day: int
    sure: bool

    @property
    def needed(self) -> int:
        """What to give it."""
        return self.peak + max(self.margin, self.spread) + self.growth


def memory_demand(peaks: Sequence[DayPeak], margin: float, horizon: float) -> MemoryDemand | None:
    """Of one device. `peaks`: oldest first; `margin`: ratio; `horizon`: seconds ahead. None: no peak is known."""
    if not peaks:
        return None
    peak = max(each.bytes for each in peaks)
    seen = peaks[:-1] if len(peaks) > 1 and peaks[-1].bytes < peaks[-2].bytes else peaks
    is_sure = len(seen) >= TREND_DAYS
    slope, growth = 0.0, peak * UNKNOWN_GROWTH
    if is_sure:  # the median of the slopes of all pairs of days (Theil and Sen): one odd day does not bend it
        slopes = [(b.bytes - a.bytes) / (b.day - a.day) for a, b in combinations(seen, 2) if b.day > a.day]
        slope = max(0.0, median(slopes)) if slopes else 0.0
        growth = slope * horizon / DAY_SECONDS
    rests = [each.bytes - slope * (each.day - seen[0].day) for each in seen]  # above a line of this slope
    return MemoryDemand(
        peak=peak,
        margin=max(int(peak * margin), LEAST_MARGIN),
        spread=int(max(rests) - median(rests)),
        growth=int(growth),
        per_day=int(slope),
        sure=is_sure,
    )


def is_full(peak: int, total: int | None) -> bool:
    """Whether it may need more than the device has; True, too, where `total` is not known."""
    return total is None or peak >= FULL * total
