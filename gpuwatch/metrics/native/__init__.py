"""METRICS: every family that gpuwatch exports about GPUs, one row each. Adding a metric is adding a row.

The order is the order of the page and the priority: when a page would have more series than `metrics.max_series`,
whole families go, from the end.
"""

from collections.abc import Sequence

from gpuwatch.config import MetricsConfig
from gpuwatch.metrics.metric import Family, Metric, MetricContext
from gpuwatch.metrics.native.gpu import FAULTS, LINKS, READINGS
from gpuwatch.metrics.native.node import AGENT, HEALTH, IDENTITY
from gpuwatch.metrics.native.workload import PROCESSES, VGPUS, WORKLOADS
from gpuwatch.model.view import View

METRICS: tuple[Metric[MetricContext], ...] = (
    *AGENT,
    *HEALTH,
    *IDENTITY,
    *FAULTS,
    *WORKLOADS,
    *READINGS,
    *VGPUS,
    *LINKS,
    *PROCESSES,
)


def collect(
    view: View, config: MetricsConfig, *, owned_only: bool = False, extra: Sequence[Family] = ()
) -> list[Family]:
    """The families of a View under gpuwatch's own names; a family nothing is known about has no samples.

    `owned_only` leaves out whatever must not be shown once the View is stale. `extra`: families of other parts of
    gpuwatch, before those that are off by default.
    """
    context = MetricContext(view, inline=config.workload_labels == "inline")
    rows = [row for row in METRICS if row.owned or not owned_only]
    usual = [row.family(context) for row in rows if not row.opt_in]
    return [*usual, *extra, *(row.family(context) for row in rows if row.opt_in and config.processes)]


def cap(families: list[Family], max_series: int) -> tuple[list[Family], int]:
    """The families that fit, in order up to the first that does not, and how many series were dropped."""
    total = 0
    for position, family in enumerate(families):
        total += len(family.samples)
        if total > max_series:
            dropped = families[position:]
            emptied = [family._replace(samples=[]) for family in dropped]
            return families[:position] + emptied, sum(len(family.samples) for family in dropped)
    return families, 0
