"""`gpuwatch top`: the GPUs live; the loop around `top_state` and the terminal."""

import os
import sys
import time
from functools import partial
from socket import gethostname
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.console.options import option
from gpuwatch.cli.console.session import Session, pass_session

if TYPE_CHECKING:
    from gpuwatch.cli.look.source import Looking
    from gpuwatch.cli.look.top_state import History, State
    from gpuwatch.host.load import HostUse
    from gpuwatch.model.view import View

HELP = """Watch the GPUs live.

Keys: q quits, s and the arrows left and right choose the column to sort by, r turns the order round, f filters by
workload, health, name or index, Escape shows all again.

\b
Examples:
  gpuwatch top
  gpuwatch top --sort power --interval 1
  gpuwatch top --once
"""

SORTS = ("gpu", "util", "mem", "power", "temp")
"""The keys of top_state.SORTS, here so that help need not load it; a test compares."""


@click.command(help=HELP, short_help="Watch the GPUs live.")
@option("--interval", type=click.FloatRange(min=0.1), default=2.0, metavar="SECONDS", help="Default: 2.")
@option("--sort", type=click.Choice(SORTS), default="gpu", help="Column to begin with. Default: gpu.")
@option("--once", is_flag=True, help="Print once and end; so it is when the output is no terminal.")
@pass_session
def top(session: Session, interval: float, sort: str, once: bool) -> None:
    """Look, draw, wait for a key or for the interval, until q."""
    from gpuwatch.cli.look.source import looking
    from gpuwatch.cli.look.top_state import History, State

    state, history = State(sort=sort), History()
    with looking(session) as node:
        if once or not sys.stdout.isatty():
            from gpuwatch.cli.look.top_screen import screen

            terminal, view = session.terminal, node.view()
            host = _host(session, view)
            terminal.show(*screen(view, state, history, terminal.glyphs, width=terminal.width, host=host))
        else:
            _live(session, node, state, history, interval)


def _host(session: Session, view: "View") -> "HostUse | None":
    """The load of this machine, when it is this machine whose GPUs are shown."""
    if session.source not in (None, "nvml", "agent") or view.snapshot.node not in (
        os.environ.get("NODE_NAME"),
        gethostname(),
    ):
        return None
    from gpuwatch.host.load import host_use

    return host_use()


def _live(session: Session, node: "Looking", state: "State", history: "History", interval: float) -> None:
    """Until q. An agent that does not answer for a while is waited for."""
    from rich.live import Live
    from rich.text import Text

    from gpuwatch.cli.console.keys import typed
    from gpuwatch.cli.look.top_screen import screen
    from gpuwatch.cli.look.top_state import press
    from gpuwatch.model.errors import GpuwatchError

    console, glyphs = session.terminal.console(live=True), session.terminal.glyphs
    view, trouble = node.view(), ""
    history.remember(view)
    screen_of = partial(Live, console=console, screen=True, auto_refresh=False)
    with typed() as keys, screen_of(redirect_stdout=False, redirect_stderr=False) as live:
        due = time.monotonic() + interval
        while not state.done:
            width, height = console.size
            host = _host(session, view)
            lines = screen(view, state, history, glyphs, width=width, height=height, trouble=trouble, host=host)
            live.update(Text("\n").join(lines), refresh=True)
            key = keys.wait(due - time.monotonic())
            if key is not None:
                state = press(state, key)
            elif time.monotonic() >= due:
                due = time.monotonic() + interval
                try:
                    view, trouble = node.view(), ""
                    history.remember(view)
                except GpuwatchError as error:
                    trouble = str(error)
