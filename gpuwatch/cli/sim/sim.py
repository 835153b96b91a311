"""`gpuwatch sim`: a node without a GPU, and what can happen to it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.cli.console.commands import Entry
from gpuwatch.cli.console.lazy import LazyGroup
from gpuwatch.cli.console.options import Number, option, output
from gpuwatch.cli.console.session import Session, pass_session

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

ENTRIES = (
    Entry("list", "List the scenarios.", "sim.sim:list_", "Commands"),
    Entry("run", "Run a simulated node until interrupted.", "sim.sim:run", "Commands"),
    Entry("inject", "Let something happen to a running simulated node.", "sim.sim:inject", "Commands"),
    Entry("fleet", "Let a fault strike many nodes at once, and watch the budget hold.", "sim.fleet:fleet", "Commands"),
)


@click.group(cls=LazyGroup, entries=ENTRIES)
def sim() -> None:
    """Run and disturb a simulated node."""


def directory_option(command: Any) -> Any:
    """`--dir`, also by the agent's name for it: where the node lives."""
    return option(
        "--dir",
        "--sim-dir",
        "directory",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Where the node lives. Default: below the runtime directory.",
    )(command)


def _scenarios(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[str | CompletionItem]":
    from gpuwatch.sim.node.scenario import names

    return [name for name in names() if name.startswith(incomplete)]


def _actions(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[str | CompletionItem]":
    from gpuwatch.sim.node.scenario import ACTIONS

    return [name for name in ACTIONS if name.startswith(incomplete)]


@click.command("list", short_help="List the scenarios.")
@output("table", "json", "yaml", "name")
@pass_session
def list_(session: Session, output: str) -> None:
    """List the scenarios."""
    from gpuwatch.cli.console.document import Envelope
    from gpuwatch.cli.console.table import Column, table
    from gpuwatch.cli.console.words import Words
    from gpuwatch.sim.node.scenario import scenarios

    rows = scenarios()
    terminal = session.terminal
    if output == "table":
        columns: tuple[Column[tuple[str, str]], ...] = (
            Column("SCENARIO", lambda row, _: row[0]),
            Column("WHAT HAPPENS", lambda row, _: row[1], shorten="end"),
        )
        terminal.show(*table(columns, rows, Words(terminal.glyphs, 0.0), width=terminal.width))
    elif output == "name":
        session.terminal.print(*(name for name, _ in rows))
    else:
        items = tuple({"name": name, "description": description} for name, description in rows)
        document = Envelope(kind="ScenarioList", items=items)
        session.terminal.document(document, output)


@click.command(short_help="Run a simulated node until interrupted.")
@click.argument("scenario", default="healthy", shell_complete=_scenarios)
@directory_option
@option("--speed", type=Number(0.01), default=1.0, metavar="FACTOR", help="Simulated per real second.")
@option("--seed", type=int, default=1, metavar="N", help="Same seed, same node. Default: 1.")
@pass_session
def run(session: Session, scenario: str, directory: Path | None, speed: float, seed: int) -> None:
    """Run a simulated node until interrupted. SCENARIO is a name of `sim list` or a file.

    \b
    Examples:
      gpuwatch sim run thermal --speed 10
      gpuwatch --source sim status        (in another terminal)
      gpuwatch --source sim agent
    """
    import signal
    from shlex import quote

    from gpuwatch.sim.directory import default_directory
    from gpuwatch.sim.world import World

    session.start_logging(default="INFO")
    place = directory or default_directory()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a shell starts a job with SIGINT ignored
    with World(scenario, place, seed=seed, speed=speed):
        session.terminal.hint(f"{scenario} runs in {place}")
        at, there = (f":{quote(str(place))}", f" --dir {quote(str(place))}") if directory else ("", "")
        session.terminal.hint(f"look with   gpuwatch --source sim{at} status")
        session.terminal.hint(f"disturb it  gpuwatch sim inject xid gpu=3 xid=79{there}")
        signal.pause()


@click.command(short_help="Let something happen to a running simulated node.")
@click.argument("action", default="xid", shell_complete=_actions)
@click.argument("values", nargs=-1, metavar="[KEY=VALUE]...")
@option("--gpu", metavar="INDEX", help="Short for gpu=INDEX.")
@option("--xid", metavar="CODE", help="Short for xid=CODE.")
@directory_option
@pass_session
def inject(
    session: Session, action: str, values: tuple[str, ...], gpu: str | None, xid: str | None, directory: Path | None
) -> None:
    """Let something happen to a running simulated node.

    ACTION is what a scenario's timeline calls `do` (xid if left out), the rest its keys; values are YAML.

    \b
    Examples:
      gpuwatch sim inject --xid 79 --gpu 3
      gpuwatch sim inject lose gpu=3
      gpuwatch sim inject thermal gpu=2 cooling=0.4
      gpuwatch sim inject recover gpu=all
    """
    from gpuwatch.config.yaml import decode
    from gpuwatch.model.errors import UsageError
    from gpuwatch.sim.directory import default_directory
    from gpuwatch.sim.directory import inject as inject_into

    shorts = {"gpu": gpu, "xid": xid}
    values = (*values, *(f"{key}={value}" for key, value in shorts.items() if value is not None))
    document: dict[str, Any] = {"do": action}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"{text!r} is no KEY=VALUE", "", "for example gpu=3")
        document[key] = decode(value, f"the value of {key}")
    inject_into(directory or default_directory(), document)
    session.terminal.hint(f"done: {action} {' '.join(values)}".rstrip())
