"""METRICS: every family that gpuwatch exports about GPUs, one row each. Adding a metric is adding a row.

The order is the order of the page and the priority: when a page would have more series than `metrics.max_series`,
whole families go, from the end.
"""

from gpuwatch.config import MetricsConfig
from gpuwatch.metrics.labelled_view import Scene
from gpuwatch.metrics.metric import Family, Metric
from gpuwatch.metrics.native.faults import FAULTS
from gpuwatch.metrics.native.gpu import LINKS, READINGS
from gpuwatch.metrics.native.node import AGENT, HEALTH, IDENTITY
from gpuwatch.metrics.native.rightsizing import RIGHTSIZING, Told
from gpuwatch.metrics.native.workload import PROCESSES, VGPUS, WORKLOADS
from gpuwatch.model.view import View

METRICS: tuple[Metric[Scene], ...] = (
    *AGENT,
    *HEALTH,
    *IDENTITY,
    *FAULTS,
    *WORKLOADS,
    *READINGS,
    *VGPUS,
    *LINKS,
    *RIGHTSIZING,
    *PROCESSES,
)


def collect(view: View, config: MetricsConfig, *, owned_only: bool = False, advice: Told | None = None) -> list[Family]:
    """The families of a View under gpuwatch's own names; a family nothing is known about has no samples.

    `owned_only` leaves out whatever must not be shown once the View is stale. `advice`: what right-sizing says.
    """
    rows = [row for row in METRICS if (config.processes or not row.opt_in) and (row.owned or not owned_only)]
    scene = Scene(view, inline=config.workload_labels == "inline", advice=advice)
    return [row.family(scene) for row in rows]


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
