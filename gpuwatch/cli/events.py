"""`gpuwatch events`: what happened lately, and `--watch`: what happens now."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.options import option, output
from gpuwatch.cli.session import Session, pass_session

if TYPE_CHECKING:
    from gpuwatch.cli.event_items import EventItem
    from gpuwatch.cli.source import Looking

HELP = """Show what happened lately: XIDs, SXids, lost GPUs.

\b
Examples:
  gpuwatch events
  gpuwatch events --watch -o json
"""

POLL_SECONDS = 0.5


@click.command(help=HELP, short_help="Show what happened lately: XIDs, SXids, lost GPUs.")
@output("table", "wide", "json", "yaml", "schema")
@option("-w", "--watch", is_flag=True, help="Go on with what happens; JSON becomes one event a line.")
@pass_session
def events(session: Session, output: str, watch: bool) -> None:
    """Print the list, oldest first."""
    from gpuwatch.cli.document import Envelope, schema, to_json, to_yaml
    from gpuwatch.cli.event_items import EventItem, event_items
    from gpuwatch.cli.source import looking

    if output == "schema":
        click.echo(schema("EventList", EventItem))
        return
    if watch:
        follow(session, output)
    with looking(session) as node:
        view, items = node.view(), event_items(node.events(), node.view())
    document = Envelope(kind="EventList", node=view.snapshot.node, items=tuple(items))
    if output in ("json", "yaml"):
        click.echo(to_json(document) if output == "json" else to_yaml(document))
    elif items:
        print_events(session, items, wide=output == "wide", header=True)
    else:
        session.terminal.hint("No events found.")


def follow(session: Session, output: str, keep: Callable[["EventItem"], bool] = lambda _: True) -> None:
    """Print what is there, then everything new, until interrupted."""
    from gpuwatch.cli.document import to_json, to_yaml
    from gpuwatch.cli.source import looking

    with looking(session) as node:
        seen: frozenset[EventItem] = frozenset()
        header = True
        while True:
            items, seen = _news(node, seen, keep)
            if output in ("table", "wide") and items:
                print_events(session, items, wide=output == "wide", header=header)
                header = False
            for item in items if output in ("json", "yaml") else ():
                click.echo(to_json(item, lines=True) if output == "json" else f"---\n{to_yaml(item)}")
            time.sleep(POLL_SECONDS)


def print_events(session: Session, items: Sequence["EventItem"], *, wide: bool, header: bool) -> None:
    """Rows of the event table."""
    from gpuwatch.cli.event_items import COLUMNS
    from gpuwatch.cli.table import table
    from gpuwatch.cli.words import Words

    terminal = session.terminal
    lines = table(COLUMNS, items, Words(terminal.glyphs, time.time()), width=terminal.width, wide=wide)
    terminal.show(*lines[0 if header else 1 :])


def _news(
    node: "Looking", seen: "frozenset[EventItem]", keep: Callable[["EventItem"], bool]
) -> "tuple[list[EventItem], frozenset[EventItem]]":
    """Events that were not there before, and all that are there now."""
    from gpuwatch.cli.event_items import event_items

    items: Iterable[EventItem] = event_items(node.events(), node.view())
    now = [item for item in items if keep(item)]
    return [item for item in now if item not in seen], frozenset(now)
