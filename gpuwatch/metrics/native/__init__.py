"""METRICS: every family that gpuwatch exports about GPUs, one row each. Adding a metric is adding a row.

The order is the order of the page and the priority: when a page would have more series than `metrics.max_series`,
whole families are dropped, from the end.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from gpuwatch.config import FamilyGroup, MetricsConfig
from gpuwatch.metrics.metric import Family, Metric, MetricContext, NvlinkCounters
from gpuwatch.metrics.native.gpu import ACTIVITY, FAULTS, LINKS, NVLINKS, READINGS
from gpuwatch.metrics.native.node import AGENT, HEALTH, IDENTITY, XIDS
from gpuwatch.metrics.native.workload import PROCESSES, VGPUS, WORKLOADS
from gpuwatch.metrics.selection import Selection, fits
from gpuwatch.model.view import View


class Group(NamedTuple):
    """Families that are switched on and off together."""

    help: str
    rows: tuple[Metric[MetricContext], ...]


GROUPS: dict[FamilyGroup, Group] = {
    "core": Group("health, findings, identities, the agent and its sources", (*AGENT, *HEALTH, *IDENTITY)),
    "errors": Group("XIDs, ECC errors, row remaps, retired pages, recovery action", (*XIDS, *FAULTS)),
    "pods": Group("which container has which GPU, and what its processes use", WORKLOADS),
    "readings": Group("utilization, memory, power, energy, temperature, clocks, modes", READINGS),
    "activity": Group("video engines and GPM: multiprocessors, tensor cores, pipes, device memory", ACTIVITY),
    "vgpus": Group("active vGPUs", VGPUS),
    "links": Group("PCIe, NVSwitch fabric, and the NVLinks of each GPU together", LINKS),
    "rightsizing": Group("recommendations; the rows are those of `rightsizing.service.metrics`", ()),
    "nvlinks": Group("each NVLink: state, errors by kind, bytes, speed, other end", NVLINKS),
    "processes": Group("each process: memory, utilization, owner; also `metrics.processes: true`", PROCESSES),
}
"""Every family is in one group."""

METRICS: tuple[Metric[MetricContext], ...] = tuple(row for group in GROUPS.values() for row in group.rows)


def _is_wanted(config: MetricsConfig, only: Selection, group: FamilyGroup, name: str) -> bool:
    if fits(name, config.families.deny) or (only is not None and name not in only):
        return False
    if only is not None and group != "processes":
        return True
    on = group in config.families.groups or (group == "processes" and config.processes)
    return on or fits(name, config.families.allow)


@lru_cache(maxsize=16 * len(GROUPS))
def _wanted_rows(config: MetricsConfig, only: Selection, group: FamilyGroup) -> tuple[Metric[MetricContext], ...]:
    return tuple(row for row in GROUPS[group].rows if _is_wanted(config, only, group, row.full_name))


def collect(
    view: View,
    config: MetricsConfig,
    *,
    owned_only: bool = False,
    extra: Sequence[Family] = (),
    only: Selection = None,
    counters: NvlinkCounters | None = None,
) -> list[Family]:
    """The families of a View under gpuwatch's own names; a family without known values has no samples.

    `owned_only` leaves out all that must not be shown once the View is stale. `extra`: families of the group
    `rightsizing`. `only`: names that a scrape asks for, also of groups that are off; families that the
    configuration denies and processes that it does not switch on are left out.
    """
    context = MetricContext(view, inline=config.workload_labels == "inline", counters=counters)
    found: list[Family] = []
    for group in GROUPS:
        rows = _wanted_rows(config, only, group)
        found += [row.family(context) for row in rows if row.owned or not owned_only]
        if group == "rightsizing":
            found += [family for family in extra if _is_wanted(config, only, group, family.name)]
    return found


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
