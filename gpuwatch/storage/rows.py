"""What the store keeps of an event: a key that the same event always has, its time, kind, GPU and boot, and its JSON.

The key makes writing twice harmless: a kernel line read again is the same row, whichever source reported the XID first,
and an XID that a second source has completed replaces the first report.
"""

import logging
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec import structs

from gpuwatch.model.decoding import prepared
from gpuwatch.model.event import EVENT_KINDS, ActionEvent, FindingEvent
from gpuwatch.model.snapshot import UNREADABLE
from gpuwatch.model.view import SCHEMA, Events
from gpuwatch.model.xid import BusLossEvent, SxidEvent, XidEvent

log = logging.getLogger(__name__)

StoredEvent = XidEvent | SxidEvent | BusLossEvent | FindingEvent | ActionEvent

_TYPES: tuple[type[StoredEvent], ...] = (XidEvent, SxidEvent, BusLossEvent, FindingEvent, ActionEvent)

KINDS: dict[str, type[StoredEvent]] = dict(zip(EVENT_KINDS, _TYPES, strict=True))
"""Kind of a row -> type of its body."""

_NAMES = {type_: kind for kind, type_ in KINDS.items()}


class StoredRow(NamedTuple):
    """One event as the table has it. `gpu` is a uuid, `body` the event as JSON; it takes the place of the row with the
    key `replaces`, which the same event had before its kernel line was read.
    """

    key: str
    at: float
    kind: str
    gpu: str | None
    boot_id: str | None
    body: bytes
    replaces: str | None = None


class StoredDocument(NamedTuple):
    """One named value that is replaced as a whole."""

    name: str
    at: float
    body: bytes


def row_of(event: StoredEvent) -> StoredRow:
    """The row of one event."""
    gpu = event.finding.gpu if isinstance(event, FindingEvent) else getattr(event, "uuid", None)
    kind = _NAMES[type(event)]
    key, body = _key(kind, event), msgspec.json.encode(event)
    replaces = None
    if isinstance(event, XidEvent) and event.source == "nvml" and event.sequence is not None:
        replaces = _key(kind, structs.replace(event, sequence=None))
    return StoredRow(key, event.at, kind, gpu, event.boot_id, body, replaces)


def newest_events(rows: Iterable[StoredRow], limit: int) -> Events:
    """The newest events of rows, oldest first; of rows with the same key the last. What cannot be read is left out."""
    ordered = sorted({row.key: row for row in rows}.values(), key=lambda row: row.at)
    found = [event for row in ordered[-limit:] if (event := _event(row)) is not None]
    return Events(
        xids=tuple(event for event in found if isinstance(event, XidEvent)),
        sxids=tuple(event for event in found if isinstance(event, SxidEvent)),
        bus_losses=tuple(event for event in found if isinstance(event, BusLossEvent)),
        findings=tuple(event for event in found if isinstance(event, FindingEvent)),
        actions=tuple(event for event in found if isinstance(event, ActionEvent)),
    )


PIECE_BYTES = 64 * 1024


def events_json(rows: Callable[[str], Iterable[StoredRow]]) -> Generator[bytes]:
    """`Events` as JSON, of the rows of each kind, in pieces of PIECE_BYTES: never held in memory as a whole."""
    piece = bytearray(b'{"schema":%d' % SCHEMA)
    for kind, member in zip(EVENT_KINDS, Events.__struct_fields__[1:], strict=True):
        piece += b',"%s":[' % member.encode()
        separator = b""
        for row in rows(kind):
            if (event := _event(row)) is not None:
                piece += separator + msgspec.json.encode(event)
                separator = b","
            if len(piece) >= PIECE_BYTES:
                yield bytes(piece)
                piece.clear()
        piece += b"]"
    yield bytes(piece + b"}")


def _event(row: StoredRow) -> StoredEvent | None:
    try:
        return msgspec.json.decode(row.body, type=prepared(KINDS[row.kind]))
    except (KeyError, *UNREADABLE) as error:
        log.debug("the stored event %s cannot be read; %r", row.key, error)
        return None


def _key(kind: str, event: StoredEvent) -> str:
    match event:
        case FindingEvent():
            return f"finding/{event.finding.key}/{event.change}/{event.at!r}"
        case ActionEvent():
            return f"action/{event.actor}/{event.number}/{event.result}/{event.at!r}"
        case XidEvent():
            line, subject = event.sequence, f"{event.pci or event.uuid}/{event.xid}"
        case SxidEvent():
            line, subject = event.sequence, f"{event.switch}/{event.sxid}"
        case BusLossEvent():
            line, subject = event.sequence, event.pci
    if line is not None and event.boot_id is not None:
        return f"kernel/{event.boot_id}/{line}"
    return f"{kind}/{subject}/{event.at!r}"


class StoreQueue:
    """Rows and documents on their way to the disk; any thread may call. Of more than `bound` rows of a kind the oldest
    is lost.
    """

    def __init__(self, bound: int) -> None:
        self.lost = 0
        """Rows that were dropped because there were too many."""
        self._bound = bound
        self._rows: dict[str, dict[str, StoredRow]] = {kind: {} for kind in EVENT_KINDS}
        self._documents: dict[str, StoredDocument] = {}
        self._unwritten: set[str] = set()
        self._lock = threading.Lock()

    def add(self, row: StoredRow) -> None:
        """Put a row at the end, or in the place of the one with its key."""
        with self._lock:
            waiting = self._rows[row.kind]
            waiting.pop(row.replaces or "", None)
            before = waiting.get(row.key)
            waiting[row.key] = row if before is None or row.replaces else row._replace(replaces=before.replaces)
            if len(waiting) > self._bound:
                del waiting[next(iter(waiting))]
                self.lost += 1

    def save(self, document: StoredDocument) -> None:
        """Keep a document in place of the one before."""
        with self._lock:
            self._documents[document.name] = document
            self._unwritten.add(document.name)

    def rows(self, kinds: Sequence[str] = EVENT_KINDS, since: float = 0.0) -> list[StoredRow]:
        """Rows that wait, of these kinds, from unix time `since` on."""
        with self._lock:
            return [row for kind in kinds for row in self._rows[kind].values() if row.at >= since]

    def documents(self, *, written: bool = False) -> list[StoredDocument]:
        """Documents that wait; with `written` all this process ever saved, which a new file needs again."""
        with self._lock:
            return [self._documents[name] for name in (self._documents if written else self._unwritten)]

    def document(self, name: str) -> tuple[StoredDocument | None, bool]:
        """What was saved last under a name, and whether it still waits."""
        with self._lock:
            return self._documents.get(name), name in self._unwritten

    def written(self, rows: list[StoredRow], documents: list[StoredDocument]) -> None:
        """Drop what is on the disk by now; what was replaced meanwhile still waits."""
        with self._lock:
            for row in rows:
                if self._rows[row.kind].get(row.key) is row:
                    del self._rows[row.kind][row.key]
            self._unwritten -= {each.name for each in documents if self._documents[each.name] is each}
