"""Prints docs/harms.md: `python -m tests.harms.page`."""

from collections.abc import Iterator

from tests.harms.table import HARMS, Harm

HEAD = """\
# How an agent like this can do harm, and what gpuwatch has against it

An agent that taints nodes, evicts pods and turns knobs of GPUs can do more damage than the faults it looks for.
These are the ways in which such agents have done so, or could; for each, what gpuwatch does against it, where that is
in the code, and the test that shows it. `make test-slow` also takes every guard out, one by one, and shows that its
test then fails, `make test` those whose guard or test has changed (`tests/harms/test_proofs.py`).
Made from `tests/harms/table.py` by `make generate`.
"""


def markdown() -> str:
    """The whole page."""
    return "\n".join((HEAD, *(line for harm in HARMS for line in _section(harm))))


def _section(harm: Harm) -> Iterator[str]:
    yield f"## {harm.number}. {harm.harm.removesuffix('.')}"
    yield ""
    yield harm.guard
    yield ""
    yield f"- Guard: {', '.join(f'`{where}`' for where in harm.where)}"
    for test in dict.fromkeys(proof.test for proof in harm.proofs):
        path, _, name = test.partition("::")
        yield f"- Test: `{name}` in [{path}](../{path})"
    yield ""


if __name__ == "__main__":
    print(markdown(), end="")
