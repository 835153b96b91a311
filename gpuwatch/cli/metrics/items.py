"""The metric table as items of `metrics list`."""

from gpuwatch.cli.console.table import Column
from gpuwatch.cli.look.items import Item
from gpuwatch.metrics.metric import PREFIX, unit
from gpuwatch.metrics.native import METRICS


class MetricItem(Item, frozen=True, kw_only=True):
    """One family. `labels` come beside gpu and uuid of series about a GPU; `opt_in`: off by default."""

    name: str
    type: str
    unit: str | None
    labels: tuple[str, ...]
    help: str
    opt_in: bool


COLUMNS: tuple[Column[MetricItem], ...] = (
    Column("NAME", lambda m, w: m.name),
    Column("TYPE", lambda m, w: m.type),
    Column("LABELS", lambda m, w: w.text(",".join(m.labels)), drop=1),
    Column("MEANING", lambda m, w: m.help, shorten="end"),
)


def metric_items() -> list[MetricItem]:
    """Every row, in the order of the page."""
    return [
        MetricItem(
            name=PREFIX + row.name,
            type=row.type,
            unit=unit(row.name) or None,
            labels=row.labels,
            help=row.help,
            opt_in=row.opt_in,
        )
        for row in METRICS
    ]
