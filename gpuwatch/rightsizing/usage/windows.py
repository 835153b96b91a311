"""From Views to Windows: what everybody who is on a GPU did there, minute by minute.

A View speaks for the time since the one before. Time that nobody saw is told as such: a window without any figures. A
window is never stretched over it, and missing figures are never taken for idleness.
"""

from collections.abc import Iterator, Mapping

from gpuwatch.model.view import View
from gpuwatch.rightsizing.model.usage import Window
from gpuwatch.rightsizing.usage.readings import Party, Reading, readings
from gpuwatch.rightsizing.usage.tally import Tally
from gpuwatch.workloads.workload_key import Tenants

SPAN = 60.0
"""Seconds of a window."""

LONGEST = 90.0
"""Seconds that a View may speak for; a recording has one a minute while nothing happens."""

Throttled = Mapping[int, float]
"""Pid -> share of CPU periods in which its container was held back."""


class Windows:
    """One node. `take` each View in order; `tenants` may be exchanged at any time."""

    def __init__(self, tenants: Tenants | None = None, *, span: float = SPAN, longest: float = LONGEST) -> None:
        self.tenants = tenants or Tenants()
        self._span, self._longest = span, longest
        self._at: float | None = None
        self._known: dict[str, bool] = {}
        self._open: dict[Party, Tally] = {}
        self._node = ""

    def take(self, view: View, throttled: Throttled | None = None) -> tuple[Window, ...]:
        """The windows that are over now, mostly none."""
        at, before = view.snapshot.at, self._at
        if _is_blind(view) or at == before:
            return ()
        self._node = view.snapshot.node or ""
        found = readings(view)
        done = () if before is None else tuple(self._moved(view, found, before, throttled or {}))
        fresh = before is not None and 0 < at - before <= self._patience(view)
        for party, reading in found.items():
            if party not in self._open:
                came = at if fresh and self._known.get(party.device or party.gpu) else None
                self._open[party] = Tally(at, reading, came)
        self._at = at
        self._known = {use.mig or use.gpu: use.allocated is not None for use in view.attribution.devices}
        return done

    def end(self) -> tuple[Window, ...]:
        """What is not over yet, as far as it was seen; then all begins anew."""
        at, self._at = self._at, None
        done = () if at is None else tuple(self._close(list(self._open), at))
        self._open = {}
        return done

    def _patience(self, view: View) -> float:
        return max(self._longest, 3 * view.snapshot.interval)

    def _moved(
        self, view: View, found: Mapping[Party, Reading], before: float, throttled: Throttled
    ) -> Iterator[Window]:
        """Time went on from `before` to that of `view`."""
        at = view.snapshot.at
        if at < before:  # the clock was set back: these minutes come a second time
            yield from self._close(list(self._open), before)
            self._open = {}
            return
        yield from self._close([party for party in self._open if party not in found], before)
        if at - before > self._patience(view):
            yield from self._turn(before)
            yield from self._turn(at)  # whoever was there and is there now was there meanwhile, doing nobody knows what
            self._open = {party: Tally(at, found[party], tally.held_since) for party, tally in self._open.items()}
            return
        for party, tally in self._open.items():
            reading = found[party]
            waited = [throttled[pid] for pid in reading.pids if pid in throttled]
            tally.add(reading, at - before, max(waited, default=None))
        if at // self._span != before // self._span:
            yield from self._turn(at)

    def _turn(self, at: float) -> Iterator[Window]:
        """A window ends for everybody, and the next one begins."""
        going_on = {party: tally.next(at) for party, tally in self._open.items()}
        yield from self._close(list(self._open), at)
        self._open = going_on

    def _close(self, parties: list[Party], at: float) -> Iterator[Window]:
        for party in parties:
            tally = self._open.pop(party)
            if at > tally.begin:
                yield tally.window(party, at, self.tenants, self._node)


def _is_blind(view: View) -> bool:
    """Whether the kubelet does not answer: who holds a GPU and leaves it idle is not known then, nor that he left."""
    return any(source.name == "podresources" and source.up is False for source in view.snapshot.sources)
