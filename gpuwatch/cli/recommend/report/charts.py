"""HTML and SVG elements whose text is escaped, and the charts made of them.

Names of pods never become tags: only `tag` and `joined` make Markup. Colours come from the page's style, so that they
follow light and dark.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import NamedTuple

from gpuwatch.model.text import visible_lines
from gpuwatch.model.work import DayPeak
from gpuwatch.rightsizing.findings.text import gib

VOID = frozenset({"meta", "br", "line", "rect", "circle"})
"""Elements without content."""


class Markup(str):
    """Text that is markup already; only `tag` and `joined` make it."""

    __slots__ = ()


def tag(name: str, /, *children: str | None, **attributes: str | float | None) -> Markup:
    """One element. `class_` is the attribute class, `stroke_width` stroke-width; what is None is left out."""
    given = ""
    for key, value in attributes.items():
        if value is not None:
            attribute = key if key == "viewBox" else key.rstrip("_").replace("_", "-")
            text = value if isinstance(value, str) else f"{round(value, 1):g}"  # to a tenth of a pixel
            given += f' {attribute}="{_escaped(text)}"'
    if name in VOID and not children:
        return Markup(f"<{name}{given}/>")
    return Markup(f"<{name}{given}>{joined(*children)}</{name}>")


def joined(*children: str | None) -> Markup:
    """One after the other; plain text is escaped."""
    return Markup("".join(child if isinstance(child, Markup) else _escaped(child) for child in children if child))


DAY = 86400


def _escaped(text: str) -> str:
    return escape(visible_lines(text))


class Bar(NamedTuple):
    """One of `bars`: its length, and the words at its ends."""

    label: str
    value: float
    text: str


class MemoryMark(NamedTuple):
    """A size to hold the peaks against; `kind` is the class of its line."""

    kind: str
    label: str
    bytes: int


def bars(title: str, rows: Sequence[Bar]) -> Markup:
    """Lying bars, the longest to the right end of the room."""
    left, right, pitch = 184.0, 474.0, 27.0
    longest = max(row.value for row in rows)
    parts = []
    for number, row in enumerate(rows):
        y = number * pitch
        width = max((right - left) * row.value / longest, 1.0)
        parts += [
            tag("text", cut(row.label, 23), x=left - 8, y=y + 17, class_="label end"),
            tag("rect", x=left, y=y + 4, width=width, height=pitch - 9, rx=2, class_="bar"),
            tag("text", row.text, x=left + width + 7, y=y + 17, class_="value"),
        ]
    return _svg(title, 560, len(rows) * pitch + 4, *parts)


def memory(peaks: Sequence[DayPeak], marks: Sequence[MemoryMark]) -> Markup:
    """The highest memory of each day, and the sizes to hold it against."""
    left, right, top, bottom = 2.0, 290.0, 18.0, 132.0
    highest = max(*(peak.bytes for peak in peaks), *(mark.bytes for mark in marks), 1)
    scale = (bottom - top) / highest
    first, last = peaks[0].day, peaks[-1].day
    pitch = (right - left) / max(last - first + 1, 8)
    parts = [
        tag(
            "rect",
            tag("title", f"{_date(peak.day)}: {gib(peak.bytes)}"),
            x=left + (peak.day - first) * pitch + 1.5,
            y=bottom - peak.bytes * scale,
            width=pitch - 3,
            height=peak.bytes * scale,
            rx=2,
            class_="bar",
        )
        for peak in peaks
    ]
    shown: list[MemoryMark] = []
    for mark in marks:
        if all(abs(mark.bytes - other.bytes) * scale >= 12 for other in shown):  # else their labels overlap
            shown.append(mark)
            y = bottom - mark.bytes * scale
            parts.append(tag("line", x1=left, x2=right, y1=y, y2=y, class_=f"mark {mark.kind}"))
            parts.append(tag("text", f"{gib(mark.bytes)} {mark.label}", x=right + 6, y=y + 4, class_="value"))
    is_long = last - first >= 3  # else the names of the days meet
    days = ((first, left, "label"), (last, left + (last - first + 1) * pitch, "label end"))[: 1 + is_long]
    parts += [
        tag("line", x1=left, x2=right, y1=bottom, y2=bottom, class_="axis"),
        *(tag("text", _date(day), x=x, y=bottom + 15, class_=kind) for day, x, kind in days),
    ]
    return _svg("Highest memory of each day", 430, bottom + 22, *parts)


def cut(text: str, width: int) -> str:
    """In the middle."""
    kept = (width - 1) // 2
    return text if len(text) <= width else f"{text[:kept]}…{text[-kept:]}"


def _date(day: int) -> str:
    return f"{datetime.fromtimestamp(day * DAY, UTC):%b %d}"


def _svg(title: str, width: float, height: float, *parts: Markup) -> Markup:
    return tag(
        "svg",
        tag("title", title),
        joined(*parts),
        viewBox=f"0 0 {width:g} {height:g}",
        width=width,
        height=height,
        role="img",
    )
