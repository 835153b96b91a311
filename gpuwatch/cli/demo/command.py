"""`gpuwatch demo`: agent, remediator and tuner on a simulated node of a cluster, and a story told as it happens."""

import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.console.options import option
from gpuwatch.cli.console.session import Session, pass_session

if TYPE_CHECKING:
    from gpuwatch.cli.demo.stage import DemoStage
    from gpuwatch.cli.demo.story import Chapter

HELP = """Run a simulated node through a story of faults.

Needs neither a GPU nor Kubernetes. The node and the cluster answer as real ones would: try the commands it names in
another terminal.

\b
Examples:
  gpuwatch demo
  gpuwatch demo --pace 30
"""


WIDTH = 96

POLL_SECONDS = 0.1

PATIENCE = 60.0
"""Seconds after its time that a chapter waits for what it is about."""


@click.command(help=HELP, short_help="Run a simulated node through a story of faults.")
@option("--pace", type=click.FloatRange(min=0.5), default=15.0, metavar="SECONDS", help="A chapter's. Default: 15.")
@option("--listen", default="127.0.0.1:9400", metavar="ADDR:PORT", help="Where to serve. Default: 127.0.0.1:9400.")
@option("--socket", metavar="PATH", help="Unix socket of the agent. Default: that of `gpuwatch agent`.")
@option("--end", is_flag=True, help="End after the last chapter instead of serving on.")
@pass_session
def demo(session: Session, pace: float, listen: str, socket: str | None, end: bool) -> None:
    """Tell every chapter: what happens, who does it, how the cluster is afterwards, where to look."""
    from shlex import quote

    from gpuwatch.cli.demo.stage import DemoStage
    from gpuwatch.cli.demo.story import STORY

    session.start_logging(default="CRITICAL")  # faults are what it is about
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the node's files go with it
    with DemoStage(listen, socket or "", hold=max(1.0, pace / 2)) as stage:
        prefix = "gpuwatch" + (f" --source agent:{quote(socket)}" if socket else "")
        _introduce(session, stage, listen)
        for number, chapter in enumerate(STORY, 1):
            _title(session, number, chapter, prefix, stage)
            _play(session, stage, chapter, pace)
        while not end:
            _listen(session, stage, lambda: False, 3600.0)


def _introduce(session: Session, stage: "DemoStage", listen: str) -> None:
    from rich.text import Text

    variables = " ".join(f"{name}={value}" for name, value in stage.variables.items())
    session.terminal.show(
        f"Metrics: http://{listen.rpartition(':')[0] or 'localhost'}:{stage.port}/metrics",
        "For the commands below in another terminal, first:",
        Text.assemble("   ", (f"export {variables}", "cyan"), end=""),
        "",
    )


def _title(session: Session, number: int, chapter: "Chapter", prefix: str, stage: "DemoStage") -> None:
    from rich.text import Text

    terminal = session.terminal
    title = Text.assemble((f"{number}. {chapter.title}", "bold"), end="")
    words = Text(chapter.words).wrap(terminal.console(), min(terminal.width, WIDTH))
    commands = [
        Text.assemble(("   try  ", "dim"), (_command(command, prefix, stage), "cyan"), end="")
        for command in chapter.look
    ]
    terminal.show(title, *words, *commands, Text("", end=""))


def _command(text: str, prefix: str, stage: "DemoStage") -> str:
    """As it can be typed; `sim` needs no agent."""
    return f"{'gpuwatch' if text.startswith('sim ') else prefix} {text.format(directory=stage.directory)}"


def _play(session: Session, stage: "DemoStage", chapter: "Chapter", pace: float) -> None:
    """Let it happen and tell it; go on when its time is over and what it is about has come."""
    stage.act(chapter)
    begun = time.monotonic()
    _listen(session, stage, lambda: False, pace / 3)
    _listen(session, stage, lambda: stage.reached(chapter.goal), PATIENCE)
    _listen(session, stage, lambda: False, max(1.0, pace - (time.monotonic() - begun)))
    _picture(session, stage)


def _listen(session: Session, stage: "DemoStage", enough: Callable[[], bool], seconds: float) -> None:
    """Tell what happens for so long, or until it is enough."""
    end = time.monotonic() + seconds
    while True:
        done = enough() or time.monotonic() >= end
        for who, what in stage.news():
            _line(session, who, what)
        if done:
            return
        time.sleep(POLL_SECONDS)


def _line(session: Session, who: str, what: str) -> None:
    """`12:03:04  gpuwatch    taints gpu-node-1 …`, the rest hanging below."""
    import textwrap

    from rich.text import Text

    width = min(session.terminal.width, WIDTH)
    rows = textwrap.wrap(what, width - 22, break_on_hyphens=False)
    at = (f"{time.strftime('%H:%M:%S')}  ", "dim")
    head = Text.assemble(at, (f"{who:<12}", STYLES.get(who, "")), rows[0], end="")
    session.terminal.show(head, *(Text(f"{'':22}{row}", end="") for row in rows[1:]))


STYLES = {"gpuwatch": "bold cyan", "tuner": "bold green", "driver": "bold red", "a person": "bold"}


def _picture(session: Session, stage: "DemoStage") -> None:
    """The node as `status` shows it, what is wrong in short, and a line per Node of the cluster."""
    from rich.text import Text

    from gpuwatch.cli.console.words import Words
    from gpuwatch.cli.look.gather import finding_items
    from gpuwatch.cli.look.status import finding_lines, grouped, node_line
    from gpuwatch.model.finding import Severity

    view, terminal = stage.view(), session.terminal
    blank = Text("", end="")
    if view is None:
        return
    words, width = Words(terminal.glyphs, view.snapshot.at), min(terminal.width, WIDTH)
    wrong = [item for item in finding_items(view) if item.severity is not Severity.INFO]
    findings = [line for alike in grouped(wrong) for line in finding_lines(alike, words, width)[:1]]
    power = [Text(line)] if (line := stage.power()) else []
    terminal.show(blank, node_line(view, words, width), *power, *findings, *stage.nodes(width), blank)
