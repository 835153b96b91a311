"""The recommendations for all workloads, and the table of what each finding looks for.

Pure: usage goes in, recommendations come out, most valuable first. Unknown data makes no finding; nothing is applied.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from msgspec.structs import replace

from gpuwatch.config import RightsizingConfig
from gpuwatch.model.snapshot import Record
from gpuwatch.rightsizing.apply import all_applied
from gpuwatch.rightsizing.findings.idle import (
    gang_oversized,
    idle_holder,
    idle_pods,
    is_all_idle,
    may_be_working,
    never_used,
)
from gpuwatch.rightsizing.findings.mig_layout import layouts
from gpuwatch.rightsizing.findings.namespace import quota_slack, steady_load
from gpuwatch.rightsizing.findings.partition import duty_cycled, mig_fit
from gpuwatch.rightsizing.findings.without_resize import cpu_bound, energy, io_bound, preallocated
from gpuwatch.rightsizing.findings.workload import FleetContext, WorkloadFacts, workload_facts
from gpuwatch.rightsizing.model.recommendation import FindingKind, Recommendation, Recommendations
from gpuwatch.rightsizing.model.usage import FleetFacts, WorkloadSummary


class FindingRow(Record, frozen=True, kw_only=True):
    """One finding: what is looked for, and what is to be done about it."""

    finding: FindingKind
    when: str
    then: str


class FindingRule(FindingRow, frozen=True, kw_only=True):
    """A finding of a workload, and the function that looks for it."""

    find: Callable[[WorkloadFacts], Recommendation | None]


NOW = (
    FindingRule(
        finding=FindingKind.NEVER_USED,
        find=never_used,
        when="held for `idle_after` and `grace`, no compute process (or too little memory for one), never busy",
        then="batch and notebooks: release it; all others: ask the owner",
    ),
    FindingRule(
        finding=FindingKind.IDLE_HOLDER,
        find=idle_holder,
        when="busy < 1 % in every window, PCIe < 1 MiB/s, draw as at rest, for longer than any pause (below)",
        then="batch and notebooks: release it; all others: ask the owner",
    ),
)
"""About this moment: no history is needed."""

SIZE = (
    FindingRule(
        finding=FindingKind.GANG_OVERSIZED,
        find=gang_oversized,
        when="of a pod's GPUs some do nothing for 90 % of the time, every other one is busy >= 30 %",
        then="ask for fewer",
    ),
    FindingRule(
        finding=FindingKind.CPU_BOUND,
        find=cpu_bound,
        when="busy < 60 %, dram < 5 %, PCIe < 1 GB/s; swings and its CPU is held back in > 10 % of all "
        "periods, or in >= 25 %",
        then="raise the CPU limit before the GPU is made smaller",
    ),
    FindingRule(
        finding=FindingKind.IO_BOUND,
        find=io_bound,
        when="the same with swings, of batch, and the CPU limit is not known to be the cause",
        then="look at its input before the GPU is made smaller",
    ),
    FindingRule(
        finding=FindingKind.PREALLOCATED,
        find=preallocated,
        when="took >= 70 % of the memory at its start and keeps it (< 1 % spread), though its compute would fit less",
        then="change the setting that says how much it takes",
    ),
    FindingRule(
        finding=FindingKind.MIG_FIT,
        find=mig_fit,
        when="memory with margin and growth fits a MIG profile, and so does compute at most `max_mig_slowdown` slower",
        then="ask for the profile",
    ),
    FindingRule(
        finding=FindingKind.DUTY_CYCLED,
        find=duty_cycled,
        when="busy < 20 % on average and < 60 % at the 95th percentile, and memory for two or more",
        then="share GPUs: batch and notebooks by time slicing, all others by MPS",
    ),
)
"""About its size: only the first that finds something makes a recommendation."""

BESIDES = (
    FindingRule(
        finding=FindingKind.ENERGY,
        find=energy,
        when="batch, busy >= 50 % on average, no annotation about tuning",
        then="let the tuner save energy",
    ),
)
"""Independent of its size."""

OTHERS = (
    FindingRow(
        finding=FindingKind.QUOTA_SLACK,
        when="a ResourceQuota is above what is used, what is held, and 1.15 times the most GPUs at work in any five "
        "minutes of two weeks",
        then="lower it to the largest of these",
    ),
    FindingRow(
        finding=FindingKind.STEADY_LOAD,
        when="a namespace holds all GPUs of whole nodes, and as many GPUs are at work in 95 % of all time",
        then="reserve these nodes for it",
    ),
    FindingRow(
        finding=FindingKind.MIG_LAYOUT,
        when="free GPUs of a model for which `mig_fit` was found",
        then="cut them so that the fewest GPUs serve all of these",
    ),
)
"""Of namespaces, and of free GPUs. Quotas and nodes only where all GPUs of the cluster are known."""


def recommend(
    summaries: Iterable[WorkloadSummary],
    fleet: FleetFacts,
    config: RightsizingConfig,
    now: float,
    *,
    since: float | None = None,
    node: str | None = None,
) -> Recommendations:
    """What to do about all workloads, most valuable first.

    `now`: unix seconds; a hold that ended long before is not judged as idle. `since`, `node`: as in Recommendations.
    """
    known = tuple(summaries)
    context = FleetContext(fleet=fleet, config=config, now=now)
    working = frozenset(
        (each.key.namespace, hold.pod)
        for each in known
        for hold in each.holds
        if hold.present and may_be_working(hold, context)
    )
    workloads = workload_facts(known, replace(context, working=working))
    found = [item for facts in workloads for item in _of_workload(facts)]
    for use in fleet.namespaces:
        holds = tuple(hold for each in known if each.key.namespace == use.namespace for hold in each.holds)
        found += [item for item in (quota_slack(use, context), steady_load(use, context, holds)) if item]
    found += layouts(found, fleet, config, now)

    def least_saved(item: Recommendation) -> tuple[float, float, float, str]:
        saved = item.savings
        return -(saved.money_per_day or 0.0), -saved.gpu_hours_per_day, -(saved.watts or 0.0), item.id

    return Recommendations(
        at=now,
        since=since,
        node=node,
        workloads=len(workloads),
        learning=sum(not facts.is_known for facts in workloads),
        items=all_applied(sorted(found, key=least_saved), fleet),
    )


def _of_workload(facts: WorkloadFacts) -> Iterator[Recommendation]:
    yield from (found for row in NOW if (found := row.find(facts)))
    if not facts.is_known or not facts.is_lasting or is_all_idle(facts):
        return
    idle = {hold for pod in idle_pods(facts) for hold in pod.holds}
    if idle:  # other advice frees them already: no hour is counted twice
        rest = tuple(hold for hold in facts.present if hold not in idle)
        facts = replace(facts, present=rest, part=len(rest) / len(facts.present))
    yield from islice((found for row in SIZE if (found := row.find(facts))), 1)
    yield from (found for row in BESIDES if (found := row.find(facts)))
