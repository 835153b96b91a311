"""Whether a time of the week is inside a window, on the wall clock of the window's own time zone."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from gpuwatch.config import Window

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def inside(windows: Sequence[Window], now: float) -> Window | None:
    """The first window that unix time `now` is in. A window past midnight belongs to the day it starts on."""
    return next((window for window in windows if _is_inside(window, now)), None)


def _is_inside(window: Window, now: float) -> bool:
    local = datetime.fromtimestamp(now, UTC).astimezone(ZoneInfo(window.timezone))
    clock, today = f"{local:%H:%M}", DAYS[local.weekday()]
    yesterday = DAYS[(local - timedelta(days=1)).weekday()]
    if window.start <= window.end:
        return today in window.days and window.start <= clock < window.end
    return (today in window.days and clock >= window.start) or (yesterday in window.days and clock < window.end)


def tell(window: Window) -> str:
    """A window as people read it."""
    days = "" if set(window.days) == set(DAYS) else f"{','.join(window.days)} "
    return f"{days}{window.start}-{window.end} {window.timezone}"
