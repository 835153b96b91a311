"""`gpuwatch top`: the GPUs live, redrawn at every View and every key."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from socket import gethostname
from typing import NamedTuple

import click

from gpuwatch.cli.console.options import Number, option
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.cli.console.table import Column, table
from gpuwatch.cli.console.terminal import Glyphs
from gpuwatch.cli.console.text import Text
from gpuwatch.cli.console.words import Words
from gpuwatch.cli.look.columns import GPUS, SEVERITY_STYLES
from gpuwatch.cli.look.gather import finding_items, gpu_items, process_items, process_workload
from gpuwatch.cli.look.items import GpuItem
from gpuwatch.cli.look.source import OpenedSource, open_source
from gpuwatch.cli.look.status import NODE_LINE, folded, gpu_ranges, node_line
from gpuwatch.cli.look.top_state import (
    HISTORY,
    MOST_HISTORY,
    PROCESS_SCREENS,
    PROCESS_SORTS,
    SORTS,
    ProcessRow,
    TopState,
    UtilizationHistory,
    arranged,
    arranged_processes,
    press,
    typed_keys,
)
from gpuwatch.cli.look.top_tree import TREE, tree_rows
from gpuwatch.host.load import HostUse, ProcessMeter, ProcessUse, host_use
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.view import View

HELP = """Watch the GPUs live.

p shows the processes on the GPUs, t the same as a tree: workload, parents, processes; s and the arrows left and right
choose the column to sort by, r reverses it; f filters by workload, user, type, health, name or number, Escape shows
all; ? lists the keys, q quits. No key touches a process.

\b
Examples:
  gpuwatch top
  gpuwatch top --sort power --interval 1
  gpuwatch top --processes
  gpuwatch top --tree --once
"""

KEYS_HELP = (
    ("p, Tab", "processes instead of GPUs, and back"),
    ("t", "tree of workloads, their parents and processes, and back"),
    ("s, left, right", "the column to sort by; the largest comes first"),
    ("r, up, down", "the order turned round"),
    ("f, /", "filter: a part of a pod, job, user, type, health, name, command or number"),
    ("Escape", "all again"),
    ("q", "quit"),
)


@click.command(help=HELP, short_help="Watch the GPUs live.")
@option("--interval", type=Number(0.1), default=2.0, metavar="SECONDS", help="Default: 2.")
@option("--sort", type=click.Choice(list(SORTS)), default="gpu", help="Column to begin with. Default: gpu.")
@option("--processes", is_flag=True, help="Begin with the processes on the GPUs.")
@option("--tree", is_flag=True, help="Begin with workloads and their processes as a tree.")
@option("--once", is_flag=True, help="Print once and end; so it is when the output is no terminal.")
@pass_session
def top(session: Session, interval: float, sort: str, processes: bool, tree: bool, once: bool) -> None:
    """Draw a View, wait for a key or for the interval, until q."""
    state = TopState(sort=sort, screen="tree" if tree else "processes" if processes else "gpus")
    history = UtilizationHistory()
    with open_source(session) as source:
        if once or not sys.stdout.isatty():
            terminal, view = session.terminal, source.view()
            host = _host(session, view, ProcessMeter(), state)
            terminal.show(*screen(view, state, history, terminal.glyphs, width=terminal.width, host=host))
        else:
            _live(session, source, state, history, interval, ProcessMeter())


class HostSample(NamedTuple):
    """The load of the machine, and what each process on its GPUs uses of it."""

    use: HostUse
    processes: Mapping[int, ProcessUse]


def _host(session: Session, view: View, meter: ProcessMeter, state: TopState) -> HostSample | None:
    """None: the GPUs shown are not this machine's."""
    if session.source not in (None, "nvml", "agent") or view.snapshot.node not in (
        os.environ.get("NODE_NAME"),
        gethostname(),
    ):
        return None
    pids = {process.pid for gpu in view.snapshot.gpus for process in gpu.processes or ()}
    return HostSample(host_use(), meter.read(pids, parents=state.screen == "tree"))


