"""Who holds more GPU than they use, and what to give them instead: the judgement over all workloads.

Pure: what was seen goes in, advice comes out, dearest first. Unknown data makes no advice, and nothing is applied.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from gpuwatch.config import RightsizingConfig
from gpuwatch.model.recommendation import Finding, Recommendation
from gpuwatch.model.snapshot import Record
from gpuwatch.model.usage import Fleet, NamespaceUse, Summary
from gpuwatch.rules.rightsizing_apply import applied
from gpuwatch.rules.rightsizing_bound import cpu_bound, io_bound
from gpuwatch.rules.rightsizing_case import Case, Ground, case_of
from gpuwatch.rules.rightsizing_energy import energy
from gpuwatch.rules.rightsizing_gang import gang_oversized
from gpuwatch.rules.rightsizing_idle import idle_holder, is_at_rest, never_used
from gpuwatch.rules.rightsizing_memory import preallocated
from gpuwatch.rules.rightsizing_mig import mig_fit
from gpuwatch.rules.rightsizing_namespace import quota_slack, steady_load
from gpuwatch.rules.rightsizing_quiet import works
from gpuwatch.rules.rightsizing_share import duty_cycled


class Advice(Record, frozen=True, kw_only=True):
    """`workloads`: so many were looked at; `learning`: of so many the size cannot be judged yet."""

    items: tuple[Recommendation, ...] = ()
    workloads: int = 0
    learning: int = 0


class Row(Record, frozen=True, kw_only=True):
    """One finding of a workload: who looks for it, what for, and what is done about it."""

    finding: Finding
    find: Callable[[Case], Recommendation | None]
    when: str
    then: str


NOW = (
    Row(
        finding=Finding.NEVER_USED,
        find=never_used,
        when="held for `idle_after` and `grace`, no compute process (or too little memory for one), never busy",
        then="batch and notebooks: give it back; all others: ask the owner",
    ),
    Row(
        finding=Finding.IDLE_HOLDER,
        find=idle_holder,
        when="busy < 1 % in every window, PCIe < 1 MiB/s, draw as at rest, for `idle_after` and for longer than any "
        "pause after which it worked again",
        then="batch and notebooks: give it back; all others: ask the owner",
    ),
)
"""About this moment: no history is needed."""

SIZE = (
    Row(
        finding=Finding.GANG_OVERSIZED,
        find=gang_oversized,
        when="of a pod's GPUs some do nothing for 90 % of the time, every other one is busy >= 30 %",
        then="ask for fewer",
    ),
    Row(
        finding=Finding.CPU_BOUND,
        find=cpu_bound,
        when="swings between idle and busy, dram < 5 %, PCIe < 1 GB/s, CPU held back in > 10 % of its periods",
        then="raise the CPU limit before the GPU is made smaller",
    ),
    Row(
        finding=Finding.IO_BOUND,
        find=io_bound,
        when="as above, of batch, and the CPU limit is not known to be the cause",
        then="look at its input before the GPU is made smaller",
    ),
    Row(
        finding=Finding.PREALLOCATED,
        find=preallocated,
        when="took >= 70 % of the memory as it began and has kept it (< 1 % spread), though its compute would fit less",
        then="change the setting that says how much it takes; no word on memory",
    ),
    Row(
        finding=Finding.MIG_FIT,
        find=mig_fit,
        when="memory with margin and growth fits a MIG profile, and so does compute at most `max_mig_slowdown` slower",
        then="ask for the profile",
    ),
    Row(
        finding=Finding.DUTY_CYCLED,
        find=duty_cycled,
        when="busy < 20 % on average and < 60 % at the 95th percentile, and memory for two or more",
        then="share GPUs: batch and notebooks by time slicing, all others by MPS",
    ),
)
"""About its size: the first that finds something is all that is said."""

BESIDES = (
    Row(
        finding=Finding.ENERGY,
        find=energy,
        when="batch, busy >= 50 % on average, no annotation about tuning",
        then="let the tuner save energy",
    ),
)
"""Whatever its size is."""


def recommend(summaries: Iterable[Summary], fleet: Fleet, config: RightsizingConfig, now: float) -> Advice:
    """`now`: unix seconds. What was seen last long before says nothing of who is idle."""
    known = tuple(summaries)
    ground = Ground(fleet=fleet, config=config, now=now)
    ground = Ground(fleet=fleet, config=config, now=now, working=frozenset(_working(known, ground)))
    cases = [case_of(summary, ground) for summary in known]
    found = [item for case in cases for item in _of(case)]
    found += [item for use in fleet.namespaces for item in _of_namespace(use, ground, known)]
    return Advice(
        items=tuple(applied(item, fleet) for item in sorted(found, key=_dearest)),
        workloads=len(cases),
        learning=sum(not case.is_known for case in cases),
    )


def _of(case: Case) -> Iterator[Recommendation]:
    yield from (found for row in NOW if (found := row.find(case)))
    if not case.is_known or not case.is_lasting or is_at_rest(case):
        return
    yield from islice((found for row in SIZE if (found := row.find(case))), 1)
    yield from (found for row in BESIDES if (found := row.find(case)))


def _of_namespace(use: NamespaceUse, ground: Ground, summaries: Iterable[Summary]) -> Iterator[Recommendation]:
    holds = tuple(hold for each in summaries if each.key.namespace == use.namespace for hold in each.holds)
    yield from (found for found in (quota_slack(use, ground), steady_load(use, ground, holds)) if found)


def _working(summaries: Iterable[Summary], ground: Ground) -> Iterator[tuple[str, str]]:
    for summary in summaries:
        yield from ((summary.key.namespace, hold.pod) for hold in summary.holds if hold.present and works(hold, ground))


def _dearest(item: Recommendation) -> tuple[float, float, float, str]:
    saved = item.savings
    return -(saved.money_per_day or 0.0), -saved.gpu_hours_per_day, -(saved.watts or 0.0), item.id
