"""Time as a value that is handed in, so that no rule and no test reads the wall clock by itself."""

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one for the time of day, one to measure with."""

    def time(self) -> float:
        """Unix time in seconds; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary point; never goes back."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def time(self) -> float:
        """Unix time in seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since an arbitrary point; never goes back."""
        return time.monotonic()
