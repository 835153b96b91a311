"""Recent XIDs: what an agent has judged, and what the kernel log still tells of the time before anybody looked."""

from collections.abc import Iterator
from typing import NamedTuple

from gpuwatch.diagnose.check import Case, Verdict, failed, passed, warned
from gpuwatch.diagnose.remedies import ADVICE, RESTART_APP, Advice
from gpuwatch.model.diagnosis import Result
from gpuwatch.model.finding import Finding, Remedy
from gpuwatch.model.snapshot import GpuState
from gpuwatch.model.xid import XidEvent
from gpuwatch.model.xid_catalogue import explain
from gpuwatch.rules.xid_class import Class, classify, remedy

DAY = 86400.0
"""An older XID that nobody has judged is history."""


class Seen(NamedTuple):
    """One XID of one GPU (`gpu` None: of a place where no GPU is known)."""

    result: Result
    text: str
    gpu: int | None
    xid: int | None
    remedy: Remedy


def recent(case: Case) -> Verdict:
    """G05: the worst XID of GPUs that answer; of those that do not N04 tells."""
    seen = sorted((*_judged(case), *_unjudged(case)), key=lambda s: (s.result is not Result.FAIL, s.gpu or 0))
    if not seen:
        return passed("none")
    worst = seen[0]
    same = [each for each in seen if each.result is worst.result]
    gpus = tuple(sorted({each.gpu for each in same if each.gpu is not None}))
    evidence = {f"gpu {each.gpu if each.gpu is not None else '?'}, XID {each.xid}": each.text for each in seen}
    more = f" (and {len(seen) - 1} more)" if len(seen) > 1 else ""
    advice = advised(worst.xid, worst.remedy)
    say = failed if worst.result is Result.FAIL else warned
    where = "a GPU that is not there" if worst.gpu is None else f"GPU {worst.gpu}"
    return say(f"{where}: {worst.text}{more}", evidence, gpus=gpus, remedy=advice.words, commands=advice.commands)


def advised(xid: int | None, rung: Remedy) -> Advice:
    """What the rung of the ladder says, and where to read more."""
    advice = ADVICE.get(rung, RESTART_APP)
    return Advice(advice.words, (*(() if xid is None else (f"gpuwatch xid explain {xid}",)), *advice.commands))


RESULTS: dict[str, Result] = {
    "xid_fatal": Result.FAIL,
    "xid_contained": Result.WARN,
    "xid_warning": Result.WARN,
    "xid_unknown": Result.WARN,
    "xid_application": Result.WARN,
    "xid_application_repeated": Result.WARN,
}


def _judged(case: Case) -> Iterator[Seen]:
    """What was found by the agent's own rules."""
    dead = _dead(case)
    for index, finding in case.findings(*RESULTS):
        if index not in dead:
            yield Seen(RESULTS[finding.check], _words(case, finding), index, finding.xid, finding.remedy)


def _words(case: Case, finding: Finding) -> str:
    pods = ", ".join(f"{pod.namespace}/{pod.pod}" for pod in finding.pods if pod.pod)
    return f"{finding.message}, {ago(case.facts.at - finding.latest)}{f', pod {pods}' if pods else ''}"


def _unjudged(case: Case) -> Iterator[Seen]:
    """XIDs from before anybody looked: a reader of the View finds their last time only."""
    view = case.facts.view
    if view is None or case.facts.agent:
        return
    statuses = {s.identity.uuid: s for s in view.snapshot.statuses}
    asked = {gpu.identity.uuid: gpu.recovery_action for gpu in view.snapshot.gpus}
    found = {(finding.gpu, finding.xid) for _, finding in case.findings(*RESULTS)}
    for count in view.xids:
        age = None if count.last is None else case.facts.at - count.last
        status = statuses.get(count.uuid or "")
        if age is None or age > DAY or (count.uuid, count.xid) in found or status is None:
            continue
        if status.state is not GpuState.FRESH or not case.means(status.identity.index):
            continue
        event = XidEvent(at=count.last or 0.0, xid=count.xid, source="kernel")
        kind = classify(event, case.config.checks.xids) or "unknown"
        result = _result(case, kind, age, asked.get(count.uuid or ""))
        if result is not None:
            info = explain(count.xid)
            text = f"XID {count.xid} {ago(age)}, {info.summary if info else 'which nobody has documented'}"
            yield Seen(result, text, status.identity.index, count.xid, remedy(event, kind, None))


def _result(case: Case, kind: Class, age: float, asked: int | None) -> Result | None:
    """A fatal one is over when the driver tells what it asks for, and asks for nothing."""
    if kind == "fatal":
        return Result.WARN if asked == 0 and age > case.config.checks.xid_clear_after else Result.FAIL
    return Result.WARN if kind != "ignore" and age <= case.config.checks.xid_expire else None


def _dead(case: Case) -> set[int]:
    return {s.identity.index for s in case.statuses if s.state in (GpuState.LOST, GpuState.UNRESPONSIVE)}


def ago(seconds: float) -> str:
    """`4 min ago`."""
    for unit, size in (("d", DAY), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{max(0.0, seconds):.0f} s ago"
