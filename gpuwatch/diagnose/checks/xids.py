"""Recent XIDs: what was judged as it happened, and what the kernel log tells of the time before anybody looked."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, failed, passed, skipped, warned
from gpuwatch.diagnose.checks.remedies import ADVICE, Advice
from gpuwatch.diagnose.checks.settings import moment
from gpuwatch.diagnose.model import CheckStatus
from gpuwatch.health.xid.classify import Class, classify, remedy
from gpuwatch.model.finding import Finding, Remedy
from gpuwatch.model.xid import XidEvent
from gpuwatch.model.xid_catalogue import explain

DAY = 86400.0
"""An older XID that nobody has judged is history."""


class Seen(NamedTuple):
    """One XID of the GPU at an NVML index."""

    result: CheckStatus
    text: str
    gpu: int
    xid: int | None
    remedy: Remedy


def recent(context: CheckContext) -> CheckVerdict:
    """The worst XID of GPUs that answer; what those say that do not is for the check that they answer."""
    seen = sorted((*_judged(context), *_unjudged(context)), key=lambda s: (WORST_FIRST.index(s.result), s.gpu))
    if not context.gpus:
        return skipped("no GPU answers")
    if not seen:
        return passed("none")
    worst = seen[0]
    gpus = tuple(sorted({each.gpu for each in seen if each.result is worst.result}))
    evidence = _evidence((each.gpu, each.xid, each.text) for each in seen)
    more = f" (and {len(seen) - 1} more)" if len(seen) > 1 else ""
    if worst.result is CheckStatus.PASS:
        return CheckVerdict(
            CheckStatus.PASS, f"none that is the GPU's fault; GPU {worst.gpu}: {worst.text}{more}", evidence
        )
    advice = advised(worst.xid, worst.remedy)
    say = failed if worst.result is CheckStatus.FAIL else warned
    message = f"GPU {worst.gpu}: {worst.text}{more}"
    return say(message, evidence, gpus=gpus, remedy=advice.words, commands=advice.commands)


def advised(xid: int | None, rung: Remedy) -> Advice:
    """What the rung of the ladder says, and where to read more."""
    advice = ADVICE.get(rung, WATCH)
    more = () if xid is None else (f"gpuwatch xid explain {xid}",)
    return Advice(advice.words, (*more, *advice.commands))


WATCH = Advice("Nothing has to be done at once. Read what it means; look again if it comes back.")

WORST_FIRST = (CheckStatus.FAIL, CheckStatus.WARN, CheckStatus.PASS)

RESULTS: dict[str, CheckStatus] = {
    "xid_fatal": CheckStatus.FAIL,
    "xid_contained": CheckStatus.WARN,
    "xid_warning": CheckStatus.WARN,
    "xid_unknown": CheckStatus.WARN,
    "xid_application": CheckStatus.PASS,
    "xid_application_repeated": CheckStatus.WARN,
}
"""The agent's check -> what it means for a diagnosis. What one program did wrong is told, and held against no GPU."""


def told_of(context: CheckContext, gpus: frozenset[int]) -> dict[str, str]:
    """Evidence of XIDs against GPUs that do not answer, or of which nobody knows where they are."""
    found = context.findings(*RESULTS)
    return _evidence(
        (index, finding.xid, _words(context, finding)) for index, finding in found if index in {None, *gpus}
    )


def _evidence(told: Iterable[tuple[int | None, int | None, str]]) -> dict[str, str]:
    """`gpu 3, XID 79` -> words; from NVML index (None: nobody knows), XID and words."""
    return {
        f"XID {xid}" if gpu is None else f"gpu {gpu}, XID {xid}": text.removeprefix(f"XID {xid}: ")
        for gpu, xid, text in told
    }


def _judged(context: CheckContext) -> Iterator[Seen]:
    alive = {gpu.identity.index for gpu in context.gpus}
    for index, finding in context.findings(*RESULTS):
        if index in alive:
            yield Seen(RESULTS[finding.check], _words(context, finding), index, finding.xid, finding.remedy)


def _words(context: CheckContext, finding: Finding) -> str:
    pods = ", ".join(f"{pod.namespace}/{pod.pod}" for pod in finding.pods if pod.pod)
    return f"{finding.message}, {ago(moment(context) - finding.latest)}{f', pod {pods}' if pods else ''}"


def _unjudged(context: CheckContext) -> Iterator[Seen]:
    """XIDs from before anybody looked: of those a View has the last time only, and the agent's rules judge none."""
    view = context.facts.view
    if view is None or context.facts.agent:
        return
    gpus = {gpu.identity.uuid: gpu for gpu in context.gpus}
    judged = {(finding.gpu, finding.xid) for _, finding in context.findings(*RESULTS)}
    for count in view.xids:
        gpu = gpus.get(count.uuid or "")
        age = None if count.last is None else moment(context) - count.last
        if gpu is None or age is None or age > DAY or (count.uuid, count.xid) in judged:
            continue
        event = XidEvent(at=count.last or 0.0, xid=count.xid, source="kernel")
        kind = classify(event, context.config.checks.xids) or "unknown"
        result = _result(context, kind, age, gpu.recovery_action)
        if result is not None:
            info = explain(count.xid)
            text = f"XID {count.xid}: {info.summary if info else 'nobody has documented it'}, {ago(age)}"
            yield Seen(result, text, gpu.identity.index, count.xid, remedy(event, kind, gpu.recovery_action))


def _result(context: CheckContext, kind: Class, age: float, asked: int | None) -> CheckStatus | None:
    """A fatal one is over when the driver tells what it asks for, and asks for nothing."""
    if kind == "fatal":
        return CheckStatus.WARN if asked == 0 and age > context.config.checks.xid_clear_after else CheckStatus.FAIL
    if kind == "ignore" or age > context.config.checks.xid_expire:
        return None
    return CheckStatus.PASS if kind == "application" else CheckStatus.WARN


def ago(seconds: float) -> str:
    """`4 min ago`."""
    for unit, size in (("d", DAY), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{max(0.0, seconds):.0f} s ago"
