"""`gpuwatch demo`: agent, remediator and tuner on a simulated node of a cluster, with a narrator."""

import signal
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.console.options import Number, option
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.cli.console.text import Text

if TYPE_CHECKING:
    from gpuwatch.cli.demo.stage import DemoStage
    from gpuwatch.cli.demo.story import Chapter

HELP = """Run a simulated node through a story of faults.

Needs neither a GPU nor Kubernetes. Try the commands it names in another terminal.

\b
Examples:
  gpuwatch demo
  gpuwatch demo --pace 30
"""


WIDTH = 96

POLL_SECONDS = 0.1

GOAL_SECONDS = 120.0
"""Seconds after its time that a chapter waits for its goal."""


@click.command(help=HELP, short_help="Run a simulated node through a story of faults.")
@option("--pace", type=Number(0.5), default=15.0, metavar="SECONDS", help="A chapter's. Default: 15.")
@option("--listen", default="127.0.0.1:9400", metavar="ADDR:PORT", help="Where to serve. Default: 127.0.0.1:9400.")
@option("--socket", metavar="PATH", help="Unix socket of the agent. Default: that of `gpuwatch agent`.")
@option("--end", is_flag=True, help="End after the last chapter instead of serving on.")
@pass_session
def demo(session: Session, pace: float, listen: str, socket: str | None, end: bool) -> None:
    """Play every chapter: the actions, their effects, and the cluster afterwards."""
    from gpuwatch.cli.demo.stage import DemoStage
    from gpuwatch.cli.demo.story import STORY

    session.start_logging(default="CRITICAL")  # faults are expected here
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the node's files are removed at its end
    with DemoStage(listen, socket or "", hold=max(1.0, pace / 2)) as stage:
        variables = " ".join(f"{name}={value}" for name, value in stage.variables.items())
        session.terminal.show(
            f"Metrics: http://{listen.rpartition(':')[0] or 'localhost'}:{stage.agent.port}/metrics",
            "For the commands below in another terminal, first:",
            Text.assemble("   ", (f"export {variables}", "cyan")),
            "",
        )
        for number, chapter in enumerate(STORY, 1):
            _play(session, stage, number, chapter, pace)
        while not end:
            _narrate(session, stage, lambda: False, 3600.0)


def _play(session: Session, stage: "DemoStage", number: int, chapter: "Chapter", pace: float) -> None:
    """Show what comes, then act and narrate until the time of the chapter is over and its goal is reached."""
    from gpuwatch.cli.console.words import Words
    from gpuwatch.cli.look.gather import finding_items
    from gpuwatch.cli.look.status import finding_lines, grouped, node_line
    from gpuwatch.model.finding import Severity

    terminal = session.terminal
    title = Text.assemble((f"{number}. {chapter.title}", "bold"))
    text = Text(chapter.text).wrap(terminal.console(), min(terminal.width, WIDTH))
    commands = []
    for command in chapter.commands:
        typed = f"gpuwatch {command.format(directory=stage.directory)}"
        commands.append(Text.assemble(("   try  ", "dim"), (typed, "cyan")))
    terminal.show(title, *text, *commands, Text(""))
    stage.act(chapter)
    begun = time.monotonic()
    _narrate(session, stage, lambda: False, pace / 3)
    _narrate(session, stage, lambda: stage.reached(chapter.goal), GOAL_SECONDS)
    _narrate(session, stage, lambda: False, max(1.0, pace - (time.monotonic() - begun)))
    if (view := stage.agent.view()) is None:
        return
    # the node as `status` shows it, what is wrong in short, and a line per Node of the cluster
    words, width = Words(terminal.glyphs, view.snapshot.at), min(terminal.width, WIDTH)
    wrong = [item for item in finding_items(view) if item.severity is not Severity.INFO]
    findings = [line for alike in grouped(wrong) for line in finding_lines(alike, words, width)[:1]]
    power = [Text(line)] if (line := stage.power()) else []
    terminal.show(Text(""), node_line(view, words, width), *power, *findings, *stage.nodes(width), Text(""))


def _narrate(session: Session, stage: "DemoStage", enough: Callable[[], bool], seconds: float) -> None:
    """Narrate for so many seconds, or until `enough`: `12:03:04  gpuwatch    taints gpu-node-1 …`, the rest hanging
    below.
    """
    from gpuwatch.cli.console.words import wrap

    end = time.monotonic() + seconds
    while True:
        done = enough() or time.monotonic() >= end
        for actor, text in stage.sentences():
            rows = wrap(text, min(session.terminal.width, WIDTH) - 22, break_on_hyphens=False)
            at = (f"{time.strftime('%H:%M:%S')}  ", "dim")
            head = Text.assemble(at, (f"{actor:<12}", STYLES.get(actor, "")), rows[0])
            session.terminal.show(head, *(Text(f"{'':22}{row}") for row in rows[1:]))
        if done:
            return
        time.sleep(POLL_SECONDS)


STYLES = {"gpuwatch": "bold cyan", "tuner": "bold green", "repairer": "green", "driver": "bold red", "a person": "bold"}