def _live(
    session: Session,
    source: OpenedSource,
    state: TopState,
    history: UtilizationHistory,
    interval: float,
    meter: ProcessMeter,
) -> None:
    """Redraw until q. When an agent does not answer, its error is shown until it answers again."""
    from rich.live import Live

    from gpuwatch.cli.console.rich_text import stacked

    console, glyphs = session.terminal.console(live=True), session.terminal.glyphs
    view, error = source.view(), ""
    history.add(view)
    host = _host(session, view, meter, state)
    screen_of = partial(Live, console=console, screen=True, auto_refresh=False)
    with typed_keys() as keys, screen_of(redirect_stdout=False, redirect_stderr=False) as live:
        due = time.monotonic() + interval
        while not state.done:
            width, height = console.size
            lines = screen(view, state, history, glyphs, width=width, height=height, error=error, host=host)
            live.update(stacked(lines), refresh=True)
            key = keys.wait(due - time.monotonic())
            if key is not None:
                before, state = state, press(state, key)
                if state.screen == "tree" != before.screen:
                    due = time.monotonic()  # only the tree needs the parents: read them now
            elif time.monotonic() >= due:
                due = time.monotonic() + interval
                try:
                    view, error = source.view(), ""
                    history.add(view)
                    host = _host(session, view, meter, state)
                except GpuwatchError as failure:
                    error = str(failure)


GIB = 1 << 30

LEFT_OUT = ("CLOCK", "XID")
"""Columns of `get gpus` that make room for the sparkline."""

LEAST_ROWS = 4
"""Below GPUs and findings, for a few processes."""

ROOM = 120
"""Columns that all but the sparkline take."""


def held_by(gpu: GpuItem) -> str:
    """Why its clocks are lower than they could be: NVML's clock event reasons, without `gpu_idle`."""
    active = (reason for reason, holds in gpu.clock_events.active.items() if holds and reason != "gpu_idle")
    return ", ".join(reason.replace("_", " ") for reason in active)


PROCESSES: tuple[Column[ProcessRow], ...] = (
    Column("GPU", lambda p, w: str(p.item.gpu), right=True),
    Column("PID", lambda p, w: str(p.item.pid), right=True),
    Column("USER", lambda p, w: w.text(p.item.user), drop=2),
    Column("TYPE", lambda p, w: p.item.type, drop=6),
    Column("UTIL", lambda p, w: w.ratio(p.item.utilization), right=True),
    Column("MEMORY", lambda p, w: w.size(p.item.memory), right=True),
    Column("CPU", lambda p, w: w.ratio(p.host.cpu if p.host else None), right=True, drop=3),
    Column("HOST MEM", lambda p, w: w.size(p.host.memory if p.host else None), right=True, drop=4),
    Column("TIME", lambda p, w: w.seconds(p.host.seconds if p.host else None), right=True, drop=5),
    Column("WORKLOAD", lambda p, w: w.text(process_workload(p.item)), shorten="middle"),
    Column("COMMAND", lambda p, w: w.text(p.host.command if p.host else p.item.name), shorten="end", drop=1),
)
OF_THE_HOST = ("CPU", "HOST MEM", "TIME")


