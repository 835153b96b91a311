"""`gpuwatch demo`: an agent on a simulated node, and a story of faults told while they happen."""

import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.options import option
from gpuwatch.cli.session import Session, pass_session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from gpuwatch.cli.story import Chapter
    from gpuwatch.roles.agent import Agent
    from gpuwatch.sim.world import World

HELP = """Run a simulated node through a story of faults.

Needs no GPU. The agent of the node answers as a real one would: try the commands it names in another terminal.

\b
Examples:
  gpuwatch demo
  gpuwatch demo --pace 30
"""


WIDTH = 96


@click.command(help=HELP, short_help="Run a simulated node through a story of faults.")
@option("--pace", type=click.FloatRange(min=0.5), default=15.0, metavar="SECONDS", help="A chapter's. Default: 15.")
@option("--listen", default="127.0.0.1:9400", metavar="ADDR:PORT", help="Where to serve. Default: 127.0.0.1:9400.")
@option("--socket", metavar="PATH", help="Unix socket of the agent. Default: that of `gpuwatch agent`.")
@option("--end", is_flag=True, help="End after the last chapter instead of serving on.")
@pass_session
def demo(session: Session, pace: float, listen: str, socket: str | None, end: bool) -> None:
    """Tell every chapter: what happens, what gpuwatch sees, where to look."""
    from gpuwatch.cli.story import STORY

    session.start_logging(default="ERROR")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the node's files go with it
    with _node(listen, socket or "") as (world, agent):
        prefix = "gpuwatch" + (f" --source agent:{socket}" if socket else "")
        click.echo(f"Metrics: http://{listen.rpartition(':')[0] or 'localhost'}:{agent.port}/metrics\n")
        seen = 0
        for number, chapter in enumerate(STORY, 1):
            _tell(session, number, chapter, prefix)
            for action in chapter.actions:
                world.inject(action)
            time.sleep(pace)
            seen = _show(session, agent, seen)
        while not end:
            time.sleep(3600)


def _node(listen: str, socket: str) -> "AbstractContextManager[tuple[World, Agent]]":
    from contextlib import contextmanager
    from tempfile import TemporaryDirectory

    from gpuwatch.config import AgentConfig, Config
    from gpuwatch.roles.agent import Agent
    from gpuwatch.sim.world import World

    @contextmanager
    def running() -> "Iterator[tuple[World, Agent]]":
        with TemporaryDirectory(prefix="gpuwatch-demo-") as directory, World("healthy", Path(directory)) as world:
            settings = AgentConfig(listen=listen, socket=socket, interval=1.0)
            config = Config(agent=settings, sources=world.sources, state_dir=f"{directory}/state")
            agent = Agent(config, world.backend)
            agent.start()
            try:
                yield world, agent
            finally:
                agent.stop()

    return running()


def _tell(session: Session, number: int, chapter: "Chapter", prefix: str) -> None:
    from rich.text import Text

    width = min(session.terminal.width, WIDTH)
    title = Text.assemble((f"{number}. {chapter.title}", "bold"), end="")
    words = Text(chapter.words).wrap(session.terminal.console(), width)
    commands = [Text.assemble(("   try  ", "dim"), (f"{prefix} {command}", "cyan"), end="") for command in chapter.look]
    session.terminal.show(title, *words, *commands)


def _show(session: Session, agent: "Agent", seen: int) -> int:
    """New events, the verdict and what is wrong. `seen`: how many events were told before; gives how many are now."""
    from rich.text import Text

    from gpuwatch.cli.event_items import COLUMNS, event_items
    from gpuwatch.cli.gather import finding_items
    from gpuwatch.cli.screen import finding_lines, grouped, node_line
    from gpuwatch.cli.table import table
    from gpuwatch.cli.words import Words

    view, terminal = agent.view(), session.terminal
    if view is None:
        return seen
    words, width = Words(terminal.glyphs, view.snapshot.at), min(terminal.width, WIDTH)
    events = event_items(agent.events(), view)
    news = table(COLUMNS, events[seen:], words, width=width)[1:] if events[seen:] else []
    findings = [line for alike in grouped(finding_items(view)) for line in finding_lines(alike, words, width)]
    blank = Text("", end="")
    terminal.show(blank, *news, node_line(view, words, width), *findings, blank)
    return len(events)
