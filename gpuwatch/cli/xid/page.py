"""One XID as table row, document and page: what it means, what gpuwatch does about it, and what a person should do."""

from collections.abc import Iterable, Iterator
from typing import Literal

from gpuwatch.cli.console.document import Envelope
from gpuwatch.cli.console.remedies import REMEDY_STEPS, escalation
from gpuwatch.cli.console.table import Column
from gpuwatch.cli.console.text import Text
from gpuwatch.cli.console.words import wrap
from gpuwatch.cli.look.items import Item, same_members
from gpuwatch.cli.xid.decode import DECIDES, Fact, decoded, sentence, table_of
from gpuwatch.config import Config
from gpuwatch.health.checks import CHECKS
from gpuwatch.health.corroboration import UNCONFIRMED
from gpuwatch.health.xid.classify import CHECK_OF, Class, classify, remedy
from gpuwatch.kube.objects import TAINT
from gpuwatch.model.finding import Remedy, Response, XidClass
from gpuwatch.model.xid import KernelLine, XidEvent
from gpuwatch.model.xid_catalogue import Confirmation, XidInfo
from gpuwatch.remediation.planning.policy import Policy

ANSWERS = {
    Response.IGNORE: "nothing",
    Response.OBSERVE: "it is shown and counted; the Node is not touched",
    Response.CONDITION: "condition GPUHealthy=False and an Event; the Node still gets work",
    Response.TAINT: f"taint {TAINT}: the Node gets no new work, running pods stay",
    Response.CORDON: f"taint {TAINT} and cordon: the Node gets no new pods at all, running pods stay",
    Response.DRAIN: f"taint {TAINT}, and the pods on the GPU are asked to leave; disruption budgets are respected",
}

CONFIRMATIONS: dict[Confirmation, str] = {
    "event": "NVML's event of this code",
    "recovery_action": "a recovery action",
    "ecc": "uncorrected ECC errors",
    "remap": "a row remap or repair",
    "retired_pages": "retired pages",
    "lost": "the GPU is lost or missing",
    "silence": "calls that do not return",
    "nvlink": "NVLinks down or with errors",
    "fabric": "the fabric's state",
    "power": "the power brake",
}
"""How the driver confirms a line of the kernel log."""

CLASSES: dict[Class, str] = {
    "fatal": "the GPU is out of order until it is repaired",
    "contained": "the GPU works on, and needs a reset when its work is done",
    "warning": "worth knowing",
    "application": "the application's own fault: never held against the GPU",
    "ignore": "harmless",
    "unknown": "not documented: recorded, never acted on",
}


def event_of(info: XidInfo, line: KernelLine | None) -> XidEvent:
    """The occurrence that a line reports, or one of which only the number is known."""
    if line is None:
        return XidEvent(at=0.0, xid=info.code, source="nvml")
    members = {name: getattr(line, name) for name in ("message", "recovery", "nvlink", "gi", "caused_by")}
    return XidEvent(at=0.0, xid=info.code, source="kernel", **members)


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
    if check in config.checks.ignore:
        yield Fact("ignored", "no finding, so no alert and no condition (checks.ignore)")
        return
    if check in UNCONFIRMED:
        words = ", ".join(CONFIRMATIONS[word] for word in info.confirmed_by)
        yield Fact("confirmed", f"by any of: {words}; without it {UNCONFIRMED[check]}, which is never acted on")
    response = Policy.compile(config.remediation, CHECKS, config.checks.xids).answer(check, info.code)
    origin = "default"
    if info.code in config.remediation.xids:
        origin = f"remediation.xids.{info.code}"
    elif check in config.remediation.checks:
        origin = f"remediation.checks.{check}"
    yield Fact("response", f"{response}: {ANSWERS[response]} ({origin})")
    if config.remediation.mode != "enforce" and response.reaches(Response.CONDITION):
        yield Fact("mode", f"{config.remediation.mode}: nothing is changed; with remediation.mode enforce it would be")


def first_remedy(info: XidInfo, line: KernelLine | None, overrides: dict[int, XidClass]) -> Remedy:
    """The remedy to begin with; none where only the line decides it."""
    if line is None and info.decided_by == "recovery":
        return Remedy.NONE
    event = event_of(info, line)
    kind = classify(event, overrides) or "unknown"
    return Remedy.NONE if kind == "ignore" else remedy(event, kind, None)


SEVERITY_STYLES = {"info": "", "warn": "yellow", "fatal": "bold red"}
CAUSES = {
    "app": "the application",
    "bus": "the PCIe bus",
    "driver": "the driver",
    "fabric": "NVLink or its fabric",
    "firmware": "the GPU's firmware",
    "hardware": "the GPU's hardware",
    "system_memory": "system memory",
    "framebuffer": "GPU memory",
    "thermal": "heat",
    "advisory": "nothing: it is advice",
}


