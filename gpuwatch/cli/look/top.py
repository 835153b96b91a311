"""`gpuwatch top`: the GPUs live, redrawn at every View and every key."""

import os
import sys
import time
from functools import partial
from socket import gethostname
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.console.options import option
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.cli.console.table import Column, table
from gpuwatch.cli.console.terminal import Glyphs
from gpuwatch.cli.console.words import Words
from gpuwatch.cli.look.columns import GPUS, SEVERITY_STYLES
from gpuwatch.cli.look.gather import finding_items, gpu_items
from gpuwatch.cli.look.source import OpenedSource, open_source
from gpuwatch.cli.look.status import NODE_LINE, node_line
from gpuwatch.cli.look.top_state import SORTS, TopState, UtilizationHistory, arranged, press, typed_keys
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.view import View

if TYPE_CHECKING:
    from rich.text import Text

    from gpuwatch.host.load import HostUse

HELP = """Watch the GPUs live.

Keys: q quits, s and the arrows left and right choose the column to sort by, r turns the order round, f filters by
workload, health, name or index, Escape shows all again.

\b
Examples:
  gpuwatch top
  gpuwatch top --sort power --interval 1
  gpuwatch top --once
"""


@click.command(help=HELP, short_help="Watch the GPUs live.")
@option("--interval", type=click.FloatRange(min=0.1), default=2.0, metavar="SECONDS", help="Default: 2.")
@option("--sort", type=click.Choice(list(SORTS)), default="gpu", help="Column to begin with. Default: gpu.")
@option("--once", is_flag=True, help="Print once and end; so it is when the output is no terminal.")
@pass_session
def top(session: Session, interval: float, sort: str, once: bool) -> None:
    """Draw a View, wait for a key or for the interval, until q."""
    state, history = TopState(sort=sort), UtilizationHistory()
    with open_source(session) as source:
        if once or not sys.stdout.isatty():
            terminal, view = session.terminal, source.view()
            host = _host(session, view)
            terminal.show(*screen(view, state, history, terminal.glyphs, width=terminal.width, host=host))
        else:
            _live(session, source, state, history, interval)


def _host(session: Session, view: View) -> "HostUse | None":
    """The load of this machine, where the GPUs shown are its own."""
    if session.source not in (None, "nvml", "agent") or view.snapshot.node not in (
        os.environ.get("NODE_NAME"),
        gethostname(),
    ):
        return None
    from gpuwatch.host.load import host_use

    return host_use()


def _live(
    session: Session, source: OpenedSource, state: TopState, history: UtilizationHistory, interval: float
) -> None:
    """Until q. An agent that does not answer for a while is waited for."""
    from rich.live import Live
    from rich.text import Text

    console, glyphs = session.terminal.console(live=True), session.terminal.glyphs
    view, error = source.view(), ""
    history.add(view)
    screen_of = partial(Live, console=console, screen=True, auto_refresh=False)
    with typed_keys() as keys, screen_of(redirect_stdout=False, redirect_stderr=False) as live:
        due = time.monotonic() + interval
        while not state.done:
            width, height = console.size
            host = _host(session, view)
            lines = screen(view, state, history, glyphs, width=width, height=height, error=error, host=host)
            live.update(Text("\n").join(lines), refresh=True)
            key = keys.wait(due - time.monotonic())
            if key is not None:
                state = press(state, key)
            elif time.monotonic() >= due:
                due = time.monotonic() + interval
                try:
                    view, error = source.view(), ""
                    history.add(view)
                except GpuwatchError as failure:
                    error = str(failure)


GIB = 1 << 30

LEFT_OUT = ("CLOCK", "XID")
"""Columns of `get gpus` that make room for the sparkline."""


def screen(
    view: View,
    state: TopState,
    history: UtilizationHistory,
    glyphs: Glyphs,
    *,
    width: int,
    height: int | None = None,
    error: str = "",
    host: "HostUse | None" = None,
) -> "list[Text]":
    """Node, GPUs with a sparkline each, findings and keys in at most `height` lines; without it all, for `--once`."""
    from rich.text import Text

    words = Words(glyphs, view.snapshot.at)
    if height is None:
        columns = [column for column in GPUS if column.header != "XID"]
    else:
        columns = [column for column in GPUS if column.header not in LEFT_OUT]
        columns.insert(3, Column("HISTORY", lambda g, _: history.spark(g, glyphs), drop=5, style=lambda _: "cyan"))
    rows = table(columns, arranged(state, gpu_items(view)), words, width=width)
    lines = [node_line(view, words, min(width, max(NODE_LINE, *(line.cell_len for line in rows))))]
    if host:
        used, total = host.memory_used / GIB, host.memory_total / GIB
        facts = f"CPU {host.cpu:.0%} of {host.processors}   memory {used:.0f}/{total:.0f} GiB   load {host.load:.1f}"
        lines.append(Text.assemble(("HOST ", "dim"), facts, end=""))
    findings = finding_items(view)
    lines += [Text("", end=""), *rows, *([Text("", end="")] if findings else [])]
    for finding in findings:  # one line each: on a live screen there is no room for advice
        mark, name = ("! ", SEVERITY_STYLES[finding.severity]), (finding.check, "bold")
        subject = "node" if finding.gpu is None else f"gpu {finding.gpu}"
        line = Text.assemble(mark, f"{subject:<7}", name, f"  {finding.message}", end="")
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    if height is None:
        return lines
    lines = lines[: height - 2]
    lines += [Text("", end="")] * (height - 1 - len(lines)) + [_footer(state, glyphs, error)]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _footer(state: TopState, glyphs: Glyphs, error: str) -> "Text":
    from rich.text import Text

    if error:
        return Text(error, "red", end="")
    if state.editing:
        return Text.assemble(
            ("filter: ", "bold"), state.filter, ("_", "blink"), ("   Enter keeps, Escape clears", "dim")
        )
    sorts = [(f" {name} ", "reverse" if name == state.sort else "dim") for name in SORTS]
    order = " reversed" if state.reverse else ""
    kept = f"   filter: {state.filter}" if state.filter else ""
    keys = f"   q quit {glyphs.dot} s sort {glyphs.dot} r reverse {glyphs.dot} f filter"
    return Text.assemble(("sort", "dim"), *sorts, (order, "dim"), (kept, "yellow"), (keys, "dim"), end="")
