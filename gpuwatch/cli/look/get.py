"""`gpuwatch get`: tables and documents of what the node has."""

import time
from typing import TYPE_CHECKING

import click

from gpuwatch.cli.console.options import gpus, option, output
from gpuwatch.cli.console.session import Session, pass_session

if TYPE_CHECKING:
    from gpuwatch.model.view import View

NAMES = ("gpus", "processes", "pods", "mig", "nvlinks", "findings", "xids")
"""The keys of RESOURCES, here so that help need not load them; a test compares."""

HELP = """List gpus, processes, pods, mig, nvlinks, findings or xids.

\b
Examples:
  gpuwatch get gpus
  gpuwatch get pods -o json
  gpuwatch get processes --gpu 0,3 --watch
"""


@click.command(help=HELP, short_help="List gpus, processes, pods, mig, nvlinks, findings or xids.")
@click.argument("resource", type=click.Choice(NAMES), metavar="RESOURCE")
@output("table", "wide", "json", "yaml", "name", "schema")
@gpus
@option("-w", "--watch", is_flag=True, help="Print again at every interval; JSON becomes one document a line.")
@option("--interval", type=click.FloatRange(min=0.1), default=2.0, metavar="SECONDS", help="For --watch. Default: 2.")
@pass_session
def get(session: Session, resource: str, output: str, gpu: str | None, watch: bool, interval: float) -> None:
    """Look once or again and again."""
    from gpuwatch.cli.console.document import schema
    from gpuwatch.cli.look.resources import RESOURCES
    from gpuwatch.cli.look.source import looking

    row = RESOURCES[resource]
    if output == "schema":
        click.echo(schema(row.kind, row.item))
        return
    with looking(session) as node:
        _print(session, resource, node.view(), output, gpu, lines=watch)
        while watch:
            time.sleep(interval)
            if output == "yaml":
                click.echo("---")
            _print(session, resource, node.view(), output, gpu, lines=watch)


def _print(session: Session, resource: str, view: "View", output: str, gpu: str | None, *, lines: bool) -> None:
    from gpuwatch.cli.console.document import Envelope, to_json, to_yaml
    from gpuwatch.cli.console.selection import chosen
    from gpuwatch.cli.console.table import table
    from gpuwatch.cli.console.words import Words, utc
    from gpuwatch.cli.look.resources import RESOURCES

    row, wanted = RESOURCES[resource], chosen(view, gpu)
    items = tuple(item for item in row.items(view) if wanted is None or item.uuid in wanted)
    document = Envelope(kind=row.kind, node=view.snapshot.node, at=utc(view.snapshot.at), items=items)
    if output == "json":
        click.echo(to_json(document, lines=lines))
    elif output == "yaml":
        click.echo(to_yaml(document))
    elif output == "name":
        click.echo("\n".join(dict.fromkeys(row.name(item) for item in items)), nl=bool(items))
    elif items:
        terminal = session.terminal
        words = Words(terminal.glyphs, view.snapshot.at)
        terminal.show(*table(row.columns, items, words, width=terminal.width, wide=output == "wide"))
    else:
        session.terminal.hint(f"No {row.plural or resource} found.")