class XidCode(Item, frozen=True, kw_only=True):
    """One code of the catalogue, as scripts get it."""

    code: int
    name: str
    description: str
    severity: Literal["info", "warn", "fatal"]
    category: Literal["hardware", "driver", "application", "unknown"]
    cause: str
    causes: tuple[str, ...]
    action: str
    nvidia_action: str | None
    investigate: str | None
    taint: bool
    confirmed_by: tuple[str, ...]
    decided_by: str | None
    unused: bool
    since: str | None
    note: str | None
    remedies: tuple[Remedy, ...] = ()


COLUMNS: tuple[Column[XidInfo], ...] = (
    Column("XID", lambda x, w: str(x.code), right=True),
    Column("SEVERITY", lambda x, w: x.severity, style=lambda x: SEVERITY_STYLES[x.severity]),
    Column("CATEGORY", lambda x, w: x.category, drop=1),
    Column("ACTION", lambda x, w: x.action, drop=2),
    Column("MEANING", lambda x, w: x.description, shorten="end"),
    Column("NAME", lambda x, w: x.name, wide=True),
)


def catalogue_document(rows: tuple[XidInfo, ...]) -> Envelope:
    """The codes as a document."""
    items = tuple(
        same_members(XidCode, row, nvidia_action=row.nvidia, remedies=escalation(first_remedy(row, None, {})))
        for row in rows
    )
    return Envelope(kind="XidCodeList", items=items)


LABEL = 12
WIDEST_LABEL = 44
PLACES = {"node": "NODE", "gpu": "INDEX", "namespace": "NAMESPACE", "pod": "POD"}
"""Placeholders in commands for what the page cannot know."""


def page(info: XidInfo, line: KernelLine | None, config: Config, width: int) -> list[Text]:
    """One code in sentences, at most `width` columns wide; `line`: a kernel line of it, to decode."""
    head = Text.assemble(
        (f"XID {info.code}", "bold"), f"  {info.name}  ", (info.severity, SEVERITY_STYLES[info.severity])
    )
    about = [Text(f"  {text}") for text in wrap(info.description, width - 2)]
    lines = [head, *about]
    if line is not None:
        lines += _section("This line", decoded(line), width)
    others = [CAUSES.get(cause, cause) for cause in info.causes if cause != info.cause]
    also = f"; also possible: {', '.join(others)}" if others else ""
    cause = [Fact("cause", f"most likely {CAUSES.get(info.cause, info.cause)}{also}"), Fact("category", info.category)]
    if info.since:
        cause.append(Fact("since", f"driver {info.since}"))
    if info.note:
        cause.append(Fact("note", info.note))
    if info.unused:
        cause.append(Fact("note", "NVIDIA calls this code unused on Ampere and newer."))
    lines += _section("Cause", cause, width)
    lines += _section("What gpuwatch does", answer(info, line, config), width)
    first = first_remedy(info, line, config.checks.xids)
    advice = []
    if actions := [action for action in (info.nvidia, info.investigate) if action]:
        texts = dict.fromkeys(f"{sentence(action)} ({action})" for action in actions)
        advice.append(Fact("NVIDIA", ", then ".join(texts)))
    if first is Remedy.NONE:
        decides = line is None and info.decided_by
        advice.append(Fact("do", "what the line decides, see below" if decides else "nothing"))
    lines += _section("What to do", advice, width) + _steps(info, first, width)
    if line is None and info.decided_by:
        lines += _section(DECIDES[info.decided_by], table_of(info), width)
    return lines


def _steps(info: XidInfo, first: Remedy, width: int) -> list[Text]:
    """The remedies in order, each with the commands that no earlier one has; the next is for an error that returns."""
    again = "in other programs too" if info.category == "application" else "if it comes back"
    lines: list[Text] = []
    shown: set[str] = set()
    for number, rung in enumerate(map(REMEDY_STEPS.__getitem__, escalation(first)), 1):
        title = f"  {number}. {f'{again}: ' if number > 1 else ''}{rung.text}"
        lines += [Text(text) for text in wrap(title, width, subsequent_indent=" " * 5)]
        commands = [command for command in rung.commands if command not in shown]
        lines += [Text.assemble("       ", (command.format(**PLACES), "cyan")) for command in commands]
        shown |= set(rung.commands)
    return lines


def _section(title: str, facts: Iterable[Fact], width: int) -> list[Text]:
    """A headline, and facts: each text is indented beside its label."""
    rows = list(facts)
    if not rows:
        return []
    size = min(max(LABEL, *(len(row.label) + 4 for row in rows)), WIDEST_LABEL)
    lines = [Text(""), Text(title, "bold")]
    for row in rows:
        label = f"  {row.label}"
        if len(label) + 2 > size:
            lines.append(Text(label))
            label = ""
        for text in wrap(row.text, width - size):
            lines.append(Text(f"{label:<{size}}{text}"))
            label = ""
    return lines
