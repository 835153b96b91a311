"""The XID catalogue as table, document and explanation."""

import textwrap
from typing import TYPE_CHECKING, Literal

import msgspec

from gpuwatch.cli.document import Envelope
from gpuwatch.cli.table import Column
from gpuwatch.model.xid_catalogue import XidInfo

if TYPE_CHECKING:
    from rich.text import Text

INDENT = 12

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
}
DECIDED_BY = {
    "recovery": "The number in the line decides: it is the recovery action the GPU asks for.",
    "nvlink": "The line's unit and error words decide how bad it is.",
    "retirement": "The text of the line decides: some wordings are harmless.",
}


class XidCode(msgspec.Struct, frozen=True, kw_only=True):
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
    decided_by: str | None
    unused: bool
    since: str | None
    note: str | None


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
    return Envelope(kind="XidCodeList", items=tuple(_code(row) for row in rows))


def explanation(info: XidInfo, width: int) -> "list[Text]":
    """One code, in sentences, at most `width` columns wide."""
    from rich.text import Text

    head = Text.assemble(
        (f"XID {info.code}", "bold"), f"  {info.name}  ", (info.severity, SEVERITY_STYLES[info.severity]), end=""
    )
    facts = [
        ("cause", _causes(info)),
        ("category", info.category),
        ("do", spelled(info.action)),
        ("NVIDIA", spelled(info.nvidia) if info.nvidia and info.nvidia != info.action else None),
        ("then", spelled(info.investigate) if info.investigate else None),
        ("taint", "yes: restarting the application cannot help" if info.taint else "no"),
        ("since", f"driver {info.since}" if info.since else None),
        ("note", info.note),
        ("", DECIDED_BY.get(info.decided_by or "")),
        ("", "NVIDIA calls this code unused on Ampere and newer." if info.unused else None),
    ]
    body = [line for label, text in facts if text for line in _fact(label, text, width)]
    about = [Text(f"  {line}", end="") for line in textwrap.wrap(info.description, width - 2)]
    return [head, *about, Text("", end=""), *body]


def _fact(label: str, text: str, width: int) -> "list[Text]":
    """A label and its text, which hangs beside it."""
    from rich.text import Text

    return [
        Text.assemble(("" if number else f"  {label}").ljust(INDENT), line, end="")
        for number, line in enumerate(textwrap.wrap(text, width - INDENT))
    ]


def spelled(action: str) -> str:
    """NVIDIA's action word in lower case, the word itself kept for searching."""
    return f"{action.replace('_', ' ').lower()} ({action})"


def _causes(info: XidInfo) -> str:
    others = [CAUSES.get(cause, cause) for cause in info.causes if cause != info.cause]
    most = CAUSES.get(info.cause, info.cause)
    return f"most likely {most}" + (f"; also possible: {', '.join(others)}" if others else "")


def _code(info: XidInfo) -> XidCode:
    taken = {name: getattr(info, name) for name in XidCode.__struct_fields__ if name != "nvidia_action"}
    return XidCode(nvidia_action=info.nvidia, **taken)
