"""Who holds more GPU than they use, and what to give them instead: the judgement over all workloads.

Pure: what was seen goes in, advice comes out, dearest first. Unknown data makes no advice, and nothing is applied.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from msgspec.structs import replace

from gpuwatch.config import RightsizingConfig
from gpuwatch.model.recommendation import Recommendation
from gpuwatch.model.snapshot import Record
from gpuwatch.rightsizing.apply import all_applied
from gpuwatch.rightsizing.findings import BESIDES, NOW, SIZE
from gpuwatch.rightsizing.findings.idle import is_at_rest, resting
from gpuwatch.rightsizing.findings.mig_layout import layouts
from gpuwatch.rightsizing.findings.namespace import quota_slack, steady_load
from gpuwatch.rightsizing.findings.quiet import works
from gpuwatch.rightsizing.findings.workload import Case, Ground, cases_of
from gpuwatch.rightsizing.model.usage import Fleet, NamespaceUse, Summary


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
