"""`gpuwatch events`: what happened, and `--watch`: what happens now."""

import time
from collections.abc import Sequence
from typing import NamedTuple

import click

from gpuwatch.cli.console.document import Envelope
from gpuwatch.cli.console.options import chosen_gpus, gpus, option, output, state_dir
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.cli.console.table import table
from gpuwatch.cli.console.words import Words, duration
from gpuwatch.cli.look.event_items import COLUMNS, EventItem, concerns, event_items
from gpuwatch.cli.look.source import open_source
from gpuwatch.model.errors import NoGpuStack
from gpuwatch.model.event import EVENT_KINDS, EVERYTHING, MAX_EVENTS, EventQuery, moment
from gpuwatch.model.view import Events, View
from gpuwatch.storage.store import stored_events

HELP = """Show what happened: XIDs, SXids, lost GPUs, findings, actions.

They come from the agent; without one from the kernel log and from what an agent has kept in --state-dir.

\b
Examples:
  gpuwatch events
  gpuwatch events --since 1h --kind finding --kind action
  gpuwatch events --watch -o json
"""

POLL_SECONDS = 0.5


class EventFilter(NamedTuple):
    """Which events are to be shown."""

    query: EventQuery = EVERYTHING
    gpus: str | None = None

    def items(self, events: Events, view: View | None) -> list[EventItem]:
        """The matching events, oldest first. Without a View a GPU is known by its UUID only."""
        items = event_items(events, view, self.query)
        if self.gpus is None:
            return items
        uuids = (chosen_gpus(view, self.gpus) if view else None) or self.gpus.split(",")
        return [item for item in items if concerns(item, uuids)]


def _since(_: click.Context, __: click.Parameter, value: str | None) -> float:
    """Unix time of `2h` ago or of a moment."""
    if value is None:
        return EVERYTHING.since
    seconds = duration(value)
    try:
        return moment(value) if seconds is None else time.time() - seconds
    except ValueError:
        raise click.BadParameter("write 30m, 2h, 7d, unix seconds or a time such as 2026-09-21T14:13:20Z") from None


@click.command(help=HELP, short_help="Show what happened: XIDs, SXids, lost GPUs, findings, actions.")
@output("table", "wide", "json", "yaml", schema=("EventList", "cli.look.event_items:EventItem"))
@option("-w", "--watch", is_flag=True, help="Continue with new events; JSON becomes one event a line.")
@option("--since", metavar="TIME", callback=_since, help="Not before: 30m, 2h, 7d ago, or a time.")
@option("--kind", type=click.Choice(EVENT_KINDS), multiple=True, help="Only these; repeatable.")
@option("--limit", type=click.IntRange(1, MAX_EVENTS), default=EVERYTHING.limit, help="The newest N. Default: 1000.")
@gpus
@state_dir
@pass_session
def events(
    session: Session, output: str, watch: bool, since: float, kind: tuple[str, ...], limit: int, gpu: str | None
) -> None:
    """Print the list, oldest first."""
    wanted = EventFilter(EventQuery(since, limit, kind or EVENT_KINDS), gpu)
    if watch:
        follow(session, output, wanted)
    node: str | None = None
    try:
        with open_source(session) as source:
            view = source.view()
            node, items = view.snapshot.node, wanted.items(source.events(wanted.query), view)
    except NoGpuStack as error:  # without a driver, show the events that an agent has stored
        stored = None if session.source else stored_events(session.config_or_defaults().state_dir, wanted.query)
        if stored is None:
            raise
        session.terminal.hint(f"{error}; these are the events that an agent has stored")
        items = wanted.items(stored, None)
    document = Envelope(kind="EventList", node=node, items=tuple(items))
    if output in ("json", "yaml"):
        session.terminal.document(document, output)
    elif items:
        print_events(session, items, wide=output == "wide", header=True)
    else:
        session.terminal.hint("No events found.")


def follow(session: Session, output: str, wanted: EventFilter = EventFilter()) -> None:  # noqa: B008 - it is immutable
    """Print the events so far, then every new one, until interrupted."""
    with open_source(session) as source:
        printed: frozenset[EventItem] = frozenset()
        header = True
        while True:
            present = wanted.items(source.events(wanted.query), source.view())
            items, printed = [item for item in present if item not in printed], frozenset(present)
            if output in ("table", "wide") and items:
                print_events(session, items, wide=output == "wide", header=header)
                header = False
            for item in items if output in ("json", "yaml") else ():
                session.terminal.page("---\n" if output == "yaml" else "")
                session.terminal.document(item, "yaml" if output == "yaml" else "ndjson")
            time.sleep(POLL_SECONDS)


def print_events(session: Session, items: Sequence["EventItem"], *, wide: bool, header: bool) -> None:
    """Rows of the event table."""
    terminal = session.terminal
    lines = table(COLUMNS, items, Words(terminal.glyphs, time.time()), width=terminal.width, wide=wide)
    terminal.show(*lines[0 if header else 1 :])
