"""HTML and SVG elements whose text is escaped, and the charts made of them.

Names of pods never become tags: only `tag` and `joined` make Markup. Colours come from the page's style, so that they
follow light and dark.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from typing import NamedTuple

from gpuwatch.model.work import DayPeak, Distribution
from gpuwatch.rightsizing.findings.text import gib, percent

VOID = frozenset({"meta", "br", "line", "rect", "circle"})
"""Elements without content."""


class Markup(str):
    """Text that is markup already; only `tag` and `joined` make it."""

    __slots__ = ()


def tag(name: str, /, *children: str | None, **attributes: str | float | None) -> Markup:
    """One element. `class_` is the attribute class, `stroke_width` stroke-width; what is None is left out."""
    given = "".join(
        f' {_attribute(key)}="{_safe(_number(value))}"' for key, value in attributes.items() if value is not None
    )
    if name in VOID and not children:
        return Markup(f"<{name}{given}/>")
    return Markup(f"<{name}{given}>{joined(*children)}</{name}>")


def joined(*children: str | None) -> Markup:
    """One after the other; plain text is escaped."""
    return Markup("".join(child if isinstance(child, Markup) else _safe(child) for child in children if child))


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-") if key != "viewBox" else key


def _number(value: str | float) -> str:
    """Coordinates to a tenth of a pixel."""
    return value if isinstance(value, str) else f"{round(value, 1):g}"


def _safe(text: str) -> str:
    return escape(text.replace("\0", ""))


DAY = 86400


class Bar(NamedTuple):
    """One of `bars`: its length, and the words at its ends."""

    label: str
    value: float
    text: str


class Mark(NamedTuple):
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


def memory(peaks: Sequence[DayPeak], marks: Sequence[Mark]) -> Markup:
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
    parts += [each for mark in _apart(marks, scale) for each in _mark(mark, left, right, bottom - mark.bytes * scale)]
    is_long = last - first >= 3  # else the names of the days meet
    days = ((first, left, "label"), (last, left + (last - first + 1) * pitch, "label end"))[: 1 + is_long]
    parts += [
        tag("line", x1=left, x2=right, y1=bottom, y2=bottom, class_="axis"),
        *(tag("text", _date(day), x=x, y=bottom + 15, class_=kind) for day, x, kind in days),
    ]
    return _svg("Highest memory of each day", 430, bottom + 22, *parts)


def spread(rows: Sequence[tuple[str, Distribution]]) -> Markup:
    """A track of 100 % for each: median to 95th percentile as a bar, the mean as a dot, the highest as a tick."""
    left, right, pitch = 92.0, 342.0, 30.0
    width = right - left
    parts = []
    for number, (label, each) in enumerate(rows):
        y = number * pitch + 6
        begin, end, highest = (left + width * min(value, 1.0) for value in (each.p50, each.p95, each.max))
        tip = f"mean {percent(each.mean)}, median {percent(each.p50)}, 95 % of the time below {percent(each.p95)}, "
        parts += [
            tag("text", label, x=left - 8, y=y + 13, class_="label end"),
            tag("rect", x=left, y=y + 3, width=width, height=12, rx=2, class_="track"),
            tag(
                "rect",
                tag("title", f"{tip}highest {percent(each.max)}"),
                x=begin,
                y=y + 3,
                width=max(end - begin, 2.0),
                height=12,
                rx=2,
                class_="bar",
            ),
            tag("line", x1=highest, x2=highest, y1=y, y2=y + 18, class_="tick"),
            tag("circle", cx=left + width * min(each.mean, 1.0), cy=y + 9, r=3.5, class_="dot"),
            tag("text", f"p95 {percent(each.p95)}", x=right + 9, y=y + 13, class_="value"),
        ]
    bottom = len(rows) * pitch + 4
    ends = (("0 %", left, "label"), ("50 %", left + width / 2, "label middle"), ("100 %", right, "label end"))
    parts += [tag("text", text, x=x, y=bottom + 12, class_=kind) for text, x, kind in ends]
    return _svg("How busy it was", 430, bottom + 18, *parts)


def cut(text: str, width: int) -> str:
    """In the middle."""
    kept = (width - 1) // 2
    return text if len(text) <= width else f"{text[:kept]}…{text[-kept:]}"


def _apart(marks: Sequence[Mark], scale: float) -> Iterator[Mark]:
    """Without those whose words would stand on those of an earlier one."""
    shown: list[Mark] = []
    for mark in marks:
        if all(abs(mark.bytes - other.bytes) * scale >= 12 for other in shown):
            shown.append(mark)
    yield from shown


def _mark(mark: Mark, left: float, right: float, y: float) -> tuple[Markup, Markup]:
    return (
        tag("line", x1=left, x2=right, y1=y, y2=y, class_=f"mark {mark.kind}"),
        tag("text", f"{gib(mark.bytes)} {mark.label}", x=right + 6, y=y + 4, class_="value"),
    )


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
