"""What a single View cannot tell and dcgm-exporter does: rates of byte counters, and events in a sliding window."""

from collections import Counter, deque
from collections.abc import Iterator
from typing import NamedTuple

from gpuwatch.model.snapshot import Gpu
from gpuwatch.model.view import View

WINDOW_SECONDS = 300
"""dcgm-exporter's default window for XIDs and clock events."""

SLOT_SECONDS = 5
"""Events this close are kept as one, so that a short interval costs no more memory than a long one."""


class Rates(NamedTuple):
    """Bytes per second between the two newest samples of a GPU; None when a counter is unknown or was reset."""

    nvlink: float | None = None
    pcie_transmit: float | None = None
    pcie_receive: float | None = None


class _Totals(NamedTuple):
    at: float
    nvlink: int | None
    pcie_transmit: int | None
    pcie_receive: int | None


class _Slot:
    """What happened within SLOT_SECONDS; `last` is the time of the newest of it."""

    __slots__ = ("counts", "first", "last")

    def __init__(self, now: float) -> None:
        self.first = self.last = now
        self.counts: Counter[tuple[str, str]] = Counter()


class Window:
    """Counts events of the last WINDOW_SECONDS, to within SLOT_SECONDS, by (GPU uuid, kind)."""

    def __init__(self) -> None:
        self._slots: deque[_Slot] = deque()
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, now: float, uuid: str, kind: str, count: int = 1) -> None:
        """Note `count` events."""
        if not self._slots or now - self._slots[-1].first >= SLOT_SECONDS:
            self._slots.append(_Slot(now))
        slot = self._slots[-1]
        slot.last = now
        slot.counts[uuid, kind] += count
        self._counts[uuid, kind] += count

    def expire(self, now: float) -> None:
        """Forget what is too old."""
        while self._slots and now - self._slots[0].last > WINDOW_SECONDS:
            self._counts -= self._slots.popleft().counts  # drops what falls to 0

    def of(self, uuid: str) -> list[tuple[str | None, int]]:
        """(kind, count) of one GPU; a single (None, 0) when nothing happened, as dcgm-exporter writes it."""
        found: list[tuple[str | None, int]] = [(k, count) for (gpu, k), count in self._counts.items() if gpu == uuid]
        return sorted(found) or [(None, 0)]


class History:
    """Fed with every View; `now` is monotonic. Not thread-safe."""

    def __init__(self) -> None:
        self.rates: dict[str, Rates] = {}
        self.clock_events = Window()
        self.xids = Window()
        self._totals: dict[str, _Totals] = {}
        self._xid_counts: dict[tuple[str, int], int] = {}

    def observe(self, view: View, now: float) -> None:
        """Take note of a View."""
        self.clock_events.expire(now)
        self.xids.expire(now)
        fresh = {gpu.identity.uuid: gpu for gpu in view.snapshot.gpus}
        for gone in self._totals.keys() - fresh.keys():
            del self._totals[gone]
            self.rates.pop(gone, None)
        for uuid, gpu in fresh.items():
            self._sample(uuid, gpu, now)
        for row in view.xids:
            if row.uuid is not None:
                new = row.count - self._xid_counts.get((row.uuid, row.xid), 0)
                self._xid_counts[row.uuid, row.xid] = row.count
                if new > 0:
                    self.xids.add(now, row.uuid, str(row.xid), new)

    def _sample(self, uuid: str, gpu: Gpu, now: float) -> None:
        totals, previous = _totals(gpu), self._totals.get(uuid)
        if previous is not None and totals.at <= previous.at:
            return  # the sample of the View before
        self._totals[uuid] = totals
        if previous is not None:
            self.rates[uuid] = Rates(*_rates(previous, totals))
        for reason, active in gpu.clock_events.active.items():
            if active:
                self.clock_events.add(now, uuid, reason)


def _totals(gpu: Gpu) -> _Totals:
    traffic = [
        count for link in gpu.nvlinks for count in (link.transmit_bytes, link.receive_bytes) if count is not None
    ]
    return _Totals(gpu.at, sum(traffic) if traffic else None, gpu.pcie.transmit_bytes, gpu.pcie.receive_bytes)


def _rates(previous: _Totals, totals: _Totals) -> Iterator[float | None]:
    seconds = totals.at - previous.at
    for old, new in zip(previous[1:], totals[1:], strict=True):
        yield None if old is None or new is None or new < old else (new - old) / seconds
