"""Time that stands still while remediators work and jumps to the next moment at which one of them is due."""


class FleetClock:
    """A Clock for a whole cluster; both of its times move together."""

    def __init__(self, start: float) -> None:
        self._start = self._now = start

    def time(self) -> float:
        """Simulated unix time in seconds."""
        return self._now

    def monotonic(self) -> float:
        """Simulated seconds since the beginning."""
        return self._now - self._start

    def move_to(self, now: float) -> None:
        """Let time go on; never back."""
        self._now = max(self._now, now)
