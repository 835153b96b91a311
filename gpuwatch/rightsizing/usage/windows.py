"""From Views to UsageWindows: what each tenant of a GPU did there, minute by minute.

A View stands for the time since the one before. Time that was not observed becomes a window without any figures. A
window is never stretched over it, and missing figures never count as idleness.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import asdict, replace

from gpuwatch.model.view import View
from gpuwatch.rightsizing.model.usage import UsageWindow
from gpuwatch.rightsizing.usage.readings import TenantDevice, TenantReading, readings
from gpuwatch.workloads.workload_key import Tenants

COVERED = 0.5
"""A figure that was known for a smaller share of the observed time is left out."""

ENOUGH = 10
"""Samples that the 5th and the 95th percentile need, at least."""

MOST_PROGRAMS = 4

MEANS = ("busy", "sm", "dram", "pipe", "watts")
SPREADS = ("busy", "sm", "dram")


class WindowAccumulator:
    """One tenant on one device, from unix time `begin` on. `held_since`: when its hold began, where that is known."""

    def __init__(self, begin: float, first: TenantReading, held_since: float | None = None) -> None:
        self.begin, self.held_since, self.covered = begin, held_since, 0.0
        self.last = first
        self._facts = first.facts
        self._sums = {name: (0.0, 0.0) for name in (*MEANS, "pcie", "throttled")}
        self._values: dict[str, list[float]] = {name: [] for name in SPREADS}
        self._memory: tuple[int, int] | None = None
        self._processes: int | None = None
        self._programs: dict[str, None] = {}

    def add(self, reading: TenantReading, seconds: float, throttled: float | None = None) -> None:
        """`reading` stands for the last `seconds`. `throttled`: share of CPU periods in which its processes waited."""
        before, self.last = self.last, reading
        if not reading.sampled:  # the GPU did not answer: only its holder is known
            return
        self.covered += seconds
        self._facts = reading.facts
        for name in MEANS:
            self._sum(name, getattr(reading, name), seconds)
        sent, sent_before = reading.traffic, before.traffic
        if sent is not None and sent_before is not None and sent >= sent_before and seconds:
            self._sum("pcie", (sent - sent_before) / seconds, seconds)  # a counter that got smaller was reset
        self._sum("throttled", throttled, seconds)
        for name, values in self._values.items():
            if (value := getattr(reading, name)) is not None:
                values.append(value)
        if (memory := reading.memory) is not None:
            low, high = self._memory or (memory, memory)
            self._memory = min(low, memory), max(high, memory)
        if reading.processes is not None:
            self._processes = max(self._processes or 0, reading.processes)
        self._programs |= dict.fromkeys(reading.programs)

    def window(self, party: TenantDevice, end: float, tenants: Tenants, node: str) -> UsageWindow:
        """All of it, up to unix time `end`."""
        tenant = party.tenant
        low, high = self._memory or (None, None)
        figures: dict[str, Any] = {name: self._mean(name) for name in (*MEANS, "pcie")} | asdict(self._facts)
        return UsageWindow(
            at=self.begin,
            span=end - self.begin,
            covered=min(self.covered, end - self.begin),
            key=tenants.key(tenant),
            pod=tenant.pod,
            gpu=party.gpu,
            node=node,
            device=party.device,
            held_since=self.held_since,
            declared_class=tenants.declared_class(tenant),
            autotune=tenants.autotune(tenant),
            processes=self._processes,
            programs=tuple(self._programs)[:MOST_PROGRAMS],
            busy_high=self._edge("busy", 0.95),
            busy_low=self._edge("busy", 0.05),
            sm_high=self._edge("sm", 0.95),
            dram_high=self._edge("dram", 0.95),
            memory=high,
            memory_low=low,
            power_limit=self.last.power_limit,
            cpu_throttled=self._mean("throttled"),
            **figures,
        )

    def following(self, begin: float) -> "WindowAccumulator":
        """The next window of the same tenant."""
        return WindowAccumulator(begin, replace(self.last, facts=self._facts), self.held_since)

    def _sum(self, name: str, value: float | None, seconds: float) -> None:
        if value is not None:
            total, known = self._sums[name]
            self._sums[name] = total + value * seconds, known + seconds

    def _mean(self, name: str) -> float | None:
        total, known = self._sums[name]
        return total / known if known and known >= COVERED * self.covered else None

    def _edge(self, name: str, share: float) -> float | None:
        """The value that is at `share` of the sorted samples; None: too few, or no mean."""
        values = self._values[name]
        if len(values) < ENOUGH or self._mean(name) is None:
            return None
        return sorted(values)[round(share * (len(values) - 1))]


SPAN = 60.0
"""Seconds of a window."""

LONGEST = 90.0
"""Seconds that a View may stand for; a recording has one a minute while nothing happens."""

Throttled = Mapping[int, float]
"""Pid -> share of CPU periods in which its container was held back."""


class WindowCollector:
    """One node. `take` each View in order; `tenants` may be replaced at any time."""

    def __init__(self, tenants: Tenants | None = None) -> None:
        self.tenants = tenants or Tenants()
        self._at: float | None = None
        self._known: dict[str, bool] = {}
        self._open: dict[TenantDevice, WindowAccumulator] = {}
        self._node = ""

    def take(self, view: View, throttled: Throttled | None = None) -> tuple[UsageWindow, ...]:
        """The windows that are over now, mostly none."""
        at, before = view.snapshot.at, self._at
        # while the kubelet does not answer, neither idle holders are known, nor whether one has ended
        if any(source.name == "podresources" and source.up is False for source in view.snapshot.sources):
            return ()
        if at == before:
            return ()
        self._node = view.snapshot.node or ""
        found = readings(view)
        done = () if before is None else tuple(self._add(view, found, before, throttled or {}))
        fresh = before is not None and 0 < at - before <= self._longest_gap(view)
        for party, reading in found.items():
            if party not in self._open:
                came = at if fresh and self._known.get(party.device or party.gpu) else None
                self._open[party] = WindowAccumulator(at, reading, came)
        self._at = at
        self._known = {use.mig or use.gpu: use.allocated is not None for use in view.attribution.devices}
        return done

    def end(self) -> tuple[UsageWindow, ...]:
        """The windows that are not over yet; afterwards there are none."""
        at, self._at = self._at, None
        done = () if at is None else tuple(self._close(list(self._open), at))
        self._open = {}
        return done

    def _longest_gap(self, view: View) -> float:
        return max(LONGEST, 3 * view.snapshot.interval)

    def _add(
        self, view: View, found: Mapping[TenantDevice, TenantReading], before: float, throttled: Throttled
    ) -> Iterator[UsageWindow]:
        """Add the time from `before` to that of `view`."""
        at = view.snapshot.at
        if at < before:  # the clock was set back: these minutes come a second time
            yield from self._close(list(self._open), before)
            self._open = {}
            return
        yield from self._close([party for party in self._open if party not in found], before)
        if at - before > self._longest_gap(view):
            yield from self._end_windows(before)
            yield from self._end_windows(at)  # a tenant that is there before and after was there in between
            self._open = {
                party: WindowAccumulator(at, found[party], each.held_since) for party, each in self._open.items()
            }
            return
        for party, each in self._open.items():
            reading = found[party]
            waited = [throttled[pid] for pid in reading.pids if pid in throttled]
            each.add(reading, at - before, max(waited, default=None))
        if at // SPAN != before // SPAN:
            yield from self._end_windows(at)

    def _end_windows(self, at: float) -> Iterator[UsageWindow]:
        """The windows of all tenants end, and the next ones begin."""
        going_on = {party: each.following(at) for party, each in self._open.items()}
        yield from self._close(list(self._open), at)
        self._open = going_on

    def _close(self, parties: list[TenantDevice], at: float) -> Iterator[UsageWindow]:
        for party in parties:
            each = self._open.pop(party)
            if at > each.begin:
                yield each.window(party, at, self.tenants, self._node)
