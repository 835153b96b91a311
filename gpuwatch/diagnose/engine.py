"""Judges facts by the table: a check whose ground is broken is not asked, and says which check broke it."""

import logging
from collections.abc import Iterable, Mapping, Sequence

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, Level, skipped
from gpuwatch.diagnose.model import CheckResult, CheckStage, CheckStatus, Diagnosis

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
    """The results of every check of `stages` (None: all) and of what those need, in the order of `table`.

    A check that only others need is among the results when it did not pass: it is why they are blocked.
    """
    asked = {check.id for check in table if _is_asked(check, level, stages)}
    judged = _Judged(context, table, active=active)
    results = {id_: judged.result(id_) for id_ in _in_order(table, needed(table, asked))}
    shown = (r for r in results.values() if r.id in asked or r.result is CheckStatus.FAIL)
    return Diagnosis(node=context.facts.node, at=context.facts.at, root=context.facts.root, results=tuple(shown))


def needed(table: Iterable[DiagnosticCheck], ids: Iterable[str]) -> set[str]:
    """These checks and all they stand on."""
    rows = {check.id: check for check in table}
    found: set[str] = set()
    waiting = list(ids)
    while waiting:
        id_ = waiting.pop()
        if id_ not in found:
            found.add(id_)
            waiting += rows[id_].needs
    return found


def _is_asked(check: DiagnosticCheck, level: Level, stages: frozenset[CheckStage] | None) -> bool:
    return (level == "full" or check.level == "quick") and (stages is None or check.stage in stages)


def _in_order(table: Iterable[DiagnosticCheck], ids: set[str]) -> list[str]:
    return [check.id for check in table if check.id in ids]


class _Judged:
    """Results as they become known: what a check needs is judged before it, wherever in the table it stands."""

    def __init__(self, context: CheckContext, table: Iterable[DiagnosticCheck], *, active: bool) -> None:
        self._case, self._active = context, active
        self._rows = {check.id: check for check in table}
        self._results: dict[str, CheckResult] = {}
        self._spared: dict[str, dict[int, CheckResult]] = {}
        """Check -> GPUs about which it was not asked, and what failed for them."""

    def result(self, id_: str) -> CheckResult:
        """Of one check."""
        if id_ not in self._results:
            self._results[id_] = self._judge(self._rows[id_])
        return self._results[id_]

    def _judge(self, check: DiagnosticCheck) -> CheckResult:
        blocker = self._blocker(check)
        if blocker is None:
            spared = self._spared[check.id]
            left = self._case.indexes - spared.keys()
            context = self._case._replace(selected=left) if spared else self._case
            verdict = _verdict(check, context, active=self._active)
            return _finished(check, context, _without(verdict, spared))
        return CheckResult(
            id=check.id,
            stage=check.stage,
            title=check.title,
            result=CheckStatus.SKIP,
            message=f"blocked by {blocker.id}: {blocker.message}",
            blocked_by=blocker.id,
        )

    def _blocker(self, check: DiagnosticCheck) -> CheckResult | None:
        """The failure at the bottom of what keeps this check from being asked; the first one, if there are several.
        One that blames some GPUs, or judges each by itself, keeps a check of each from being asked about those only.
        """
        spared = self._spared[check.id] = {}
        for need in check.needs:
            ground = self.result(need)
            if ground.blocked_by is not None:
                return self.result(ground.blocked_by)
            if ground.result is CheckStatus.FAIL and not (check.each and (ground.gpus or self._rows[need].each)):
                return ground
            spared |= self._spared[need]
            if ground.result is CheckStatus.FAIL:
                spared |= dict.fromkeys(ground.gpus, ground)
        is_left = check.each and self._case.indexes - spared.keys()
        return None if is_left else next(iter(spared.values()), None)


def _without(verdict: CheckVerdict, spared: Mapping[int, CheckResult]) -> CheckVerdict:
    """Says about which GPUs nothing was asked."""
    said = {f"gpu {index}": f"not judged, see {result.id}" for index, result in sorted(spared.items())}
    return verdict._replace(evidence={**verdict.evidence, **said})


def _verdict(check: DiagnosticCheck, context: CheckContext, *, active: bool) -> CheckVerdict:
    if check.active and not active:
        return skipped(NOT_ASKED)
    for section in check.reads:
        if getattr(context.facts, section) is None:
            return skipped(f"not seen: {context.facts.unread.get(section, f'{section} was not read')}")
    try:
        return check.judge(context)
    except Exception as error:
        log.warning("check %s failed by itself: %s: %s", check.id, type(error).__name__, error, exc_info=True)
        return skipped(f"the check itself failed ({type(error).__name__}: {error}); please report it")


def _finished(check: DiagnosticCheck, context: CheckContext, verdict: CheckVerdict) -> CheckResult:
    """With remedy and commands where there is something to remedy."""
    is_wrong = verdict.result in (CheckStatus.WARN, CheckStatus.FAIL)
    commands = check.commands if verdict.commands is None else verdict.commands
    names = {"node": context.facts.node or "NODE", "gpu": str(verdict.gpus[0]) if verdict.gpus else "GPU"}
    return CheckResult(
        id=check.id,
        stage=check.stage,
        title=check.title,
        result=verdict.result,
        message=verdict.message,
        gpus=verdict.gpus,
        remedy=_filled(check.remedy if verdict.remedy is None else verdict.remedy, names) if is_wrong else "",
        commands=tuple(_filled(command, names) for command in commands) if is_wrong else (),
        evidence=verdict.evidence,
    )


def _filled(text: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        text = text.replace("{" + name + "}", value)
    return text
