"""How many GPUs of a namespace are at work at a time, by bins of five minutes: what a quota should allow.

Windows come in order of time, so that a bin is complete soon after it is over. A longer window counts into each bin
that it covers. Slots of shared GPUs count as a quota counts them: each one.
"""

from collections import defaultdict
from collections.abc import Mapping

import msgspec

from gpuwatch.rightsizing.model.usage import NamespaceUsage, UsageWindow
from gpuwatch.rightsizing.usage.allocation import grace

BIN = 300
DAY = 86400
BINS_A_DAY = DAY // BIN
MAX_DAYS = 14

LATE_BINS = 1
"""A container that began shortly before the end of a window may be reported before the others."""

STEADY_SHARE = 0.95
"""Share of all bins in which at least the steady number of GPUs is at work."""

Bin = dict[str, tuple[int, bool]]
"""By slot (`POD/GPU/MIG INSTANCE`) at work, or possibly so: how many GPUs or shares of one, and whether it is known."""

Levels = dict[int, dict[int, int]]
"""By day and by GPUs at work: in how many bins."""


class NamespaceStats(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One namespace's GPUs of one resource, also in a checkpoint. `held`: by slot, how many and until when; `closed`:
    the first bin that is not counted yet.
    """

    namespace: str
    resource: str
    first: float
    last: float
    peaks: dict[int, int] = {}
    levels: Levels = {}
    bins: dict[int, Bin] = {}
    held: dict[str, tuple[int, float]] = {}
    closed: int = 0

    def add(self, window: UsageWindow, is_work: bool | None) -> None:
        """Add a window. One of which it is not known whether it worked counts as work, but not as steady load."""
        slot, end = f"{window.pod}/{window.gpu}/{window.device}", window.at + window.span
        self.last = max(self.last, end)
        self.held[slot] = window.replicas, end + grace(window)
        first = int(window.at // BIN)
        before = first - LATE_BINS
        if self.bins and next(iter(self.bins)) < before:  # these bins are complete: count them
            for number in [number for number in self.bins if number < before]:
                _count(number, self.bins.pop(number), self.peaks, self.levels)
            for by_day in (self.peaks, self.levels):
                while len(by_day) > MAX_DAYS:
                    del by_day[min(by_day)]
            self.closed = before
            self.held = {slot: held for slot, held in self.held.items() if held[1] >= before * BIN - DAY}
        for number in range(max(first, self.closed), -int(-end // BIN)):
            bin = self.bins.setdefault(number, {})
            if is_work or (is_work is None and slot not in bin):
                bin[slot] = window.replicas, is_work is True

    def use(self, now: float, observed: Mapping[int, int]) -> NamespaceUsage:
        """`observed`: by day, bins with any window: in those a namespace without windows did not work."""
        peaks, levels = dict(self.peaks), {day: dict(of_day) for day, of_day in self.levels.items()}
        for number, bin in self.bins.items():
            if number < now // BIN:
                _count(number, bin, peaks, levels)
        first = int(self.first // DAY)
        days = [day for day in sorted(observed) if observed[day] > 0 and first <= day <= self.last // DAY]
        return NamespaceUsage(
            namespace=self.namespace,
            resource=self.resource,
            held=sum(count for count, until in self.held.values() if until >= now),
            active=tuple(float(peaks.get(day, 0)) for day in days),
            days=(self.last - self.first) / DAY,
            steady=self._steady(levels, observed, days),
        )

    def clip(self, now: float) -> None:
        """The clock has been set back to `now`: nothing was later."""
        today, self.closed = int(now // DAY), min(self.closed, int(now // BIN))
        self.first, self.last = min(self.first, now), min(self.last, now)
        self.peaks = {day: most for day, most in self.peaks.items() if day <= today}
        self.levels = {day: levels for day, levels in self.levels.items() if day <= today}
        self.bins = {number: bin for number, bin in self.bins.items() if number <= now // BIN}
        self.held = {slot: (count, min(until, now)) for slot, (count, until) in self.held.items()}

    def _steady(self, levels: Levels, observed: Mapping[int, int], days: list[int]) -> int:
        """The most GPUs that were at work in STEADY_SHARE of the observed bins since its first window."""
        counts = defaultdict[int, int](int)
        for day in days:
            of_day = levels.get(day, {})
            since = int((max(self.first, day * DAY) - day * DAY) // BIN)
            counts[0] += max(0, min(observed[day], BINS_A_DAY - since) - sum(of_day.values()))
            for level, number in of_day.items():
                counts[level] += number
        left = STEADY_SHARE * sum(counts.values())
        for level in sorted(counts, reverse=True):
            left -= counts[level]
            if left <= 0:
                return level
        return 0


def _count(number: int, bin: Bin, peaks: dict[int, int], levels: Levels) -> None:
    """Add a bin to its day."""
    day = number // BINS_A_DAY
    steady = sum(count for count, known in bin.values() if known)
    peaks[day] = max(sum(count for count, _ in bin.values()), peaks.get(day, 0))
    of_day = levels.setdefault(day, {})
    of_day[steady] = of_day.get(steady, 0) + 1
