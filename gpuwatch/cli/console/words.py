"""Values as people read them: GiB, W, °C, %, `4m ago`. Machines get base units from `document`, never from here."""

import textwrap
from datetime import datetime
from typing import Any, Literal

from gpuwatch.cli.console.terminal import Glyphs
from gpuwatch.model import clock
from gpuwatch.model.text import visible

GIB = 1 << 30
_AGES = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


class Words:
    """Formats values; None becomes a dash. `now` is the unix time that ages count from."""

    def __init__(self, glyphs: Glyphs, now: float) -> None:
        self.glyphs, self._now = glyphs, now

    def text(self, value: object) -> str:
        """Anything, as it is."""
        return self.glyphs.dash if value is None or value == "" else str(value)

    def flag(self, value: bool | None) -> str:
        """Yes or no."""
        return self.glyphs.dash if value is None else ("yes" if value else "no")

    def ratio(self, value: float | None) -> str:
        """0..1 as percent."""
        return self.glyphs.dash if value is None else f"{value * 100:.0f}%"

    def percent(self, value: float | None) -> str:
        """A small share to a tenth of a percent: `3.1%`, `5%`."""
        return self.glyphs.dash if value is None else f"{round(value * 100, 1):g}%"

    def size(self, value: float | None) -> str:
        """Bytes in the unit that fits."""
        if value is None:
            return self.glyphs.dash
        factor, unit = next((pair for pair in _BYTES if value >= pair[0]), (1, "B"))
        scaled = value / factor
        return f"{scaled:.0f} {unit}" if scaled >= 100 or scaled == int(scaled) else f"{scaled:.1f} {unit}"

    def sizes(self, used: int | None, total: int | None) -> str:
        """Used of total, GiB."""
        if total is None:
            return self.size(used)
        part = self.glyphs.dash if used is None else _short(used / GIB)
        return f"{part}/{_short(total / GIB)} GiB"

    def rate(self, value: float | None) -> str:
        """A link's speed in GB/s (10^9 bytes), as NVLink's is stated and nvidia-smi prints it."""
        return self.glyphs.dash if value is None else f"{value / 1e9:g} GB/s"

    def watts(self, value: float | None) -> str:
        """Power."""
        return self.glyphs.dash if value is None else f"{value:.0f} W"

    def draw(self, power: float | None, limit: float | None) -> str:
        """Power and its limit."""
        if limit is None:
            return self.watts(power)
        return f"{self.glyphs.dash if power is None else f'{power:.0f}'}/{limit:.0f} W"

    def joules(self, value: float | None) -> str:
        """Energy: joules when small, else watt hours and more."""
        if value is None:
            return self.glyphs.dash
        hours = value / 3600
        if hours < 1:
            return f"{value:.0f} J"
        return f"{hours:.1f} Wh" if hours < 1000 else f"{hours / 1000:.1f} kWh"

    def watt_hours(self, value: float | None) -> str:
        """Energy in a column: one unit for small and large."""
        return self.glyphs.dash if value is None else f"{value / 3600:,.2f} Wh"

    def celsius(self, value: float | None) -> str:
        """Temperature."""
        return self.glyphs.dash if value is None else f"{value:.0f} {self.glyphs.degree}"

    def clock(self, value: float | None) -> str:
        """Frequency in MHz, as every tool of the field."""
        return self.glyphs.dash if value is None else f"{value / 1e6:.0f} MHz"

    def seconds(self, value: float | None) -> str:
        """A duration in its largest unit."""
        if value is None:
            return self.glyphs.dash
        factor, unit = next((pair for pair in _AGES if value >= pair[0]), (1, "s"))
        return f"{value / factor:.0f}{unit}"

    def ago(self, at: float | None) -> str:
        """How long since a unix time."""
        return self.glyphs.dash if at is None else f"{self.seconds(max(0.0, self._now - at))} ago"

    def age(self, at: datetime) -> float:
        """Seconds since then."""
        return self._now - at.timestamp()

    def clock_time(self, at: float | None) -> str:
        """A unix time in UTC, to the second."""
        return self.glyphs.dash if at is None else f"{utc(at):%Y-%m-%d %H:%M:%S}Z"

    def cut(self, text: str, width: int, where: Literal["middle", "end"]) -> str:
        """Shorten: in the middle where both ends matter, as those of a pod's name do, else at the end."""
        if len(text) <= width:
            return text
        kept = max(width - len(self.glyphs.ellipsis), 2)
        head, tail = (kept, 0) if where == "end" else ((kept + 1) // 2, kept // 2)
        return text[:head] + self.glyphs.ellipsis + text[len(text) - tail :]


def duration(text: str) -> float | None:
    """Seconds of `90s`, `30m`, `2h` or `7d`; None when it is none of these."""
    seconds = {unit: factor for factor, unit in _AGES}.get(text[-1:])
    number = text[:-1]
    return float(number) * seconds if seconds and number.replace(".", "", 1).isdecimal() else None


def utc(at: float) -> datetime:
    """A unix time, to the millisecond."""
    return clock.utc(round(at, 3))


def _short(value: float) -> str:
    return f"{value:.1f}" if 0.05 <= value < 10 and value != int(value) else f"{value:.0f}"


def wrap(text: str, width: int, **options: Any) -> list[str]:
    """Lines of a sentence, as textwrap makes them; a line break in it shows as an escape."""
    return textwrap.wrap(visible(text), width, **options)
