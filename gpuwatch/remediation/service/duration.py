"""For how long something has been true without a break, as far as was looked: time in which nobody looked is none."""

from gpuwatch.model.clock import Clock


class HoldClock:
    """One condition; by a clock that does not jump."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: float | None = None
        self._seen = 0.0

    def look(self, holds: bool, gap: float) -> float:
        """Say how it is now; seconds for which it has held. More than `gap` since the last look, and it begins anew."""
        now = self._clock.monotonic()
        if not holds:
            self._since = None
            return 0.0
        if self._since is None or now - self._seen > gap:
            self._since = now
        self._seen = now
        return now - self._since
