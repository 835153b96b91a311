"""Tables that fit: columns by priority, names shortened in the middle, one line a row."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Generic, Literal, NamedTuple, TypeVar

from gpuwatch.cli.console.words import Words

if TYPE_CHECKING:
    from rich.text import Text

T = TypeVar("T")

GAP = "  "
SHORTEST = 20
"""Characters that remain of a shortened cell, where its column says nothing else."""


class Column(NamedTuple, Generic[T]):
    """One column. `drop`: 0 stays, else the highest goes first when there is no room; `wide`: only with -o wide.

    `shorten` says where a long cell may be cut: names in the middle, sentences at the end; empty: nowhere.
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
) -> "list[Text]":
    """Header and rows as lines of at most `width` cells; with `wide` all columns at full length."""
    chosen = [column for column in columns if wide or not column.wide]
    cells = {id(column): [column.cell(row, words) for row in rows] for column in chosen}
    natural = {id(c): max(len(text) for text in (c.header, *cells[id(c)])) for c in chosen}
    if not wide:
        chosen = _fitting(chosen, natural, width)
    widths = natural if wide else _shortened(chosen, natural, width)
    header = _line([(c, c.header, "dim") for c in chosen], widths, words)
    return [
        header,
        *(
            _line([(c, cells[id(c)][number], c.style(row)) for c in chosen], widths, words)
            for number, row in enumerate(rows)
        ),
    ]


def _fitting(columns: list[Column[T]], natural: dict[int, int], width: int) -> list[Column[T]]:
    """Leave out columns, the most dispensable first, until the rest fits with every name at its shortest."""
    columns = list(columns)
    while sum(_least(c, natural) + len(GAP) for c in columns) - len(GAP) > width:
        worst = max(columns, key=lambda c: c.drop)
        if worst.drop == 0:
            break
        columns.remove(worst)
    return columns


def _least(column: Column[T], natural: dict[int, int]) -> int:
    return min(natural[id(column)], column.least) if column.shorten else natural[id(column)]


def _shortened(columns: list[Column[T]], natural: dict[int, int], width: int) -> dict[int, int]:
    """The widths to use: what is too much is taken from the longest of the columns that may be shortened."""
    widths = {id(c): natural[id(c)] for c in columns}
    excess = sum(widths.values()) + len(GAP) * (len(columns) - 1) - width
    elastic = [c for c in columns if c.shorten]
    for _ in range(max(excess, 0)):
        longest = max((c for c in elastic if widths[id(c)] > c.least), key=lambda c: widths[id(c)], default=None)
        if longest is None:
            break
        widths[id(longest)] -= 1
    return widths


def _line(parts: list[tuple[Column[T], str, str]], widths: dict[int, int], words: Words) -> "Text":
    from rich.text import Text

    line = Text(no_wrap=True, overflow="ellipsis", end="")
    for number, (column, text, style) in enumerate(parts):
        size = widths[id(column)]
        short = words.cut(text, size, column.shorten) if column.shorten else text
        line.append(GAP if number else "")
        line.append(short.rjust(size) if column.right else short.ljust(size), style)
    line.rstrip()
    return line
