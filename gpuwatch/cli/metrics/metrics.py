"""`gpuwatch metrics`: one exposition on stdout or in a file, and the table of all metrics."""

import os
from pathlib import Path

import click

from gpuwatch.cli.console.commands import Entry
from gpuwatch.cli.console.lazy import LazyGroup
from gpuwatch.cli.console.options import option
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.config.named_file import replacing
from gpuwatch.model.errors import UsageError

HELP = """Print the metrics once, or list them.

\b
Examples:
  gpuwatch metrics
  gpuwatch metrics --textfile /var/lib/node_exporter/textfile/gpu.prom
  gpuwatch metrics --name gpuwatch_gpu_power_watts --name 'gpuwatch_gpu_nvlink_*'
  gpuwatch metrics list -o md
"""

ENTRIES = (
    Entry("list", "List every metric gpuwatch can export.", "metrics.listing:list_", "Commands"),
    Entry("check", "Show what a Prometheus has of gpuwatch, and what is missing.", "metrics.check:check", "Commands"),
)
PROFILES = ("native", "dcgm-4.8", "dcgm-4.9")


@click.group(
    cls=LazyGroup,
    entries=ENTRIES,
    invoke_without_command=True,
    subcommand_metavar="[COMMAND] [ARGS]...",  # click's own word for it differs by version
    help=HELP,
)
@option("--textfile", metavar="PATH", help="Write to a file for node_exporter's textfile collector, atomically.")
@option("--profile", "profiles", type=click.Choice(PROFILES), multiple=True, help="Names to use; repeatable.")
@option("--name", "names", metavar="PATTERN", multiple=True, help="Only these families, with * and ?; repeatable.")
@option("--openmetrics", is_flag=True, help="OpenMetrics 1.0 instead of the Prometheus text format.")
@pass_session
@click.pass_context
def metrics(
    ctx: click.Context,
    session: Session,
    textfile: str | None,
    profiles: tuple[str, ...],
    names: tuple[str, ...],
    openmetrics: bool,
) -> None:
    """Print or write the agent's own page where one answers, else one made of a View; nothing before a subcommand."""
    if ctx.invoked_subcommand is not None:
        return
    from gpuwatch.agent.client import AgentClient
    from gpuwatch.agent.pages import page_families
    from gpuwatch.cli.look.source import open_source
    from gpuwatch.metrics.page_cache import PageCache
    from gpuwatch.metrics.selection import select

    try:
        only = select(names, page_families()) if names else None
    except ValueError as error:
        raise UsageError("wrong --name", *str(error).split("; ", 1)) from error
    with open_source(session) as node:
        if isinstance(node, AgentClient):
            page = node.metrics(profiles, names=names, openmetrics=openmetrics)
        else:
            view, config = node.view(), session.config_or_defaults().metrics
            pages = PageCache(config, node=view.snapshot.node or "")
            pages.publish(view)
            page = pages.page(profiles or config.profiles, openmetrics, only=only)
    if textfile is None:
        session.terminal.page(page.decode("utf-8", "backslashreplace"))
    else:
        with replacing(Path(textfile)) as file:
            file.write(page)
            os.fchmod(file.fileno(), 0o644)  # node_exporter runs as another user
