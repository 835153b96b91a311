"""The XID catalogue as table and document."""

from typing import Literal

import msgspec

from gpuwatch.cli.console.document import Envelope
from gpuwatch.cli.console.remedies import ladder
from gpuwatch.cli.console.table import Column
from gpuwatch.cli.xid.answer import first_remedy
from gpuwatch.model.finding import Remedy
from gpuwatch.model.xid_catalogue import XidInfo

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
    return Envelope(kind="XidCodeList", items=tuple(_code(row) for row in rows))


def causes(info: XidInfo) -> str:
    """The likeliest cause, and NVIDIA's others."""
    others = [CAUSES.get(cause, cause) for cause in info.causes if cause != info.cause]
    most = CAUSES.get(info.cause, info.cause)
    return f"most likely {most}" + (f"; also possible: {', '.join(others)}" if others else "")


def _code(info: XidInfo) -> XidCode:
    taken = {
        name: getattr(info, name) for name in XidCode.__struct_fields__ if name not in ("nvidia_action", "remedies")
    }
    return XidCode(nvidia_action=info.nvidia, remedies=ladder(first_remedy(info, None, {})), **taken)
