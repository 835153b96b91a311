"""The live screen: the node, its GPUs with a sparkline each, the worst findings, the keys."""

from typing import TYPE_CHECKING

from gpuwatch.cli.console.table import Column, table
from gpuwatch.cli.console.terminal import Glyphs
from gpuwatch.cli.console.words import Words
from gpuwatch.cli.look.columns import GPUS
from gpuwatch.cli.look.gather import finding_items, gpu_items
from gpuwatch.cli.look.items import FindingItem, GpuItem
from gpuwatch.cli.look.screen import NODE_LINE, node_line
from gpuwatch.cli.look.top_state import SORTS, History, State, arranged
from gpuwatch.model.view import View

if TYPE_CHECKING:
    from rich.text import Text

    from gpuwatch.host.load import HostUse

GIB = 1 << 30

LEFT_OUT = ("CLOCK", "XID")
"""Columns of `get gpus` that make room for the sparkline."""


def screen(
    view: View,
    state: State,
    history: History,
    glyphs: Glyphs,
    *,
    width: int,
    height: int | None = None,
    trouble: str = "",
    host: "HostUse | None" = None,
) -> "list[Text]":
    """Lines that fill at most `height`; without it all of them and no keys, for `--once`. `host`: of this machine."""
    from rich.text import Text

    words = Words(glyphs, view.snapshot.at)
    rows = table(_columns(history, glyphs, once=height is None), arranged(state, gpu_items(view)), words, width=width)
    lines = [
        node_line(view, words, min(width, max(NODE_LINE, *(line.cell_len for line in rows)))),
        *([_host_line(host)] if host else []),
        Text("", end=""),
        *rows,
    ]
    findings = [_finding(finding, words, width) for finding in finding_items(view)]
    lines += [Text("", end=""), *findings] if findings else []
    if height is None:
        return lines
    lines = lines[: height - 2]
    lines += [Text("", end="")] * (height - 1 - len(lines)) + [_footer(state, glyphs, trouble)]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _host_line(host: "HostUse") -> "Text":
    """The machine around the GPUs, in the manner of the node's line."""
    from rich.text import Text

    used, total = host.memory_used / GIB, host.memory_total / GIB
    facts = f"CPU {host.cpu:.0%} of {host.processors}   memory {used:.0f}/{total:.0f} GiB   load {host.load:.1f}"
    return Text.assemble(("HOST ", "dim"), facts, end="")


def _columns(history: History, glyphs: Glyphs, *, once: bool) -> list[Column[GpuItem]]:
    if once:
        return [column for column in GPUS if column.header != "XID"]
    columns = [column for column in GPUS if column.header not in LEFT_OUT]
    spark: Column[GpuItem] = Column("HISTORY", lambda g, _: history.spark(g, glyphs), drop=5, style=lambda _: "cyan")
    columns.insert(3, spark)
    return columns


def _finding(finding: FindingItem, words: Words, width: int) -> "Text":
    """One line: on a live screen there is no room for advice."""
    from rich.text import Text

    from gpuwatch.cli.look.columns import SEVERITY_STYLES

    who = "node" if finding.gpu is None else f"gpu {finding.gpu}"
    line = Text.assemble(
        ("! ", SEVERITY_STYLES[finding.severity]), f"{who:<7}", (finding.check, "bold"), f"  {finding.message}", end=""
    )
    line.truncate(width, overflow="ellipsis")
    return line


def _footer(state: State, glyphs: Glyphs, trouble: str) -> "Text":
    from rich.text import Text

    if trouble:
        return Text(trouble, "red", end="")
    if state.editing:
        return Text.assemble(
            ("filter: ", "bold"), state.filter, ("_", "blink"), ("   Enter keeps, Escape clears", "dim")
        )
    sorts = [(f" {name} ", "reverse" if name == state.sort else "dim") for name in SORTS]
    order = " reversed" if state.reverse else ""
    kept = f"   filter: {state.filter}" if state.filter else ""
    keys = f"   q quit {glyphs.dot} s sort {glyphs.dot} r reverse {glyphs.dot} f filter"
    return Text.assemble(("sort", "dim"), *sorts, (order, "dim"), (kept, "yellow"), (keys, "dim"), end="")
