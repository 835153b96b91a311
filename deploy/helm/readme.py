"""The table of values in the chart's README.md."""

import json
from collections.abc import Iterable

from deploy.helm.values import Value

BEGIN, END = "<!-- values: made by `make generate` -->\n", "<!-- end of values -->\n"


def with_table(text: str, values: Iterable[Value]) -> str:
    """The page with the table as it should be."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return "".join((before, BEGIN, table(values), END, after))


def table(values: Iterable[Value]) -> str:
    """A row for each value that can be set; groups have none."""
    rows = [(f"`{each.name}`", f"`{_cell(each)}`", each.description.replace("|", r"\|")) for each in _settable(values)]
    return "".join(f"| {' | '.join(row)} |\n" for row in [("value", "default", "what"), ("---",) * 3, *rows])


def _settable(values: Iterable[Value]) -> Iterable[Value]:
    every = list(values)
    groups = {each.path[:-1] for each in every}
    return (each for each in every if each.path not in groups)


def _cell(value: Value) -> str:
    return json.dumps(value.default)
