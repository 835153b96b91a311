"""The recommendations for all workloads, and the table of what each finding looks for.

Pure: usage goes in, recommendations come out, most valuable first. Unknown data makes no finding; nothing is applied.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from msgspec.structs import replace

from gpuwatch.config import RightsizingConfig
from gpuwatch.model.recommendation import Finding, Recommendation
from gpuwatch.model.snapshot import Record
from gpuwatch.rightsizing.apply import all_applied
from gpuwatch.rightsizing.findings.idle import gang_oversized, idle_holder, is_at_rest, never_used, resting, works
from gpuwatch.rightsizing.findings.mig_layout import layouts
from gpuwatch.rightsizing.findings.namespace import quota_slack, steady_load
from gpuwatch.rightsizing.findings.partition import duty_cycled, mig_fit
from gpuwatch.rightsizing.findings.without_resize import cpu_bound, energy, io_bound, preallocated
from gpuwatch.rightsizing.findings.workload import Case, Ground, cases_of
from gpuwatch.rightsizing.model.usage import Fleet, NamespaceUse, Summary


class Row(Record, frozen=True, kw_only=True):
    """One finding: what is looked for, and what is to be done about it. `frees`: GPU-hours a day, in words."""

    finding: Finding
    when: str
    then: str
    frees: str = "none by itself"


class Rule(Row, frozen=True, kw_only=True):
    """A finding of a workload, and who looks for it."""

    find: Callable[[Case], Recommendation | None]


NOW = (
    Rule(
        finding=Finding.NEVER_USED,
        find=never_used,
        when="held for `idle_after` and `grace`, no compute process (or too little memory for one), never busy",
        then="batch and notebooks: give it back; all others: ask the owner",
        frees="24 a GPU; of a MIG instance its slices",
    ),
    Rule(
        finding=Finding.IDLE_HOLDER,
        find=idle_holder,
        when="busy < 1 % in every window, PCIe < 1 MiB/s, draw as at rest, for `idle_after` and for longer "
        "than it ever paused before it worked again (below)",
        then="batch and notebooks: give it back; all others: ask the owner",
        frees="24 a GPU; of a MIG instance its slices",
    ),
)
"""About this moment: no history is needed."""

SIZE = (
    Rule(
        finding=Finding.GANG_OVERSIZED,
        find=gang_oversized,
        when="of a pod's GPUs some do nothing for 90 % of the time, every other one is busy >= 30 %",
        then="ask for fewer",
        frees="its hours, by the GPUs to spare",
    ),
    Rule(
        finding=Finding.CPU_BOUND,
        find=cpu_bound,
        when="busy < 60 %, dram < 5 %, PCIe < 1 GB/s; swings and its CPU is held back in > 10 % of all "
        "periods, or in >= 25 %",
        then="raise the CPU limit before the GPU is made smaller",
    ),
    Rule(
        finding=Finding.IO_BOUND,
        find=io_bound,
        when="the same with swings, of batch, and the CPU limit is not known to be the cause",
        then="look at its input before the GPU is made smaller",
    ),
    Rule(
        finding=Finding.PREALLOCATED,
        find=preallocated,
        when="took >= 70 % of the memory as it began and has kept it (< 1 % spread), though its compute would fit less",
        then="change the setting that says how much it takes; no word on memory",
    ),
    Rule(
        finding=Finding.MIG_FIT,
        find=mig_fit,
        when="memory with margin and growth fits a MIG profile, and so does compute at most `max_mig_slowdown` slower",
        then="ask for the profile",
        frees="its hours, less the slices it will take",
    ),
    Rule(
        finding=Finding.DUTY_CYCLED,
        find=duty_cycled,
        when="busy < 20 % on average and < 60 % at the 95th percentile, and memory for two or more",
        then="share GPUs: batch and notebooks by time slicing, all others by MPS",
        frees="its hours, less its share",
    ),
)
"""About its size: the first that finds something is all that is said."""

BESIDES = (
    Rule(
        finding=Finding.ENERGY,
        find=energy,
        when="batch, busy >= 50 % on average, no annotation about tuning",
        then="let the tuner save energy",
    ),
)
"""Whatever its size is."""

OTHERS = (
    Row(
        finding=Finding.QUOTA_SLACK,
        when="a ResourceQuota is above what is used, what is held, and 1.15 times the most GPUs at work in any five "
        "minutes of two weeks",
        then="lower it to the largest of these",
    ),
    Row(
        finding=Finding.STEADY_LOAD,
        when="a namespace holds all GPUs of whole nodes, and as many GPUs are at work in 95 % of all time",
        then="reserve these nodes for it",
    ),
    Row(
        finding=Finding.MIG_LAYOUT,
        when="GPUs that nobody holds, of a model for which `mig_fit` was found",
        then="cut them so that the fewest GPUs serve all of these",
    ),
)
"""Of namespaces, and of GPUs that nobody holds. Quotas and nodes only where the whole cluster is seen."""

FINDINGS: tuple[Row, ...] = (*NOW, *SIZE, *BESIDES, *OTHERS)
"""All of them."""


class Advice(Record, frozen=True, kw_only=True):
    """`workloads`: so many were looked at; `learning`: of so many the size cannot be judged yet."""

    items: tuple[Recommendation, ...] = ()
    workloads: int = 0
    learning: int = 0


def recommend(summaries: Iterable[Summary], fleet: Fleet, config: RightsizingConfig, now: float) -> Advice:
    """`now`: unix seconds. What was seen last long before says nothing of who is idle."""
    known = tuple(summaries)
    ground = Ground(fleet=fleet, config=config, now=now)
    ground = Ground(fleet=fleet, config=config, now=now, working=frozenset(_working(known, ground)))
    cases = cases_of(known, ground)
    found = [item for case in cases for item in _of(case)]
    found += [item for use in fleet.namespaces for item in _of_namespace(use, ground, known)]
    found += layouts(found, fleet, config, now)
    return Advice(
        items=all_applied(sorted(found, key=_dearest), fleet),
        workloads=len(cases),
        learning=sum(not case.is_known for case in cases),
    )


def _of(case: Case) -> Iterator[Recommendation]:
    yield from (found for row in NOW if (found := row.find(case)))
    if not case.is_known or not case.is_lasting or is_at_rest(case):
        return
    awake = _awake(case)
    yield from islice((found for row in SIZE if (found := row.find(awake))), 1)
    yield from (found for row in BESIDES if (found := row.find(awake)))


def _awake(case: Case) -> Case:
    """Without the holds that are to be given back: no hour is to be saved twice."""
    at_rest = {hold for rest in resting(case) for hold in rest.holds}
    if not at_rest:
        return case
    awake = tuple(hold for hold in case.present if hold not in at_rest)
    return replace(case, present=awake, part=len(awake) / len(case.present))


def _of_namespace(use: NamespaceUse, ground: Ground, summaries: Iterable[Summary]) -> Iterator[Recommendation]:
    holds = tuple(hold for each in summaries if each.key.namespace == use.namespace for hold in each.holds)
    yield from (found for found in (quota_slack(use, ground), steady_load(use, ground, holds)) if found)


def _working(summaries: Iterable[Summary], ground: Ground) -> Iterator[tuple[str, str]]:
    for summary in summaries:
        yield from ((summary.key.namespace, hold.pod) for hold in summary.holds if hold.present and works(hold, ground))


def _dearest(item: Recommendation) -> tuple[float, float, float, str]:
    saved = item.savings
    return -(saved.money_per_day or 0.0), -saved.gpu_hours_per_day, -(saved.watts or 0.0), item.id
