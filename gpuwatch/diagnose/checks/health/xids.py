"""Recent XIDs: those the agent judged as they happened, and those the kernel log has from before it started."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, failed, passed, skipped, warned
from gpuwatch.diagnose.checks.remedies import ADVICE, RESET_GPU, RepairAdvice
from gpuwatch.diagnose.model import CheckStage, CheckStatus
from gpuwatch.health.xid.classify import classify, remedy
from gpuwatch.model.finding import Finding, Remedy
from gpuwatch.model.xid import XidEvent
from gpuwatch.model.xid_catalogue import explain

DAY = 86400.0
"""An older XID without a finding is not reported."""

WATCH = RepairAdvice("Nothing has to be done at once. Read what it means; look again if it comes back.")

WORST_FIRST = (CheckStatus.FAIL, CheckStatus.WARN, CheckStatus.PASS)

STATUS_OF_CHECK: dict[str, CheckStatus] = {
    "xid_fatal": CheckStatus.FAIL,
    "xid_contained": CheckStatus.WARN,
    "xid_warning": CheckStatus.WARN,
    "xid_unconfirmed": CheckStatus.WARN,
    "xid_unknown": CheckStatus.WARN,
    "xid_application": CheckStatus.PASS,
    "xid_application_repeated": CheckStatus.WARN,
}
"""The agent's check -> status here. An error of one program is reported, but is no GPU's fault."""


class RecentXid(NamedTuple):
    """One XID of the GPU at an NVML index."""

    status: CheckStatus
    text: str
    gpu: int
    xid: int | None
    remedy: Remedy


def check_recent(context: CheckContext) -> CheckVerdict:
    """The worst XID of GPUs that answer; XIDs of the others are evidence of N04."""
    if not context.gpus:
        return skipped("no GPU answers")
    alive = {gpu.identity.index for gpu in context.gpus}
    found = [
        RecentXid(STATUS_OF_CHECK[finding.check], _text(context, finding), index, finding.xid, finding.remedy)
        for index, finding in context.findings(*STATUS_OF_CHECK)
        if index in alive
    ]
    found += _without_finding(context)
    found.sort(key=lambda x: (WORST_FIRST.index(x.status), x.gpu))
    if not found:
        return passed("none")
    worst = found[0]
    evidence = _evidence((each.gpu, each.xid, each.text) for each in found)
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    message = f"GPU {worst.gpu}: {worst.text}{more}"
    if worst.status is CheckStatus.PASS:
        return passed(f"none that is the GPU's fault; {message}", evidence)
    gpus = tuple(sorted({each.gpu for each in found if each.status is worst.status}))
    advice = ADVICE.get(worst.remedy, WATCH)
    commands = (*(() if worst.xid is None else (f"gpuwatch xid explain {worst.xid}",)), *advice.commands)
    answer = failed if worst.status is CheckStatus.FAIL else warned
    return answer(message, evidence, gpus=gpus, remedy=advice.text, commands=commands)


def xid_evidence(context: CheckContext, gpus: frozenset[int]) -> dict[str, str]:
    """Evidence of XIDs against these GPUs, which do not answer, or against GPUs without an index."""
    found = context.findings(*STATUS_OF_CHECK)
    return _evidence((index, f.xid, _text(context, f)) for index, f in found if index in {None, *gpus})


def _evidence(found: Iterable[tuple[int | None, int | None, str]]) -> dict[str, str]:
    """`gpu 3, XID 79` -> text; from NVML index (None: unknown), XID and text."""
    return {
        f"XID {xid}" if gpu is None else f"gpu {gpu}, XID {xid}": text.removeprefix(f"XID {xid}: ")
        for gpu, xid, text in found
    }


def _text(context: CheckContext, finding: Finding) -> str:
    pods = ", ".join(f"{pod.namespace}/{pod.pod}" for pod in finding.pods if pod.pod)
    return f"{finding.message}, {ago(context.sampled_at - finding.latest)}{f', pod {pods}' if pods else ''}"


def _without_finding(context: CheckContext) -> Iterator[RecentXid]:
    """XIDs from before gpuwatch started: a View has only the last time of each, and no rule of the agent judges it."""
    view, checks = context.facts.view, context.config.checks
    if view is None or context.facts.agent:
        return
    gpus = {gpu.identity.uuid: gpu for gpu in context.gpus}
    judged = {(finding.gpu, finding.xid) for _, finding in context.findings(*STATUS_OF_CHECK)}
    for count in view.xids:
        gpu = gpus.get(count.uuid or "")
        age = None if count.last is None else context.sampled_at - count.last
        if gpu is None or age is None or age > DAY or (count.uuid, count.xid) in judged:
            continue
        event = XidEvent(at=count.last or 0.0, xid=count.xid, source="kernel")
        kind = classify(event, checks.xids) or "unknown"
        if kind == "fatal":  # over when the driver reports which repair it asks for, and asks for none
            is_over = gpu.recovery_action == 0 and age > checks.xid_clear_after
            status = CheckStatus.WARN if is_over else CheckStatus.FAIL
        elif kind == "ignore" or age > checks.xid_expire:
            continue
        else:
            status = CheckStatus.PASS if kind == "application" else CheckStatus.WARN
        info = explain(count.xid)
        text = f"XID {count.xid}: {info.summary if info else 'not documented'}, {ago(age)}"
        yield RecentXid(status, text, gpu.identity.index, count.xid, remedy(event, kind, gpu.recovery_action))


def ago(seconds: float) -> str:
    """`4 min ago`."""
    for unit, size in (("d", DAY), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{max(0.0, seconds):.0f} s ago"


XIDS: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "G05", CheckStage.HEALTH, "no recent XID asks for a repair",
        how="XIDs of the kernel log and of NVML's events, by NVIDIA's catalogue",
        remedy=RESET_GPU.text,
        commands=RESET_GPU.commands,
        judge=check_recent, needs=("N04", "G02", "G03"), reads=("view",), each=True,
    ),
)  # fmt: skip
