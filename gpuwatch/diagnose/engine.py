"""Judges facts by the table: a check that needs a failed one is not judged, and names the failed one."""

import logging
from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, Level, skipped
from gpuwatch.diagnose.model import CheckResult, CheckStage, CheckStatus, Diagnosis
from gpuwatch.model.text import shell_word

log = logging.getLogger(__name__)

NOT_ASKED = "puts work on GPUs; runs with --active"


def diagnose(
    context: CheckContext,
    table: Sequence[DiagnosticCheck],
    *,
    level: Level = "full",
    stages: frozenset[CheckStage] | None = None,
    active: bool = False,
) -> Diagnosis:
    """The results of every check of `stages` (None: all) and of the checks those need, in the order of `table`.

    A check that only others need is among the results when it failed: it is the reason why they are blocked.
    """
    asked = {
        check.id
        for check in table
        if (level == "full" or check.level == "quick") and (stages is None or check.stage in stages)
    }
    judged = _Results(context, table, active=active)
    with_needs = needed(table, asked)
    results = {check.id: judged.result(check.id) for check in table if check.id in with_needs}
    shown = (r for r in results.values() if r.id in asked or r.result is CheckStatus.FAIL)
    return Diagnosis(node=context.facts.node, at=context.facts.at, root=context.facts.root, results=tuple(shown))


def needed(table: Iterable[DiagnosticCheck], ids: Iterable[str]) -> set[str]:
    """The ids of these checks and of all that they need, directly or not."""
    rows = {check.id: check for check in table}
    found: set[str] = set()
    waiting = list(ids)
    while waiting:
        id_ = waiting.pop()
        if id_ not in found:
            found.add(id_)
            waiting += rows[id_].needs
    return found


class _Results:
    """Results, each judged once: the checks that a check needs are judged before it, wherever they are in the table."""

    def __init__(self, context: CheckContext, table: Iterable[DiagnosticCheck], *, active: bool) -> None:
        self._context, self._active = context, active
        self._rows = {check.id: check for check in table}
        self._results: dict[str, CheckResult] = {}
        self._left_out: dict[str, dict[int, CheckResult]] = {}
        """Check -> NVML index of each GPU that it does not judge -> the failure that is the reason."""

    def result(self, id_: str) -> CheckResult:
        """The result of one check, with remedy and commands if it is a warning or a failure."""
        if id_ in self._results:
            return self._results[id_]
        check, blocker = self._rows[id_], self._blocker(self._rows[id_])
        result = CheckResult(id=check.id, stage=check.stage, title=check.title, result=CheckStatus.SKIP)
        if blocker is not None:
            message = f"blocked by {blocker.id}: {blocker.message}"
            self._results[id_] = replace(result, message=message, blocked_by=blocker.id)
            return self._results[id_]
        context, left_out = self._context, self._left_out[id_]
        if left_out:
            context = context._replace(selected=context.indexes - left_out.keys())
        verdict = _verdict(check, context, active=self._active)
        not_judged = {f"gpu {index}": f"not judged, see {each.id}" for index, each in sorted(left_out.items())}
        remedy: str = ""
        commands: list[str] = []
        if verdict.result in (CheckStatus.WARN, CheckStatus.FAIL):
            node, gpu = context.facts.node or "NODE", str(verdict.gpus[0]) if verdict.gpus else "GPU"
            remedy = check.remedy if verdict.remedy is None else verdict.remedy
            remedy = remedy.replace("{node}", node).replace("{gpu}", gpu)
            commands = [
                command.replace("{node}", shell_word(node)).replace("{gpu}", gpu)
                for command in (check.commands if verdict.commands is None else verdict.commands)
            ]
        self._results[id_] = replace(
            result,
            result=verdict.result,
            message=verdict.message,
            gpus=verdict.gpus,
            remedy=remedy,
            commands=tuple(commands),
            evidence={**verdict.evidence, **not_judged},
        )
        return self._results[id_]

    def _blocker(self, check: DiagnosticCheck) -> CheckResult | None:
        """The root failure that blocks this check, the first one if there are several; None: it can be judged.

        A check that judges each GPU by itself is not blocked by the failure of a check that names the GPUs at fault,
        or that itself judges each GPU: only those GPUs are left out, and it is blocked when no other GPU remains.
        """
        left_out = self._left_out[check.id] = {}
        for need in check.needs:
            needed_result = self.result(need)
            if needed_result.blocked_by is not None:
                return self.result(needed_result.blocked_by)
            has_failed = needed_result.result is CheckStatus.FAIL
            if has_failed and not (check.each and (needed_result.gpus or self._rows[need].each)):
                return needed_result
            left_out |= self._left_out[need]
            if has_failed:
                left_out |= dict.fromkeys(needed_result.gpus, needed_result)
        remain = check.each and self._context.indexes - left_out.keys()
        return None if remain else next(iter(left_out.values()), None)


def _verdict(check: DiagnosticCheck, context: CheckContext, *, active: bool) -> CheckVerdict:
    if check.active and not active:
        return skipped(NOT_ASKED)
    for section in check.reads:
        if getattr(context.facts, section) is None:
            return skipped(f"not read: {context.facts.unread.get(section, f'{section} was not read')}")
    try:
        return check.judge(context)
    except Exception as error:
        log.warning("check %s failed by itself: %s: %s", check.id, type(error).__name__, error, exc_info=True)
        return skipped(f"the check itself failed ({type(error).__name__}: {error}); report it")
