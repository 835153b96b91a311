"""Tables that fit: columns by priority, names shortened in the middle, one line a row."""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Literal, NamedTuple, TypeVar

from gpuwatch.cli.console.text import Text
from gpuwatch.cli.console.words import Words
from gpuwatch.model.text import visible

T = TypeVar("T")

GAP = "  "
LONGEST = 1000
"""Characters of a cell; a name may be a megabyte."""
SHORTEST = 20
"""Characters that remain of a shortened cell, unless its column has another minimum."""


class Column(NamedTuple, Generic[T]):
    """One column. `drop`: 0 stays, else the highest is left out first for lack of room; `wide`: only with -o wide.

    `shorten`: where a long cell may be cut: names in the middle, sentences at the end; empty: nowhere.
    """

    header: str
    cell: Callable[[T, Words], str]
    right: bool = False
    drop: int = 0
    wide: bool = False
    shorten: Literal["", "middle", "end"] = ""
    style: Callable[[T], str] = lambda _: ""
    least: int = SHORTEST


def table(
    columns: Iterable[Column[T]], rows: Sequence[T], words: Words, *, width: int, wide: bool = False
) -> list[Text]:
    """Header and rows as lines of at most `width` cells; with `wide` all columns at full length."""
    chosen = [column._replace(header=visible(column.header)) for column in columns if wide or not column.wide]
    cells = {
        id(column): [words.cut(visible(column.cell(row, words)), LONGEST, "middle") for row in rows]
        for column in chosen
    }
    widths = {id(c): max(len(text) for text in (c.header, *cells[id(c)])) for c in chosen}
    if not wide:
        # leave out columns, the most dispensable first, until the rest fits with every name at its shortest
        least = {id(c): min(widths[id(c)], c.least) if c.shorten else widths[id(c)] for c in chosen}
        while sum(least[id(c)] + len(GAP) for c in chosen) - len(GAP) > width:
            worst = max(chosen, key=lambda c: c.drop)
            if worst.drop == 0:
                break
            chosen.remove(worst)
        # what is still too much is taken from the longest of the columns that may be shortened
        excess = sum(widths[id(c)] + len(GAP) for c in chosen) - len(GAP) - width
        for _ in range(max(excess, 0)):
            elastic = (c for c in chosen if c.shorten and widths[id(c)] > c.least)
            longest = max(elastic, key=lambda c: widths[id(c)], default=None)
            if longest is None:
                break
            widths[id(longest)] -= 1
    header = _line([(c, c.header, "dim") for c in chosen], widths, words)
    lines = [
        _line([(c, cells[id(c)][number], c.style(row)) for c in chosen], widths, words)
        for number, row in enumerate(rows)
    ]
    return [header, *lines]


def _line(parts: list[tuple[Column[T], str, str]], widths: dict[int, int], words: Words) -> Text:
    line = Text(no_wrap=True, overflow="ellipsis")
    for number, (column, text, style) in enumerate(parts):
        size = widths[id(column)]
        short = words.cut(text, size, column.shorten) if column.shorten else text
        line.append(GAP if number else "")
        line.append(short.rjust(size) if column.right else short.ljust(size), style)
    line.rstrip()
    return line
