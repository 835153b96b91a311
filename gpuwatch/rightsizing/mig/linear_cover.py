"""How often to use each pattern so that all are covered at least cost, if a pattern could be used in part.

The linear relaxation of a cover by patterns. It is solved exactly, in fractions, by the simplex method on its dual
problem, which has a start for nothing (all prices 0). Bland's rule keeps it from going in circles.
"""

from collections.abc import Sequence
from fractions import Fraction

Row = list[Fraction]


def least_cover(patterns: Sequence[Sequence[int]], demand: Sequence[int]) -> list[Fraction]:
    """How often each pattern, the least in sum, so that every item has its demand; each item must be in some pattern.

    Dual: raise prices of items, as much as demand makes worth, while no pattern's contents cost more than 1.
    """
    items = len(demand)
    rows = [[*map(Fraction, pattern), Fraction(1)] for pattern in patterns]
    gain: Row = [*(Fraction(-each) for each in demand), Fraction(0)]
    columns = list(range(items))  # names of the columns: items first, then patterns
    names = list(range(items, items + len(patterns)))
    while True:
        entering = min((column for column in range(items) if gain[column] < 0), key=columns.__getitem__, default=None)
        if entering is None:
            break
        leaving = min(
            (row for row in range(len(rows)) if rows[row][entering] > 0),
            key=lambda row: (rows[row][-1] / rows[row][entering], names[row]),
        )
        _pivot(rows, gain, leaving, entering)
        columns[entering], names[leaving] = names[leaving], columns[entering]
    often = [Fraction(0)] * len(patterns)
    for column, name in enumerate(columns):
        if name >= items:
            often[name - items] = gain[column]
    return often


def _pivot(rows: list[Row], gain: Row, leaving: int, entering: int) -> None:
    pivot = rows[leaving]
    factor = 1 / pivot[entering]
    new = [factor if at == entering else value * factor for at, value in enumerate(pivot)]
    for row in (*(each for each in rows if each is not pivot), gain):
        share = row[entering]
        if share:
            row[:] = [-share * factor if at == entering else value - share * new[at] for at, value in enumerate(row)]
    pivot[:] = new
