"""The kept outcomes: one row a mutant, known by its text, so that no moved line or module makes it another."""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.mutation.operators import Mutant

FILE = Path(__file__).with_name("baseline.tsv")
COLUMNS = ("group", "function", "operator", "nth", "before", "after", "outcome", "reason")
KILLED, SURVIVED = "killed", "survived"

Key = tuple[str, ...]


class Row(NamedTuple):
    """`reason`: why no test needs to notice a survivor; it begins with "equivalent" where none could."""

    key: Key
    outcome: str
    reason: str = ""


def is_equivalent(row: Row) -> bool:
    """Whether it does what the program does, by whoever gave the reason."""
    return row.outcome == SURVIVED and row.reason.startswith("equivalent")


def rate(rows: Iterable[Row]) -> float:
    """The share that is killed of those that are not equivalent."""
    outcomes = [row.outcome for row in rows if not is_equivalent(row)]
    return outcomes.count(KILLED) / len(outcomes) if outcomes else 1.0


def key(group: str, mutant: Mutant) -> Key:
    """The first columns of a row."""
    return (group, mutant.function, mutant.operator, str(mutant.nth), mutant.before, mutant.after)


def read(path: Path = FILE) -> dict[Key, Row]:
    """What is kept, by key."""
    with path.open(newline="") as file:
        head, *rows = csv.reader(file, dialect="excel-tab")
    if tuple(head) != COLUMNS:
        raise ValueError(f"{path}: the columns are {head}, not {COLUMNS}")
    return {tuple(row[:6]): Row(tuple(row[:6]), row[6], row[7]) for row in rows}


def write(rows: Iterable[Row], path: Path = FILE) -> None:
    """In an order in which a change of one function is a change of neighbouring lines."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, dialect="excel-tab", lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows((*row.key, row.outcome, row.reason) for row in sorted(rows))
