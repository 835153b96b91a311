"""XIDs, SXids and bus losses as one list of events, for tables and documents."""

from datetime import datetime
from typing import Literal

from gpuwatch.cli.items import Item
from gpuwatch.cli.table import Column
from gpuwatch.cli.words import Words, utc
from gpuwatch.model.pci import pci_key
from gpuwatch.model.snapshot import Identity
from gpuwatch.model.view import Events, View
from gpuwatch.model.xid import BusLossEvent, SxidEvent, XidEvent
from gpuwatch.model.xid_catalogue import explain

STYLES = {"info": "", "warn": "yellow", "fatal": "bold red"}


class EventItem(Item, frozen=True, kw_only=True):
    """One event. `severity` is the catalogue's for an XID, the driver's for an SXid."""

    at: datetime
    kind: Literal["xid", "sxid", "bus_loss"]
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


def event_items(events: Events, view: View) -> list[EventItem]:
    """Everything that happened, oldest first."""
    gpus = {pci_key(status.identity.pci_bus_id): status.identity for status in view.snapshot.statuses}
    items = [_xid(event, gpus.get(pci_key(event.pci))) for event in events.xids]
    items += [_sxid(event) for event in events.sxids]
    items += [_bus_loss(event, gpus.get(pci_key(event.pci))) for event in events.bus_losses]
    return sorted(items, key=lambda item: item.at)


def _xid(event: XidEvent, gpu: Identity | None) -> EventItem:
    info = explain(event.xid)
    return EventItem(
        at=utc(event.at),
        kind="xid",
        gpu=gpu.index if gpu else None,
        uuid=event.uuid or (gpu.uuid if gpu else None),
        pci_bus_id=event.pci,
        xid=event.xid,
        gi=event.gi,
        ci=event.ci,
        link=event.nvlink.link if event.nvlink else None,
        pid=event.pid,
        name=event.name,
        message=event.message,
        severity=info.severity if info else None,
        recovery=event.recovery,
        caused_by=event.caused_by,
        sources=tuple(source for source in (event.source, event.also) if source),
        historical=event.historical,
    )


def _sxid(event: SxidEvent) -> EventItem:
    return EventItem(
        at=utc(event.at),
        kind="sxid",
        pci_bus_id=event.pci,
        switch=event.switch,
        sxid=event.sxid,
        link=event.link,
        message=event.message,
        severity=event.severity,
        sources=("kernel",),
        historical=event.historical,
    )


def _bus_loss(event: BusLossEvent, gpu: Identity | None) -> EventItem:
    return EventItem(
        at=utc(event.at),
        kind="bus_loss",
        gpu=gpu.index if gpu else None,
        uuid=event.uuid or (gpu.uuid if gpu else None),
        pci_bus_id=event.pci,
        message=event.message,
        severity="fatal",
        sources=("kernel",),
        historical=event.historical,
    )


def _what(item: EventItem) -> str:
    return f"{item.kind} {item.xid or item.sxid}" if item.kind != "bus_loss" else "bus loss"


def _where(item: EventItem, words: Words) -> str:
    if item.switch is not None:
        return f"switch {item.switch}"
    gpu = f"gpu {item.gpu}" if item.gpu is not None else words.text(item.pci_bus_id)
    return gpu if item.gi is None else f"{gpu} gi {item.gi}"


def _message(item: EventItem, words: Words) -> str:
    message = words.text(item.message)
    return message if item.caused_by is None else f"{message} (caused by XID {item.caused_by})"


COLUMNS: tuple[Column[EventItem], ...] = (
    Column("TIME", lambda e, w: w.clock_time(e.at.timestamp())),
    Column("WHERE", _where),
    Column("EVENT", lambda e, w: _what(e), style=lambda e: STYLES.get(e.severity or "", "")),
    Column("PROCESS", lambda e, w: w.text(e.name or e.pid), drop=1),
    Column("MESSAGE", _message, shorten="end"),
    Column("PID", lambda e, w: w.text(e.pid), right=True, wide=True),
    Column("TOLD-BY", lambda e, w: "+".join(e.sources), wide=True),
    Column("PCI", lambda e, w: w.text(e.pci_bus_id), wide=True),
)
