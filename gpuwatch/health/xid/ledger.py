"""Every XID once: NVML and the kernel log both report an occurrence, and either may miss it."""

from collections import deque
from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec import structs

from gpuwatch.model.pci import pci_key
from gpuwatch.model.xid import BusLossEvent, KernelEvent, SxidCount, SxidEvent, XidCount, XidEvent, XidSource
from gpuwatch.model.xid_catalogue import explain

ZERO_XIDS = (48, 62, 63, 64, 74, 79, 94, 95, 109, 119, 120, 140)
"""Codes that ask for action: counted from 0 on every GPU, so that `increase()` counts the first one."""

Event = XidEvent | SxidEvent | BusLossEvent
_Count = TypeVar("_Count", XidCount, SxidCount)

_Kind = tuple[type[Event], str | None, int | None]
"""Type of event, PCI address, and code."""

_OPPOSITE: dict[XidSource, XidSource] = {"nvml": "kernel", "kernel": "nvml"}
_LINE_PARTS = ("gi", "ci", "pid", "name", "recovery", "nvlink", "caused_by")
_COMPLETED = (
    "uuid", "gi", "ci", "pid", "name", "message", "recovery", "nvlink", "caused_by", "boot_id", "sequence"
)  # fmt: skip


# How is one XID counted exactly once?
#
# Two sources report it: the driver's event set within milliseconds, without text, and the kernel log, with text and
# sometimes seconds later. Neither is complete: a lost GPU may send no event, a container may lack /dev/kmsg, the ring
# may run over. There is no common number: NVML gives GPU and code, the line gives PCI address, code and text, and
# their clocks differ. One code may also come several times within a second, from several GPU instances, and a killed
# job leaves 11,000 of one code within that second.
#
# Taking one source alone misses faults. Dropping everything alike within some seconds loses the second of two real
# occurrences, and a storm of one code would count as one. Waiting for both sources before counting delays the fault by
# the slower one, for ever where there is only one. Giving each report a deadline for its counterpart fails at a rate:
# whatever is late by more than the deadline counts twice, and so does what no longer fits a list of those that wait.
#
# So reports of one code on one GPU are a storm as long as no pause between two of them, from either source, is longer
# than `window`. Within a storm the ledger does not ask which report belongs to which, only how many of one source the
# other has not made yet: two integers. A report counts when its source is ahead, and completes the oldest incomplete
# occurrence when it catches up. The count of a storm is therefore the larger of the two sources' counts, in whatever
# order and however late within the storm they come: exact if one source is complete, never the sum. GPU instances
# are counted apart where both sources name one. A report belongs to a storm by its own time, not by when it came: a
# line that is read late finds the storm it was written in. That time is the one since boot, so that a wall clock which
# is set meanwhile separates no event from its line. Two limits remain: a source whose times are more than `window` off
# begins a storm of its own, and counts again; and in a storm of which both sources lose different reports, these
# losses cancel out, and the count is too low.
#
# A completed event is given out a second time by `news`, marked with `also`, for a line may decide what the code means.
# Of a storm only the newest `recent` occurrences can be completed; the count does not depend on them.
#
# Restarts would count twice what the ring still holds. Each kernel record is therefore known by boot and number, and
# lines from before the agent's start set the time of a row but count nothing: a restart must not look like a fault. An
# agent that was killed between NVML's report and its line has counted: the next waits for the line (`expect`). A GPU
# keeps its UUID here after it has vanished, because its last XIDs are the ones that matter.


STORMS = 4
"""Storms kept of one code on one GPU: a late report of the other source may belong to an earlier one."""


class _Ahead:
    """Reports of one source, about one GPU instance, that the other has not made yet; `numbers`: of the newest."""

    def __init__(self, recent: int) -> None:
        self.count = 0
        self.numbers: deque[int] = deque(maxlen=recent)

    def add(self, number: int) -> None:
        """One more, with its number in the ledger."""
        self.count += 1
        self.numbers.append(number)

    def take(self) -> int | None:
        """The oldest, which the other source has now reported; None when it is too old to be in `numbers`."""
        self.count -= 1
        return self.numbers.popleft() if len(self.numbers) > self.count else None


