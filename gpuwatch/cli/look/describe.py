"""`gpuwatch describe gpu ID`: everything about one GPU, and why the rest is not known."""

from typing import TYPE_CHECKING

import click

from gpuwatch.cli.console.options import output, state_dir
from gpuwatch.cli.console.session import Session, pass_session

if TYPE_CHECKING:
    from gpuwatch.model.setting import Setting

HELP = """Tell everything about one GPU, units spelled out.

ID is an index, a UUID or its beginning, or a PCI address. What a GPU does not support is said to be so.

\b
Examples:
  gpuwatch describe gpu 0
  gpuwatch describe gpu 0000:3b:00 -o json
"""


@click.command(help=HELP, short_help="Tell everything about one GPU, units spelled out.")
@click.argument("resource", type=click.Choice(["gpu"]), metavar="gpu")
@click.argument("id_", metavar="ID")
@output("table", "json", "yaml", "schema")
@state_dir
@pass_session
def describe(session: Session, resource: str, id_: str, output: str) -> None:
    """Look once and tell."""
    from gpuwatch.cli.console.document import Envelope, schema, to_json, to_yaml
    from gpuwatch.cli.console.selection import find_gpu
    from gpuwatch.cli.console.words import Words, utc
    from gpuwatch.cli.look.description import GpuDescription, description, text_lines
    from gpuwatch.cli.look.source import looking

    if output == "schema":
        click.echo(schema("GpuDescription", GpuDescription))
        return
    with looking(session) as node:
        view, events = node.view(), node.events()
    item = description(view, find_gpu(view, id_).uuid, events, _recorded(session))
    if output == "table":
        session.terminal.show(*text_lines(item, Words(session.terminal.glyphs, view.snapshot.at)))
        return
    document = Envelope(kind="GpuDescription", node=view.snapshot.node, at=utc(view.snapshot.at), items=(item,))
    click.echo(to_json(document) if output == "json" else to_yaml(document))


def _recorded(session: Session) -> "tuple[Setting, ...]":
    """What a tuner of this machine, or of the simulated one, has set; of GPUs elsewhere nothing is recorded here."""
    from pathlib import Path

    from gpuwatch.cli.look.source import config_of_source
    from gpuwatch.model.errors import GpuwatchError
    from gpuwatch.tuning.actuation.record import SettingsRecord

    place = config_of_source(session, session.config()).state_dir
    if not place or (session.source or "").startswith("capture:"):
        return ()
    try:
        return SettingsRecord(Path(place)).read().settings
    except GpuwatchError as error:
        session.terminal.hint(f"hint: what gpuwatch has set is not known; {error}")
        return ()
