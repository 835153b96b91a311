"""Every XID once: NVML and the kernel log tell of the same occurrence, and either may miss it.

The first arrival counts. What the other source says of the same GPU, code and moment only completes it. Lines
from before the agent's start are listed and date the row, but count nothing: a restart must not look like a
fault. A GPU keeps its UUID here after it has vanished: its last XIDs are the ones that matter.
"""

from collections import deque
from collections.abc import Mapping
from typing import TypeVar

from msgspec import structs

from gpuwatch.model.pci import pci_key
from gpuwatch.model.xid import BusLossEvent, KernelEvent, SxidCount, SxidEvent, XidCount, XidEvent, XidSource
from gpuwatch.model.xid_catalogue import explain

ZERO_XIDS = (48, 62, 63, 64, 74, 79, 94, 95, 109, 119, 120, 140)
"""Codes that ask for action: counted from 0 on every GPU, so that `increase()` sees the first one."""

Event = XidEvent | SxidEvent | BusLossEvent
_Count = TypeVar("_Count", XidCount, SxidCount)
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_Kind = tuple[type[Event], str | None, int | None]
"""What, where, and which code."""

_OPPOSITE: dict[XidSource, XidSource] = {"nvml": "kernel", "kernel": "nvml"}
_COMPLETED = (
    "uuid", "gi", "ci", "pid", "name", "message", "recovery", "nvlink", "caused_by", "boot_id", "sequence"
)  # fmt: skip


class XidLedger:
    """The node's XIDs, SXids and bus losses. Reads no clock; not to be called by two threads at once."""

    def __init__(self, *, window: float = 5.0, recent: int = 1_000) -> None:
        """`window`: seconds within which two sources mean one occurrence. `recent`: events kept."""
        self.unknown = 0
        """Occurrences, since the start, of codes the catalogue does not have."""
        self._window = window
        self._limit = recent
        self._gpus: dict[str, str] = {}
        self._from_nvml: set[str] = set()
        self._number = 0
        self._events: dict[int, Event] = {}
        self._news: dict[int, None] = {}
        self._kinds: dict[_Kind, deque[int]] = {}
        self._unpaired: dict[tuple[str | None, int, XidSource], deque[tuple[int, XidEvent]]] = {}
        self._xids: dict[tuple[str | None, int], XidCount] = {}
        self._sxids: dict[tuple[int, int, str], SxidCount] = {}
        self._lost: dict[str, BusLossEvent] = {}
        self._records: dict[tuple[str | None, int], KernelEvent] = {}

    def know(self, gpus: Mapping[str, str]) -> None:
        """Tell which GPU sits where: PCI address in any form -> UUID. GPUs left out later stay known."""
        for address, uuid in gpus.items():
            pci = pci_key(address)
            if pci is not None:
                self._from_nvml.add(pci)
                self._identify(pci, uuid)
                for xid in ZERO_XIDS:
                    self._xids.setdefault((uuid, xid), XidCount(uuid=uuid, pci=pci, xid=xid))

    def observe(self, event: XidEvent | KernelEvent) -> Event | None:
        """Take what a source tells. Gives the occurrence if it is new, None if it is nothing new."""
        if isinstance(event, XidEvent):
            return self._xid(event)
        if self._is_repeated(event):
            return None
        match event.line.kind:
            case "xid":
                return self._xid(_xid_event(event))
            case "sxid":
                return self._sxid(_sxid_event(event))
            case "bus_loss":
                return self._bus_loss(event)
            case "gpu_uuid":
                self._learn(event)
        return None

    def xids(self) -> tuple[XidCount, ...]:
        """A row for each GPU and code."""
        return tuple(self._xids.values())

    def sxids(self) -> tuple[SxidCount, ...]:
        """A row for each NVSwitch, code and severity."""
        return tuple(self._sxids.values())

    def events(self) -> tuple[Event, ...]:
        """The latest occurrences in the order they became known, completed as far as both sources told."""
        return tuple(self._events.values())

    def news(self) -> tuple[Event, ...]:
        """What came since the last call, and what of it, or of before, the other source has completed since."""
        numbers, self._news = self._news, {}
        return tuple(self._events[number] for number in numbers if number in self._events)

    def lost(self) -> tuple[BusLossEvent, ...]:
        """The latest bus loss of each GPU that had one; whether the GPU is back is for the snapshot to say."""
        return tuple(structs.replace(loss, uuid=loss.uuid or self.uuid(loss.pci)) for loss in self._lost.values())

    def uuid(self, address: str | None) -> str | None:
        """The GPU at a PCI address, also when it has vanished since."""
        key = pci_key(address)
        return self._gpus.get(key) if key else None

    def _is_repeated(self, event: KernelEvent) -> bool:
        """The ring is read from its beginning whenever the kernel log is opened again."""
        if event.sequence is None:
            return False
        key = (event.boot_id, event.sequence)
        if (before := self._records.get(key)) is not None and before.line == event.line:
            return True
        self._records[key] = event
        _trim(self._records, self._limit)
        return False

    def _xid(self, told: XidEvent) -> XidEvent | None:
        pci = pci_key(told.pci) or next((p for p, uuid in self._gpus.items() if uuid == told.uuid), None)
        event = structs.replace(told, pci=pci, uuid=told.uuid or self.uuid(pci))
        if self._completes_another(event):
            return None
        number = self._list(event)
        if not event.historical:
            waiting = self._waiting(event, event.source)
            waiting.append((number, event))
            self.unknown += explain(event.xid) is None
        key = (event.uuid or event.pci, event.xid)
        row = self._xids.get(key) or XidCount(uuid=event.uuid, pci=event.pci, xid=event.xid)
        self._xids[key] = _counted(row, event.at, event.historical)
        return event

    def _completes_another(self, event: XidEvent) -> bool:
        """Pair the event with the oldest of the other source that still waits for its counterpart."""
        if event.historical:
            return False
        waiting = self._waiting(event, _OPPOSITE[event.source])
        for place, (number, first) in enumerate(waiting):
            if None in (first.gi, event.gi) or first.gi == event.gi:
                del waiting[place]
                news = {name: getattr(event, name) for name in _COMPLETED if getattr(first, name) is None}
                if number in self._events:
                    self._events[number] = structs.replace(first, also=event.source, **news)
                    self._news[number] = None
                return True
        return False

    def _waiting(self, event: XidEvent, source: XidSource) -> deque[tuple[int, XidEvent]]:
        """Occurrences like this one that only `source` has told of, the expired ones dropped."""
        key = (event.pci or event.uuid, event.xid, source)
        waiting = self._unpaired.setdefault(key, deque(maxlen=self._limit))
        while waiting and abs(event.at - waiting[0][1].at) > self._window:
            waiting.popleft()
        return waiting

    def _sxid(self, event: SxidEvent) -> SxidEvent:
        self._list(event)
        key = (event.switch, event.sxid, event.severity)
        row = self._sxids.get(key) or SxidCount(switch=event.switch, sxid=event.sxid, severity=event.severity)
        self._sxids[key] = _counted(row, event.at, event.historical)
        return event

    def _bus_loss(self, told: KernelEvent) -> BusLossEvent | None:
        """The driver writes of one loss in several ways at once: the first is enough."""
        pci = pci_key(told.line.pci)
        before = self._lost.get(pci) if pci else None
        if pci is None or (before is not None and abs(told.at - before.at) <= self._window):
            return None
        event = BusLossEvent(
            at=told.at,
            pci=pci,
            uuid=self.uuid(pci),
            message=told.line.message,
            boot_id=told.boot_id,
            sequence=told.sequence,
            historical=told.historical,
        )
        self._lost[pci] = event
        self._list(event)
        return event

    def _learn(self, event: KernelEvent) -> None:
        """The driver's own word, when NVML has not told of this place."""
        pci = pci_key(event.line.pci)
        if pci and event.line.uuid and pci not in self._from_nvml:
            self._identify(pci, event.line.uuid)

    def _identify(self, pci: str, uuid: str) -> None:
        if self._gpus.get(pci) == uuid:
            return
        self._gpus[pci] = uuid
        for number, event in self._events.items():
            if not isinstance(event, SxidEvent) and event.pci == pci and event.uuid is None:
                self._events[number] = structs.replace(event, uuid=uuid)
        for key in [key for key in self._xids if key[0] == pci]:
            row = structs.replace(self._xids.pop(key), uuid=uuid)
            known = self._xids.get((uuid, row.xid))
            self._xids[uuid, row.xid] = _sum(row, known) if known else row

    def _list(self, event: Event) -> int:
        self._number += 1
        self._events[self._number] = event
        self._news[self._number] = None
        self._kinds.setdefault(_kind(event), deque()).append(self._number)
        while len(self._events) > self._limit:
            self._forget_one()
        return self._number

    def _forget_one(self) -> None:
        """The oldest of the most frequent kind: a storm of one code must not drown the one line that matters."""
        kind, numbers = max(self._kinds.items(), key=_how_many)
        number = numbers.popleft()
        if not numbers:
            del self._kinds[kind]
        del self._events[number]
        self._news.pop(number, None)


