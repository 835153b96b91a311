"""What gpuwatch does about an XID: which check it becomes, and the answer of the policy in force."""

from collections.abc import Iterator

from gpuwatch.cli.xid.decode import Fact
from gpuwatch.config import Config
from gpuwatch.health.checks import CHECKS
from gpuwatch.health.xid.classify import CHECK_OF, Class, classify, remedy
from gpuwatch.kube.objects import TAINT
from gpuwatch.model.check_names import XidClass
from gpuwatch.model.finding import Remedy
from gpuwatch.model.response import Response
from gpuwatch.model.xid import KernelLine, XidEvent
from gpuwatch.model.xid_catalogue import XidInfo
from gpuwatch.remediation.planning.policy import Policy

ANSWERS = {
    Response.IGNORE: "nothing",
    Response.OBSERVE: "it is shown and counted; the Node is not touched",
    Response.CONDITION: "condition GPUHealthy=False and an Event; the Node goes on getting work",
    Response.TAINT: f"taint {TAINT}: the Node gets no new work, what runs goes on",
    Response.CORDON: f"taint {TAINT} and cordon: the Node gets no new pods at all, what runs goes on",
    Response.DRAIN: f"taint {TAINT}, and the pods on the GPU are asked to leave; disruption budgets are respected",
}

CLASSES: dict[Class, str] = {
    "fatal": "the GPU is out of order until it is repaired",
    "contained": "the GPU goes on, and wants a reset when its work is done",
    "warning": "worth knowing",
    "application": "the application's own fault: never held against the GPU",
    "ignore": "harmless",
    "unknown": "not documented: recorded, never acted on",
}


def event_of(info: XidInfo, line: KernelLine | None) -> XidEvent:
    """The occurrence that a line tells of, or one of which no more than the number is known."""
    if line is None:
        return XidEvent(at=0.0, xid=info.code, source="nvml")
    told = {name: getattr(line, name) for name in ("message", "recovery", "nvlink", "gi", "caused_by")}
    return XidEvent(at=0.0, xid=info.code, source="kernel", **told)


def answer(info: XidInfo, line: KernelLine | None, config: Config) -> Iterator[Fact]:
    """Class, check and response."""
    kind = classify(event_of(info, line), config.checks.xids, final=line is not None)
    if kind is None:
        yield Fact("class", "its line decides: gpuwatch xid explain 'LINE' decodes a whole one; if it is fatal:")
        kind = "fatal"
    else:
        named = f" (checks.xids.{info.code})" if info.code in config.checks.xids else ""
        yield Fact("class", f"{kind}: {CLASSES[kind]}{named}")
    check = CHECK_OF.get(kind)
    if check is None:
        return
    yield Fact("check", check)
    response = Policy.compile(config.remediation, CHECKS, config.checks.xids).answer(check, info.code)
    yield Fact("response", f"{response}: {ANSWERS[response]} ({_origin(config, check, info.code)})")
    if config.remediation.mode != "enforce" and response.reaches(Response.CONDITION):
        yield Fact("mode", f"{config.remediation.mode}: nothing is changed; with remediation.mode enforce it would be")


def first_remedy(info: XidInfo, line: KernelLine | None, overrides: dict[int, XidClass]) -> Remedy:
    """The rung to begin with; none where only a line can tell."""
    if line is None and info.decided_by == "recovery":
        return Remedy.NONE
    event = event_of(info, line)
    kind = classify(event, overrides) or "unknown"
    return Remedy.NONE if kind == "ignore" else remedy(event, kind, None)


def _origin(config: Config, check: str, code: int) -> str:
    if code in config.remediation.xids:
        return f"remediation.xids.{code}"
    return f"remediation.checks.{check}" if check in config.remediation.checks else "default"
