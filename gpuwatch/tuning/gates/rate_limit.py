"""How often a GPU may be tried at another cap. What is given back never counts, and never waits."""

from gpuwatch.model.snapshot import Record

HOUR = 3600.0


class Pace(Record, frozen=True, kw_only=True):
    """One GPU's actions of the last hour, monotonic seconds, oldest first."""

    acts: tuple[float, ...] = ()


def allowed(pace: Pace, now: float, limit: int) -> float | None:
    """Seconds to wait until less than `limit` actions are younger than an hour. None: one may be done now."""
    recent = _recent(pace, now)
    if limit <= 0:
        return HOUR
    # The age is the one `_recent` compares: rounded another way, the wait is 0 or longer than an hour.
    return None if len(recent) < limit else HOUR - (now - recent[-limit])


def acted(pace: Pace, now: float) -> Pace:
    """One more, now."""
    return Pace(acts=(*_recent(pace, now), now))


def _recent(pace: Pace, now: float) -> tuple[float, ...]:
    return tuple(at for at in pace.acts if now - at < HOUR)
