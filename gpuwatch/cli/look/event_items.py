"""XIDs, SXids, bus losses, findings and actions as one list of events, for tables and documents."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Literal

from gpuwatch.cli.console.table import Column
from gpuwatch.cli.console.words import Words, utc
from gpuwatch.cli.look.items import Item, same_members
from gpuwatch.model.event import EVERYTHING, Change, EventQuery, FindingEvent, Result
from gpuwatch.model.pci import pci_key
from gpuwatch.model.snapshot import Identity
from gpuwatch.model.view import Events, View
from gpuwatch.model.xid import BusLossEvent, XidEvent
from gpuwatch.model.xid_catalogue import explain

STYLES = {"warn": "yellow", "warning": "yellow", "fatal": "bold red", "critical": "bold red"}


class EventItem(Item, frozen=True, kw_only=True):
    """One event. `severity` is the catalogue's for an XID, the driver's for an SXid. `target` and the members below it
    are of actions, `evidence` also of findings; an action still `intended` was interrupted, or is under way.
    """

    at: datetime
    kind: Literal["xid", "sxid", "bus_loss", "finding", "action"]
    gpu: int | None = None
    uuid: str | None = None
    pci_bus_id: str | None = None
    switch: int | None = None
    xid: int | None = None
    sxid: int | None = None
    gi: int | None = None
    ci: int | None = None
    link: int | None = None
    pid: int | None = None
    name: str | None = None
    message: str | None = None
    severity: str | None = None
    recovery: int | None = None
    caused_by: int | None = None
    sources: tuple[str, ...] = ()
    historical: bool = False
    check: str | None = None
    change: Change | None = None
    since: datetime | None = None
    target: str | None = None
    action: str | None = None
    actor: str | None = None
    result: Result | None = None
    number: int | None = None
    before: str | None = None
    after: str | None = None
    evidence: tuple[str, ...] = ()


def event_items(events: Events, view: View | None, query: EventQuery = EVERYTHING) -> list[EventItem]:
    """The events that the query selects, oldest first. Without a View a GPU has its UUID or PCI address, no index."""
    statuses = view.snapshot.statuses if view else ()
    gpus: dict[str | None, Identity] = {pci_key(status.identity.pci_bus_id): status.identity for status in statuses}
    gpus |= {status.identity.uuid: status.identity for status in statuses}
    items = []
    for xid in events.xids:
        info, link = explain(xid.xid), xid.nvlink.link if xid.nvlink else None
        items.append(_gpu_event(xid, gpus, kind="xid", link=link, severity=info.severity if info else None))
    items += [
        same_members(EventItem, event, at=utc(event.at), kind="sxid", pci_bus_id=event.pci, sources=("kernel",))
        for event in events.sxids
    ]
    items += [
        _gpu_event(event, gpus, kind="bus_loss", severity="fatal", sources=("kernel",)) for event in events.bus_losses
    ]
    items += [_finding(event, gpus.get(event.finding.gpu)) for event in events.findings]
    ended = {action.number for action in events.actions if action.result is not Result.INTENDED}
    for action in events.actions:  # each once: its intention only where no result is known
        if action.result is not Result.INTENDED or action.number not in ended:
            items.append(
                same_members(
                    EventItem,
                    action,
                    at=utc(action.at),
                    kind="action",
                    message="; ".join(part for part in (action.why, action.detail) if part) or None,
                    before=action.before or None,
                    after=action.after or None,
                )
            )
    wanted = (item for item in items if item.kind in query.kinds and item.at >= utc(query.since))
    return sorted(wanted, key=lambda item: item.at)[-query.limit :]


def concerns(item: EventItem, gpus: Collection[str]) -> bool:
    """Whether it is about one of these GPUs, by uuid; an action is about those of the findings behind it."""
    return item.uuid in gpus or any(uuid in key for uuid in gpus for key in item.evidence)


def _gpu_event(event: XidEvent | BusLossEvent, gpus: Mapping[str | None, Identity], **members: Any) -> EventItem:
    """An event of the driver or the kernel, which names its GPU by UUID or PCI address."""
    gpu = gpus.get(event.uuid) if event.uuid in gpus else gpus.get(pci_key(event.pci))
    return same_members(
        EventItem,
        event,
        at=utc(event.at),
        gpu=gpu.index if gpu else None,
        uuid=event.uuid or (gpu.uuid if gpu else None),
        pci_bus_id=event.pci,
        **members,
    )


def _finding(event: FindingEvent, gpu: Identity | None) -> EventItem:
    finding = event.finding
    return EventItem(
        at=utc(event.at),
        kind="finding",
        gpu=gpu.index if gpu else None,
        uuid=finding.gpu,
        pci_bus_id=pci_key(gpu.pci_bus_id) if gpu else None,
        xid=finding.xid,
        gi=finding.gi,
        message=finding.message,
        severity=finding.severity.value,
        check=finding.check,
        change=event.change,
        since=None if finding.since is None else utc(finding.since),
        evidence=(finding.key,),
    )


def _what(item: EventItem) -> str:
    match item.kind:
        case "finding":
            return f"{item.check} {item.change}"
        case "action":
            return f"{item.action} {item.result}"
        case "bus_loss":
            return "bus loss"
    return f"{item.kind} {item.sxid if item.xid is None else item.xid}"


def _style(item: EventItem) -> str:
    if item.change is Change.ENDED:
        return "green"
    return "bold red" if item.result is Result.FAILED else STYLES.get(item.severity or "", "")


def _where(item: EventItem, words: Words) -> str:
    if item.switch is not None:
        return f"switch {item.switch}"
    if item.target is not None or (item.kind == "finding" and item.uuid is None):
        return item.target or "node"
    gpu = f"gpu {item.gpu}" if item.gpu is not None else words.text(item.pci_bus_id or item.uuid)
    return gpu if item.gi is None else f"{gpu} gi {item.gi}"


def _message(item: EventItem, words: Words) -> str:
    message = words.text(item.message)
    return message if item.caused_by is None else f"{message} (caused by XID {item.caused_by})"


COLUMNS: tuple[Column[EventItem], ...] = (
    Column("TIME", lambda e, w: w.clock_time(e.at.timestamp())),
    Column("WHERE", _where, shorten="middle", least=12),
    Column("EVENT", lambda e, w: _what(e), style=_style, shorten="end"),
    Column("PROCESS", lambda e, w: w.text(e.name or e.pid), drop=2),
    Column("MESSAGE", _message, shorten="end", drop=1, least=14),
    Column("CHANGE", lambda e, w: w.text(e.after), wide=True),
    Column("PID", lambda e, w: w.text(e.pid), right=True, wide=True),
    Column("SOURCE", lambda e, w: w.text(e.actor or "+".join(e.sources)), wide=True),
    Column("PCI", lambda e, w: w.text(e.pci_bus_id), wide=True),
)

HISTORY = (COLUMNS[1], COLUMNS[0], *COLUMNS[2:])
"""For the events of one GPU: WHERE comes first, as callers leave out the first column."""
