"""Adds up what one party does on one device until a window is over."""

from msgspec.structs import replace

from gpuwatch.rightsizing.model.usage import Window
from gpuwatch.rightsizing.usage.readings import Party, Reading
from gpuwatch.workloads.workload_key import Tenants

COVERED = 0.5
"""A figure that was known for less of what was seen says nothing of it."""

ENOUGH = 10
"""Samples of which the highest and the lowest twentieth mean something."""

MOST_PROGRAMS = 4

MEANS = ("busy", "sm", "dram", "pipe", "watts")
SPREADS = ("busy", "sm", "dram")


class Tally:
    """From unix time `begin` on. `held_since`: when the party came, where that was seen."""

    def __init__(self, begin: float, first: Reading, held_since: float | None = None) -> None:
        self.begin, self.held_since, self.covered = begin, held_since, 0.0
        self.last = first
        self._facts = first.facts
        self._sums = {name: (0.0, 0.0) for name in (*MEANS, "pcie", "throttled")}
        self._values: dict[str, list[float]] = {name: [] for name in SPREADS}
        self._memory: tuple[int, int] | None = None
        self._processes: int | None = None
        self._programs: dict[str, None] = {}

    def add(self, reading: Reading, seconds: float, throttled: float | None = None) -> None:
        """`reading` speaks for the last `seconds`. `throttled`: share of CPU periods in which its processes waited."""
        before, self.last = self.last, reading
        if not reading.seen:  # the GPU does not answer: who holds it is known, and no more
            return
        self.covered += seconds
        self._facts = reading.facts
        for name in MEANS:
            self._sum(name, getattr(reading, name), seconds)
        self._sum("pcie", _rate(before, reading, seconds), seconds)
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

    def window(self, party: Party, end: float, tenants: Tenants, node: str) -> Window:
        """All of it, up to unix time `end`."""
        facts, tenant = self._facts, party.tenant
        low, high = self._memory or (None, None)
        return Window(
            at=self.begin,
            span=end - self.begin,
            covered=min(self.covered, end - self.begin),
            key=tenants.key(tenant),
            pod=tenant.pod,
            gpu=party.gpu,
            node=node,
            device=party.device,
            index=facts.index,
            model=facts.model,
            profile=facts.profile,
            resource=facts.resource,
            replicas=facts.replicas,
            holders=facts.holders,
            held_since=self.held_since,
            said=tenants.said(tenant),
            autotune=tenants.autotune(tenant),
            processes=self._processes,
            programs=tuple(self._programs)[:MOST_PROGRAMS],
            busy_high=self._edge("busy", 0.95),
            busy_low=self._edge("busy", 0.05),
            sm_high=self._edge("sm", 0.95),
            dram_high=self._edge("dram", 0.95),
            memory=high,
            memory_low=low,
            memory_total=facts.memory_total,
            power_limit=self.last.power_limit,
            cpu_throttled=self._mean("throttled"),
            **{name: self._mean(name) for name in (*MEANS, "pcie")},
        )

    def next(self, begin: float) -> "Tally":
        """The same party's next window."""
        return Tally(begin, replace(self.last, facts=self._facts), self.held_since)

    def _sum(self, name: str, value: float | None, seconds: float) -> None:
        if value is not None:
            total, known = self._sums[name]
            self._sums[name] = total + value * seconds, known + seconds

    def _mean(self, name: str) -> float | None:
        total, known = self._sums[name]
        return total / known if known and known >= COVERED * self.covered else None

    def _edge(self, name: str, share: float) -> float | None:
        """The value that so many samples are not above."""
        values = self._values[name]
        if len(values) < ENOUGH or self._mean(name) is None:
            return None
        return sorted(values)[round(share * (len(values) - 1))]


def _rate(before: Reading, reading: Reading, seconds: float) -> float | None:
    """Bytes a second; a counter that got smaller began anew with the driver."""
    if before.traffic is None or reading.traffic is None or reading.traffic < before.traffic or not seconds:
        return None
    return (reading.traffic - before.traffic) / seconds