def _kind(event: Event) -> _Kind:
    code = event.xid if isinstance(event, XidEvent) else event.sxid if isinstance(event, SxidEvent) else None
    return type(event), event.pci, code


def _how_many(kind: tuple[_Kind, deque[int]]) -> int:
    return len(kind[1])


def _xid_event(event: KernelEvent) -> XidEvent:
    line = event.line
    return XidEvent(
        at=event.at,
        xid=line.xid or 0,
        source="kernel",
        pci=pci_key(line.pci),
        gi=line.gi,
        ci=line.ci,
        pid=line.pid,
        name=line.name,
        message=line.message,
        recovery=line.recovery,
        nvlink=line.nvlink,
        caused_by=line.caused_by,
        boot_id=event.boot_id,
        sequence=event.sequence,
        historical=event.historical,
    )


def _sxid_event(event: KernelEvent) -> SxidEvent:
    line = event.line
    return SxidEvent(
        at=event.at,
        sxid=line.sxid or 0,
        switch=line.switch or 0,
        pci=pci_key(line.pci),
        severity=line.severity or "unknown",
        link=line.link,
        message=line.message,
        boot_id=event.boot_id,
        sequence=event.sequence,
        historical=event.historical,
    )


def _counted(row: _Count, at: float, historical: bool) -> _Count:
    last = at if row.last is None else max(row.last, at)
    return structs.replace(row, count=row.count + (not historical), last=last)


def _sum(row: XidCount, other: XidCount) -> XidCount:
    last = max((at for at in (row.last, other.last) if at is not None), default=None)
    return structs.replace(row, count=row.count + other.count, last=last)


def _trim(items: dict[_Key, _Value], limit: int) -> None:
    while len(items) > limit:
        del items[next(iter(items))]