def screen(
    view: View,
    state: TopState,
    history: UtilizationHistory,
    glyphs: Glyphs,
    *,
    width: int,
    height: int | None = None,
    error: str = "",
    host: HostSample | None = None,
) -> list[Text]:
    """Node, GPUs with a sparkline each or processes, findings and keys in at most `height` lines; without it all."""
    words = Words(glyphs, view.snapshot.at)
    if state.screen == "help":
        rows = [Text.assemble((f"{keys:<16}", "bold"), does) for keys, does in KEYS_HELP]
    elif state.screen in PROCESS_SCREENS:
        rows = _processes(view, state, words, width, host)
    else:
        gpus = arranged(state, gpu_items(view))
        rows = table(_gpu_columns(gpus, history, glyphs, width, height), gpus, words, width=width)
    lines = [node_line(view, words, min(width, max(NODE_LINE, *(line.cell_len for line in rows))))]
    if host:
        use = host.use
        used, total = use.memory_used / GIB, use.memory_total / GIB
        facts = f"CPU {use.cpu:.0%} of {use.processors}   memory {used:.0f}/{total:.0f} GiB   load {use.load:.1f}"
        lines.append(Text.assemble(("HOST ", "dim"), facts))
    findings = finding_items(view)
    lines += [Text(""), *rows, *([Text("")] if findings else [])]
    for alike, effects in folded(findings):  # one line each: on a live screen there is no room for advice
        mark, name = ("! ", SEVERITY_STYLES[alike[0].severity]), (alike[0].check, "bold")
        subject = gpu_ranges([one.gpu for one in alike if one.gpu is not None])
        more = f" (+{len(effects)} that follow)" if effects else ""
        line = Text.assemble(mark, f"{subject:<7}", name, f"{more}  {alike[0].message}")
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    if height is None:
        return lines
    if state.screen == "gpus" and height - 2 - len(lines) >= LEAST_ROWS:  # what is left shows processes, too
        lines += [Text(""), *_processes(view, state, words, width, host)]
    lines = lines[: height - 2]
    lines += [Text("")] * (height - 1 - len(lines)) + [_footer(state, glyphs, error)]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _processes(view: View, state: TopState, words: Words, width: int, host: HostSample | None) -> list[Text]:
    processes = host.processes if host else {}
    found = [ProcessRow(item, processes.get(item.pid)) for item in process_items(view)]
    chosen = arranged_processes(state, found)
    if state.screen == "tree":
        tree = [column for column in TREE if host or column.header not in OF_THE_HOST]
        return table(tree, [*tree_rows(chosen, processes, words.glyphs)], words, width=width)
    shown = [column for column in PROCESSES if host or column.header not in OF_THE_HOST]
    return table(shown, chosen, words, width=width)


def _gpu_columns(
    gpus: Sequence[GpuItem], history: UtilizationHistory, glyphs: Glyphs, width: int, height: int | None
) -> list[Column[GpuItem]]:
    """Those of `get gpus`, and why clocks are held down; on a live screen with a sparkline, which uses what is left."""
    left_out = ("XID",) if height is None else LEFT_OUT
    columns = [column for column in GPUS if column.header not in left_out]
    if height is not None:
        length = min(max(HISTORY, HISTORY + width - ROOM), MOST_HISTORY)
        spark = Column[GpuItem](
            "HISTORY", lambda g, _: history.spark(g, glyphs, length), drop=5, style=lambda _: "cyan"
        )
        columns.insert(3, spark)
    if any(map(held_by, gpus)):
        columns.insert(-1, Column("HELD BY", lambda g, w: w.text(held_by(g)), drop=6, style=lambda _: "yellow"))
    return columns


def _footer(state: TopState, glyphs: Glyphs, error: str) -> Text:
    if error:
        return Text(error, "red")
    if state.editing:
        return Text.assemble(
            ("filter: ", "bold"), state.filter, ("_", "blink"), ("   Enter keeps, Escape clears", "dim")
        )
    if state.screen == "help":
        return Text("any key goes back, q quits", "dim")
    of_processes = state.screen in PROCESS_SCREENS
    names, sort = (PROCESS_SORTS, state.process_sort) if of_processes else (SORTS, state.sort)
    sorts = [(f" {name} ", "reverse" if name == sort else "dim") for name in names]
    order = " reversed" if state.reverse else ""
    kept = f"   filter: {state.filter}" if state.filter else ""
    other, tree = ("GPUs" if state.screen == name else name for name in PROCESS_SCREENS)
    keys = f" {glyphs.dot} ".join(("   q quit", "? keys", f"p {other}", f"t {tree}", "s sort", "f filter"))
    return Text.assemble(("sort", "dim"), *sorts, (order, "dim"), (kept, "yellow"), (keys, "dim"))
