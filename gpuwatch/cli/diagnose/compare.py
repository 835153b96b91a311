"""`gpuwatch diagnose --compare` and `--write-expect`: this node beside another one, or as the baseline of others."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from gpuwatch.cli.console.document import API_VERSION, Envelope
from gpuwatch.cli.console.session import Session
from gpuwatch.cli.console.table import Column, table
from gpuwatch.cli.console.words import Words, utc
from gpuwatch.diagnose.baseline import comparison
from gpuwatch.diagnose.baseline.comparison import Difference, SavedDiagnosis
from gpuwatch.diagnose.baseline.measure import measured, text
from gpuwatch.diagnose.check import spans
from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.model.clock import unix_time
from gpuwatch.model.errors import GpuwatchError

SAME, DIFFERENT = 0, 3
"""Exit codes."""

KIND = "DiagnosisComparison"

_OF_A_GPU = re.compile(r"gpu\.(\d+)\.(.+)")


class Comparison(Envelope, frozen=True, kw_only=True):
    """`node` is here, `other` there; `items`: differences."""

    other: str | None = None


def compare(session: Session, there: SavedDiagnosis, document: str, output: str) -> int:
    """Print how this node differs from another diagnosis; `document`: the one of this node, as `-o json`.

    `output`: table | wide | json | yaml | name. Returns the exit code: 0 the same, 3 not.
    """
    here = comparison.document(document, "this node's diagnosis")
    differences = comparison.compare(here, there)
    terminal, is_same_node = session.terminal, here.node == there.node
    if output in ("json", "yaml"):
        made = unix_time(here.at)
        at = None if made is None else utc(made)
        whole = Comparison(
            apiVersion=API_VERSION, kind=KIND, node=here.node, at=at, items=differences, other=there.node
        )
        session.terminal.document(whole, output)
    elif output == "name":
        session.terminal.print(*(each.name for each in differences))
    elif differences:
        ours, theirs = ("now", "then") if is_same_node else (here.node or "here", there.node or "there")
        columns: list[Column[comparison.Difference]] = [
            Column("WHAT", lambda row, words: words.text(row.name)),
            Column(ours.upper(), lambda row, words: words.text(row.here), shorten="end"),
            Column(theirs.upper(), lambda row, words: words.text(row.there), shorten="end"),
            Column("CHECK", lambda row, words: words.text(row.title), wide=True),
        ]
        words = Words(terminal.glyphs, 0.0)
        terminal.show(*table(columns, folded(differences), words, width=terminal.width, wide=output == "wide"))
    else:
        other = "it was" if is_same_node else f"{there.node or 'the other'} is"
        terminal.hint(f"{here.node or 'this node'} is as {other}.")
    return DIFFERENT if differences else SAME


def folded(differences: Sequence[Difference]) -> list[Difference]:
    """GPUs that differ in the same way share a row: `gpu 0-7 vbios`."""
    rows: dict[tuple[Any, ...], Difference] = {}
    gpus: dict[tuple[Any, ...], list[int]] = {}
    for each in differences:
        match = _OF_A_GPU.fullmatch(each.name) if each.of == "inventory" else None
        key = (match[2] if match else each.name, each.of, each.here, each.there)
        rows.setdefault(key, each)
        gpus.setdefault(key, []).extend([int(match[1])] if match else [])
    return [replace(row, name=f"gpu {spans(gpus[key])} {key[0]}") if gpus[key] else row for key, row in rows.items()]


def write_expectation(session: Session, target: Path, facts: NodeFacts) -> None:
    """Make a baseline file from the properties of this node.

    Raises:
        GpuwatchError: there is no GPU to take it from, or the file cannot be written.
    """
    body = text(measured(facts), facts.node)
    try:
        target.write_text(body)
    except OSError as error:
        raise GpuwatchError(f"cannot write {target}", error.strerror or str(error), "name another file") from None
    session.terminal.hint(f"{target}: compare other nodes with it: gpuwatch diagnose --expect {target}")
