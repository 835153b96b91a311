"""`gpuwatch metrics list`: every metric that the agent can export."""

from typing import Any

import click

from gpuwatch.cli.console.document import Envelope
from gpuwatch.cli.console.options import option
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.cli.console.table import Column, table
from gpuwatch.cli.console.words import Words
from gpuwatch.cli.look.items import Item
from gpuwatch.config import FamiliesConfig
from gpuwatch.metrics.metric import PREFIX, Metric, unit
from gpuwatch.metrics.native import GROUPS
from gpuwatch.rightsizing.service.metrics import RIGHTSIZING_METRICS

AGENT_GROUPS: dict[str, tuple[Metric[Any], ...]] = {
    name: RIGHTSIZING_METRICS if name == "rightsizing" else group.rows for name, group in GROUPS.items()
}
"""The rows of the agent's page by group, in its order."""


class MetricItem(Item, frozen=True, kw_only=True):
    """One family of `metrics list`. `labels` come beside `gpu` and `uuid`; `opt_in`: its group is off by default."""

    name: str
    type: str
    unit: str | None
    labels: tuple[str, ...]
    help: str
    group: str
    opt_in: bool


COLUMNS: tuple[Column[MetricItem], ...] = (
    Column("NAME", lambda m, w: m.name),
    Column("TYPE", lambda m, w: m.type),
    Column("GROUP", lambda m, w: m.group, drop=2),
    Column("LABELS", lambda m, w: w.text(",".join(m.labels)), drop=1),
    Column("MEANING", lambda m, w: m.help, shorten="end"),
)


@click.command("list", short_help="List every metric gpuwatch can export.")
@option("-o", "--output", type=click.Choice(["table", "md", "json"]), default="table", help="Default: table.")
@pass_session
def list_(session: Session, output: str) -> None:
    """List every metric gpuwatch can export: name, type, labels, meaning."""
    terminal = session.terminal
    if output == "table":
        terminal.show(*table(COLUMNS, metric_items(), Words(terminal.glyphs, 0.0), width=terminal.width))
    elif output == "json":
        terminal.document(Envelope(kind="MetricList", items=tuple(metric_items())), "json")
    else:
        terminal.page(markdown())


def metric_items() -> list[MetricItem]:
    """The agent's families, in the order of its page."""
    return [
        MetricItem(
            name=PREFIX + row.name,
            type=row.type,
            unit=unit(row.name) or None,
            labels=row.labels,
            help=row.help,
            group=group,
            opt_in=group not in FamiliesConfig().groups,
        )
        for group, rows in AGENT_GROUPS.items()
        for row in rows
    ]


def markdown() -> str:
    """The same table in Markdown."""
    heads = ("Family", "Group", "Type", "Labels", "Meaning")
    rows = (
        (f"`{m.name}`", m.group, m.type, ", ".join(f"`{name}`" for name in m.labels), m.help) for m in metric_items()
    )
    lines = (heads, ("---",) * len(heads), *rows)
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n" for cells in lines)
