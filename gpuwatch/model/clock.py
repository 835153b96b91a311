"""Time as a value that the caller passes in, so that no rule or test reads the wall clock; and its RFC 3339 texts."""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one for the time of day, one to measure durations."""

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


FIRST, LAST = -30610224000.0, 253402300799.0
"""Unix times: the years 1000 and 9999, between which a date is written in four digits."""


def utc(at: float) -> datetime:
    """Unix time `at`. One that only a broken file or another program has, beyond all dates, is the nearest date."""
    return datetime.fromtimestamp(min(max(at, FIRST), LAST), UTC)


def rfc3339(at: float, *, micro: bool = False) -> str:
    """Unix time `at` in UTC and whole seconds (Kubernetes' Time), or with `micro` in microseconds (its MicroTime)."""
    return utc(at).strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")


def unix_time(text: str | None) -> float | None:
    """Seconds of an RFC 3339 time; without a zone it is UTC. None for a missing or malformed text."""
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    if moment is None:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
