"""`gpuwatch status`: the node on one screen, its health as exit code."""

from typing import TYPE_CHECKING

import click

from gpuwatch.cli.console.options import option, output
from gpuwatch.cli.console.session import Session, pass_session

if TYPE_CHECKING:
    from gpuwatch.model.finding import Health
    from gpuwatch.model.view import View

HELP = """Show the node on one screen: verdict, GPUs, findings.

The exit code is the verdict: 0 healthy, 3 degraded, 4 failed, 1 unknown, 5 no GPU stack.

\b
Examples:
  gpuwatch status
  gpuwatch status -o json
  gpuwatch status --nagios
"""

EXIT_CODES = {"healthy": 0, "degraded": 3, "failed": 4, "unknown": 1}
NAGIOS = {"healthy": (0, "OK"), "degraded": (1, "WARNING"), "failed": (2, "CRITICAL"), "unknown": (3, "UNKNOWN")}
NPD = {"healthy": 0, "degraded": 1, "failed": 1, "unknown": 2}
"""node-problem-detector's custom plugins: 0 OK, 1 not OK, 2 unknown."""


@click.command(help=HELP, short_help="Show the node on one screen: verdict, GPUs, findings.")
@output("table", "wide", "json", "yaml", "name", "schema")
@option("--nagios", is_flag=True, help="One line and exit code of a Nagios plugin.")
@option("--npd", is_flag=True, help="One line and exit code of a node-problem-detector plugin.")
@pass_session
@click.pass_context
def status(ctx: click.Context, session: Session, output: str, nagios: bool, npd: bool) -> None:
    """Look once and tell."""
    from gpuwatch.cli.look.screen import StatusDocument, status_document
    from gpuwatch.cli.look.source import one_view
    from gpuwatch.model.errors import UsageError

    if nagios and npd:
        raise UsageError("--nagios and --npd exclude each other", "", "choose one")
    if output == "schema":
        from gpuwatch.cli.console.document import schema
        from gpuwatch.cli.look.items import GpuItem

        click.echo(schema("Status", GpuItem, StatusDocument))
        return
    if nagios or npd:
        ctx.exit(_plugin(session, npd=npd))
    view = one_view(session)
    _print(session, status_document(view), view, output)
    ctx.exit(exit_code(view))


def exit_code(view: "View") -> int:
    """The verdict as the program's exit code."""
    if not view.snapshot.statuses:
        return 5
    return EXIT_CODES[view.judgement.node.value]


def _print(session: Session, document: object, view: "View", output: str) -> None:
    from gpuwatch.cli.console.document import to_json, to_yaml
    from gpuwatch.cli.look.screen import off_sources, status_lines

    terminal = session.terminal
    if output == "json":
        click.echo(to_json(document))
    elif output == "yaml":
        click.echo(to_yaml(document))
    elif output == "name":
        click.echo(f"node/{view.snapshot.node}")
    else:
        terminal.show(*status_lines(view, terminal.glyphs, terminal.width, wide=output == "wide"))
        for line in off_sources(view, every=session.verbose > 0):
            terminal.hint(line)


def _plugin(session: Session, *, npd: bool) -> int:
    """One line for another monitor; whatever goes wrong is `unknown` there, never a traceback."""
    from gpuwatch.cli.look.screen import plugin_line
    from gpuwatch.cli.look.source import one_view
    from gpuwatch.model.errors import GpuwatchError

    try:
        view = one_view(session)
    except GpuwatchError as error:
        click.echo(str(error) if npd else f"GPU UNKNOWN - {error}")
        return NPD["unknown"] if npd else NAGIOS["unknown"][0]
    health: Health = view.judgement.node
    text = plugin_line(view)
    click.echo(text if npd else f"GPU {NAGIOS[health.value][1]} - {text}")
    return NPD[health.value] if npd else NAGIOS[health.value][0]