class _Storm:
    """Reports of one code on one GPU without a longer pause. `first`, `last`: seconds of the oldest and newest."""

    def __init__(self, at: float) -> None:
        self.first = self.last = at
        self.ahead: dict[tuple[XidSource, int | None], _Ahead] = {}

    def counterpart(self, event: XidEvent) -> _Ahead | None:
        """Reports that only the other source has made, about the same instance if both name one."""
        source = _OPPOSITE[event.source]
        ahead = {gi: each for (name, gi), each in self.ahead.items() if name == source and each.count}
        if event.gi is None:
            return ahead.get(None) or next(iter(ahead.values()), None)
        return ahead.get(event.gi) or ahead.get(None)


class XidLedger:
    """The node's XIDs, SXids and bus losses. Reads no clock; not to be called by two threads at once."""

    def __init__(self, *, window: float = 5.0, recent: int = 1_000) -> None:
        """`window`: longest pause of a storm, and so how late a source may be, in seconds. `recent`: events kept."""
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
        self._storms: dict[tuple[str | None, int], deque[_Storm]] = {}
        self._xids: dict[tuple[str | None, int], XidCount] = {}
        self._sxids: dict[tuple[int, int, str], SxidCount] = {}
        self._lost: dict[str, BusLossEvent] = {}
        self._records: dict[tuple[str | None, int], KernelEvent] = {}

    def know(self, gpus: Mapping[str, str]) -> None:
        """Set the GPU at each PCI address (in any form) -> UUID. GPUs that a later call leaves out stay known."""
        for address, uuid in gpus.items():
            pci = pci_key(address)
            if pci is not None:
                self._from_nvml.add(pci)
                self._identify(pci, uuid)
                for xid in ZERO_XIDS:
                    self._xids.setdefault((uuid, xid), XidCount(uuid=uuid, pci=pci, xid=xid))

    def expect(self, event: XidEvent) -> None:
        """Add an occurrence of this boot that an earlier agent counted from one source: a report of the other source
        completes it.
        """
        number = self._list(event)
        del self._news[number]
        self._storm(event).ahead.setdefault((event.source, event.gi), _Ahead(self._limit)).add(number)

    def observe(self, event: XidEvent | KernelEvent) -> Event | None:
        """Take the report of a source. Returns the occurrence if it is new, else None."""
        if isinstance(event, XidEvent):
            return self._xid(event)
        if self._is_repeated(event):
            return None
        line = event.line
        match line.kind:
            case "xid":
                parts = {name: getattr(line, name) for name in _LINE_PARTS}
                parts |= {"xid": line.xid or 0, "uptime": event.uptime}
                return self._xid(XidEvent(source="kernel", **parts, **_common(event)))
            case "sxid":
                severity = line.severity or "unknown"
                sxid = SxidEvent(
                    sxid=line.sxid or 0, switch=line.switch or 0, severity=severity, link=line.link, **_common(event)
                )
                self._list(sxid)
                key = (sxid.switch, sxid.sxid, sxid.severity)
                row = self._sxids.get(key) or SxidCount(switch=sxid.switch, sxid=sxid.sxid, severity=severity)
                self._sxids[key] = _counted(row, sxid.at, sxid.historical)
                return sxid
            case "bus_loss":
                return self._bus_loss(event)
            case "gpu_uuid":
                # the driver's line counts where NVML has not named the GPU at this address
                pci = pci_key(event.line.pci)
                if pci and event.line.uuid and pci not in self._from_nvml:
                    self._identify(pci, event.line.uuid)
        return None

    def xids(self) -> tuple[XidCount, ...]:
        """A row for each GPU and code."""
        return tuple(self._xids.values())

    def sxids(self) -> tuple[SxidCount, ...]:
        """A row for each NVSwitch, code and severity."""
        return tuple(self._sxids.values())

    def events(self) -> tuple[Event, ...]:
        """The latest occurrences in the order they became known, completed as far as both sources reported."""
        return tuple(self._events.values())

    def news(self) -> tuple[Event, ...]:
        """Occurrences since the last call, and earlier ones that the other source has completed since."""
        numbers, self._news = self._news, {}
        return tuple(self._events[number] for number in numbers if number in self._events)

    def lost(self) -> tuple[BusLossEvent, ...]:
        """The latest bus loss of each GPU that had one; the snapshot shows whether the GPU is back."""
        return tuple(structs.replace(loss, uuid=loss.uuid or self.uuid(loss.pci)) for loss in self._lost.values())

    def uuid(self, address: str | None) -> str | None:
        """The GPU at a PCI address, also when it has vanished since."""
        key = pci_key(address)
        return self._gpus.get(key) if key else None

    def _is_repeated(self, event: KernelEvent) -> bool:
        """Whether this record was read before: each opening of the kernel log reads the ring from its beginning."""
        if event.sequence is None:
            return False
        key = (event.boot_id, event.sequence)
        if (before := self._records.get(key)) is not None and before.line == event.line:
            return True
        self._records[key] = event
        while len(self._records) > self._limit:
            del self._records[next(iter(self._records))]
        return False

    def _xid(self, report: XidEvent) -> XidEvent | None:
        pci = pci_key(report.pci) or next((p for p, uuid in self._gpus.items() if uuid == report.uuid), None)
        event = structs.replace(report, pci=pci, uuid=report.uuid or self.uuid(pci))
        storm = None if event.historical else self._storm(event)
        counterpart = storm.counterpart(event) if storm else None
        if counterpart is not None:
            taken = counterpart.take()
            first = self._events.get(taken) if taken is not None else None
            if taken is not None and isinstance(first, XidEvent):
                more = {name: getattr(event, name) for name in _COMPLETED if getattr(first, name) is None}
                self._events[taken] = structs.replace(first, also=event.source, **more)
                self._news[taken] = None
                self._add_to_row(first, historical=True)  # an expected one has no row yet
            return None
        number = self._list(event)
        if storm is not None:
            storm.ahead.setdefault((event.source, event.gi), _Ahead(self._limit)).add(number)
            self.unknown += explain(event.xid) is None
        self._add_to_row(event, event.historical)
        return event

    def _add_to_row(self, event: XidEvent, historical: bool) -> None:
        key = (event.uuid or event.pci, event.xid)
        row = self._xids.get(key) or XidCount(uuid=event.uuid, pci=event.pci, xid=event.xid)
        self._xids[key] = _counted(row, event.at, historical)

    def _storm(self, event: XidEvent) -> _Storm:
        """The storm the event belongs to, by its time since boot, or by the clock where that is unknown."""
        at = event.at if event.uptime is None else event.uptime
        storms = self._storms.setdefault((event.pci or event.uuid, event.xid), deque(maxlen=STORMS))
        near = [each for each in storms if each.first - self._window <= at <= each.last + self._window]
        storm = next((each for each in near if each.counterpart(event)), near[-1] if near else None)
        if storm is None:
            storms.append(storm := _Storm(at))
        storm.first, storm.last = min(storm.first, at), max(storm.last, at)
        return storm

    def _bus_loss(self, report: KernelEvent) -> BusLossEvent | None:
        """The driver reports one loss in several records at once: only the first counts."""
        pci = pci_key(report.line.pci)
        before = self._lost.get(pci) if pci else None
        if pci is None or (before is not None and abs(report.at - before.at) <= self._window):
            return None
        event = BusLossEvent(uuid=self.uuid(pci), **_common(report))
        self._lost[pci] = event
        self._list(event)
        return event

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
            if known:
                last = max((at for at in (row.last, known.last) if at is not None), default=None)
                row = structs.replace(row, count=row.count + known.count, last=last)
            self._xids[uuid, row.xid] = row

    def _list(self, event: Event) -> int:
        self._number += 1
        self._events[self._number] = event
        self._news[self._number] = None
        code = event.xid if isinstance(event, XidEvent) else event.sxid if isinstance(event, SxidEvent) else None
        self._kinds.setdefault((type(event), event.pci, code), deque()).append(self._number)
        while len(self._events) > self._limit:
            # the oldest of the most frequent kind: a storm of one code must not displace the one line that matters
            kind, numbers = max(self._kinds.items(), key=lambda kind: len(kind[1]))
            number = numbers.popleft()
            if not numbers:
                del self._kinds[kind]
            del self._events[number]
            self._news.pop(number, None)
        return self._number


def _common(event: KernelEvent) -> dict[str, Any]:
    """What every event of the kernel log has."""
    return {
        "at": event.at,
        "pci": pci_key(event.line.pci),
        "message": event.line.message,
        "boot_id": event.boot_id,
        "sequence": event.sequence,
        "historical": event.historical,
    }


def _counted(row: _Count, at: float, historical: bool) -> _Count:
    last = at if row.last is None else max(row.last, at)
    return structs.replace(row, count=row.count + (not historical), last=last)
