"""How many GPUs of a namespace are at work at a time, by bins of five minutes: what a quota should allow.

Windows come in order of time, so that a bin is complete soon after it is over. A longer window counts into each bin
that it covers. Slots of shared GPUs count as a quota counts them: each one.
"""

from collections import defaultdict
from collections.abc import Mapping

from gpuwatch.model.snapshot import Record
from gpuwatch.rightsizing.model.usage import NamespaceUse, Window
from gpuwatch.rightsizing.usage.allocation import patience

BIN = 300
DAY = 86400
BINS_A_DAY = DAY // BIN
MAX_DAYS = 14

LATE_BINS = 1
"""A container that came shortly before the end of a window may be told of before the others."""

STEADY_SHARE = 0.95
"""Of all bins: in so many of them at least the steady number of GPUs is at work."""

Slot = tuple[str, str, str]
"""Pod, GPU, MIG instance."""

Bin = dict[Slot, tuple[int, bool]]
"""Who was at work, or may have been: how many slots of a GPU, and whether it was seen."""

Levels = dict[int, dict[int, int]]
"""By day and by GPUs at work: in how many bins."""


class SlotState(Record, frozen=True, kw_only=True):
    """One of a bin, or of those that are held. `known`: it was seen at work; else nobody could tell."""

    slot: Slot
    count: int
    known: bool = True
    until: float = 0.0


class NamespaceState(Record, frozen=True, kw_only=True):
    """One namespace's GPUs of one resource at rest. `closed`: the first bin that is not counted yet."""

    namespace: str
    resource: str
    first: float
    last: float
    peaks: dict[int, int] = {}
    levels: Levels = {}
    bins: dict[int, tuple[SlotState, ...]] = {}
    held: tuple[SlotState, ...] = ()
    closed: int = 0


class NamespaceBook:
    """Takes windows of one namespace and resource in order of time, gives a NamespaceUse."""

    def __init__(self, state: NamespaceState) -> None:
        """Go on from `state`."""
        self.namespace, self.resource = state.namespace, state.resource
        self._first, self._last, self._closed = state.first, state.last, state.closed
        self._peaks = dict(state.peaks)
        self._levels = {day: dict(levels) for day, levels in state.levels.items()}
        self._bins = {
            number: {each.slot: (each.count, each.known) for each in bin} for number, bin in state.bins.items()
        }
        self._held = {each.slot: (each.count, each.until) for each in state.held}

    def add(self, window: Window, is_work: bool | None) -> None:
        """Take one more. Who may have been at work counts as if he was, but is no steady load."""
        slot, end = (window.pod, window.gpu, window.device), window.at + window.span
        self._last = max(self._last, end)
        self._held[slot] = window.replicas, end + patience(window)
        first = int(window.at // BIN)
        if self._bins and next(iter(self._bins)) < first - LATE_BINS:
            self._close(first - LATE_BINS)
        for number in range(max(first, self._closed), -int(-end // BIN)):
            bin = self._bins.setdefault(number, {})
            if is_work or (is_work is None and slot not in bin):
                bin[slot] = window.replicas, is_work is True

    def use(self, now: float, seen: Mapping[int, int]) -> NamespaceUse:
        """`seen`: by day, in how many bins anybody was seen: in those a namespace without windows did not work."""
        peaks, levels = dict(self._peaks), {day: dict(of_day) for day, of_day in self._levels.items()}
        for number, bin in self._bins.items():
            if number < now // BIN:
                _count(number, bin, peaks, levels)
        first = int(self._first // DAY)
        days = [day for day in sorted(seen) if seen[day] > 0 and first <= day <= self._last // DAY]
        return NamespaceUse(
            namespace=self.namespace,
            resource=self.resource,
            held=sum(count for count, until in self._held.values() if until >= now),
            active=tuple(float(peaks.get(day, 0)) for day in days),
            days=(self._last - self._first) / DAY,
            steady=self._steady(levels, seen, days),
        )

    def clip(self, now: float) -> None:
        """The clock has been set back to `now`: nothing was later."""
        today, self._closed = int(now // DAY), min(self._closed, int(now // BIN))
        self._first, self._last = min(self._first, now), min(self._last, now)
        self._peaks = {day: most for day, most in self._peaks.items() if day <= today}
        self._levels = {day: levels for day, levels in self._levels.items() if day <= today}
        self._bins = {number: bin for number, bin in self._bins.items() if number <= now // BIN}
        self._held = {slot: (count, min(until, now)) for slot, (count, until) in self._held.items()}

    def is_over(self, now: float) -> bool:
        """Whether nothing of it matters any more."""
        return now - self._last > MAX_DAYS * DAY

    def state(self) -> NamespaceState:
        """To be saved."""
        return NamespaceState(
            namespace=self.namespace,
            resource=self.resource,
            first=self._first,
            last=self._last,
            closed=self._closed,
            peaks=dict(self._peaks),
            levels={day: dict(levels) for day, levels in self._levels.items()},
            bins={
                number: tuple(SlotState(slot=slot, count=count, known=known) for slot, (count, known) in bin.items())
                for number, bin in self._bins.items()
            },
            held=tuple(SlotState(slot=slot, count=count, until=until) for slot, (count, until) in self._held.items()),
        )

    def _close(self, before: int) -> None:
        """Count the bins that are complete."""
        for number in [number for number in self._bins if number < before]:
            _count(number, self._bins.pop(number), self._peaks, self._levels)
        for by_day in (self._peaks, self._levels):
            while len(by_day) > MAX_DAYS:
                del by_day[min(by_day)]
        self._closed = before
        self._held = {slot: held for slot, held in self._held.items() if held[1] >= before * BIN - DAY}

    def _steady(self, levels: Levels, seen: Mapping[int, int], days: list[int]) -> int:
        """The most GPUs that were at work in STEADY_SHARE of the bins that were seen since its first window."""
        counts = defaultdict[int, int](int)
        for day in days:
            of_day = levels.get(day, {})
            since = int((max(self._first, day * DAY) - day * DAY) // BIN)
            counts[0] += max(0, min(seen[day], BINS_A_DAY - since) - sum(of_day.values()))
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
    most = sum(count for count, _ in bin.values())
    steady = sum(count for count, known in bin.values() if known)
    peaks[day] = max(most, peaks.get(day, 0))
    of_day = levels.setdefault(day, {})
    of_day[steady] = of_day.get(steady, 0) + 1
