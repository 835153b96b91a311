"""Who holds more GPU than they use, and what to give them instead: the judgement over all workloads.

Pure: what was seen goes in, advice comes out, dearest first. Unknown data makes no advice, and nothing is applied.
"""

from collections.abc import Callable, Iterable, Iterator

from gpuwatch.config import RightsizingConfig
from gpuwatch.model.recommendation import Finding, Recommendation
from gpuwatch.model.snapshot import Record
from gpuwatch.model.usage import Fleet, Summary
from gpuwatch.rules.rightsizing_case import Case, Ground, case_of
from gpuwatch.rules.rightsizing_idle import idle_holder, is_at_rest, never_used
from gpuwatch.rules.rightsizing_mig import mig_fit
from gpuwatch.rules.rightsizing_quiet import works


class Advice(Record, frozen=True, kw_only=True):
    """`workloads`: so many were looked at; `learning`: of so many the size cannot be judged yet."""

    items: tuple[Recommendation, ...] = ()
    workloads: int = 0
    learning: int = 0


class Row(Record, frozen=True, kw_only=True):
    """One finding of a workload: who looks for it, and what for."""

    finding: Finding
    find: Callable[[Case], Recommendation | None]
    line: str


NOW = (
    Row(finding=Finding.NEVER_USED, find=never_used, line="held, and no process ever came"),
    Row(finding=Finding.IDLE_HOLDER, find=idle_holder, line="held, and nothing was done with it"),
)
"""About this moment: no history is needed."""

SIZE = (Row(finding=Finding.MIG_FIT, find=mig_fit, line="would do as well on a MIG instance"),)
"""About its size: the first that finds something is all that is said."""


def recommend(summaries: Iterable[Summary], fleet: Fleet, config: RightsizingConfig, now: float) -> Advice:
    """`now`: unix seconds. What was seen last long before says nothing of who is idle."""
    known = tuple(summaries)
    ground = Ground(fleet=fleet, config=config, now=now)
    ground = Ground(fleet=fleet, config=config, now=now, working=frozenset(_working(known, ground)))
    cases = [case_of(summary, ground) for summary in known]
    found = [item for case in cases for item in _of(case)]
    return Advice(
        items=tuple(sorted(found, key=_dearest)),
        workloads=len(cases),
        learning=sum(not case.is_known for case in cases),
    )


def _of(case: Case) -> Iterator[Recommendation]:
    yield from (found for row in NOW if (found := row.find(case)))
    if not case.is_known or not case.is_lasting or is_at_rest(case):
        return
    first = next((found for row in SIZE if (found := row.find(case))), None)
    yield from () if first is None else (first,)


def _working(summaries: Iterable[Summary], ground: Ground) -> Iterator[tuple[str, str]]:
    for summary in summaries:
        yield from ((summary.key.namespace, hold.pod) for hold in summary.holds if hold.present and works(hold, ground))


def _dearest(item: Recommendation) -> tuple[float, float, float, str]:
    saved = item.savings
    return -(saved.money_per_day or 0.0), -saved.gpu_hours_per_day, -(saved.watts or 0.0), item.id
