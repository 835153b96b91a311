"""Prints docs/harms.md: `python -m tests.harms.page`."""

from collections.abc import Iterator

from tests.harms.table import HARMS, Harm

HEAD = """\
# How an agent like this can do harm, and what gpuwatch has against it

An agent that taints nodes, evicts pods and changes GPU settings can do more damage than the faults it looks for. This
page is made from [tests/harms/table.py](../tests/harms/table.py), which names the functions that guard and the tests
that show it; `make test-slow` takes every guard out, one by one, and shows that its test fails.
"""


def markdown() -> str:
    """The whole page."""
    return "\n".join((HEAD, *(line for harm in HARMS for line in _section(harm))))


def _section(harm: Harm) -> Iterator[str]:
    yield f"## {harm.number}. {harm.harm.removesuffix('.')}"
    yield ""
    yield harm.guard
    yield ""


if __name__ == "__main__":
    print(markdown(), end="")
