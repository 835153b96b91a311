"""The store: what happened, what is open and what must be remembered, in `state_dir`, over restarts and kill -9.

What is added waits in memory until a thread of the store's own has written it, so that no disk delays an XID. Where
the disk cannot be written, it stays in memory, is read from there, and is written once the disk can be: meanwhile
`trouble` holds the reason. `record` alone waits for the disk: what is about to be done must be known after a crash.
"""

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Self, TypeVar

import msgspec
from msgspec import structs

from gpuwatch.model.clock import Clock, SystemClock
from gpuwatch.model.decoding import prepared
from gpuwatch.model.event import EVERYTHING, ActionEvent, EventQuery, Result
from gpuwatch.model.finding import Finding
from gpuwatch.model.snapshot import UNREADABLE, SourceStatus
from gpuwatch.model.view import Events
from gpuwatch.model.xid import KernelCursor
from gpuwatch.storage import reading
from gpuwatch.storage.file import FAILURES, NAME, StoreFile, is_usual, trouble
from gpuwatch.storage.reading import EventReader
from gpuwatch.storage.rows import StoredDocument, StoredEvent, StoreQueue, events_json, newest_events, row_of

log = logging.getLogger(__name__)

GAP_SECONDS = 0.1
"""Seconds between two writes: a storm of XIDs causes few writes, not one for each."""

TRIM_SECONDS = 3600.0
CLOSE_SECONDS = 0.5
"""How long closing waits for the disk."""

RETRY_SECONDS = (1.0, 60.0)
"""First and longest pause before a disk that failed is tried again; doubles in between."""

Noun = TypeVar("Noun")


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept: seconds, rows of each kind, bytes of the file, and rows of each kind in memory until written."""

    seconds: float = 30 * 86400.0
    rows: int = 20_000
    size: int = 64 << 20
    waiting: int = 5_000


class StoreStats(msgspec.Struct, frozen=True, kw_only=True):
    """For gpuwatch's own metrics. `up` None: nothing is to be kept."""

    up: bool | None
    lost: int
    set_aside: int


class Store:
    """The store of one process; any thread may call. `directory` None: in memory only."""

    def __init__(self, directory: Path | None, clock: Clock, retention: Retention, retry: tuple[float, float]) -> None:
        self.trouble: str | None = None
        """Why nothing reaches the disk at present: what; why; next step."""
        self._usual = False
        self._directory, self._clock, self._retention = directory, clock, retention
        self._retry, self._pause = retry, retry[0]
        self._queue = StoreQueue(retention.waiting)
        self._file: StoreFile | None = None
        self._trimmed = 0.0  # monotonic, of the file that is open
        self._set_aside = self._last_number = 0
        self._numbering, self._writing = threading.Lock(), threading.Lock()
        self._due, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._write_for_ever, name="store", daemon=True)

    @classmethod
    def open(
        cls,
        state_dir: str | Path,
        clock: Clock | None = None,
        *,
        retention: Retention | None = None,
        retry: tuple[float, float] = RETRY_SECONDS,
    ) -> Self:
        """Open or make the store in `state_dir`; empty: in memory only. Never raises: `trouble` holds what is wrong."""
        directory = Path(state_dir) if str(state_dir) else None
        store = cls(directory, clock or SystemClock(), retention or Retention(), retry)
        if directory is not None:
            store.flush()
            store._thread.start()
        return store

    def add(self, event: StoredEvent) -> None:
        """Keep an event; one with the same key is replaced. Does not wait."""
        self._queue.add(row_of(event))
        self._due.set()

    def record(self, action: ActionEvent) -> int:
        """Keep an action and return its number, a new one where it has none.

        One that is `intended` is on the disk when this returns; where that failed, `trouble` holds the reason.
        """
        number = action.number
        if number is None:
            with self._numbering:  # by the clock in microseconds, so that it is not a number of another process
                number = self._last_number = max(self._last_number + 1, int(self._clock.time() * 1_000_000))
        self.add(structs.replace(action, number=number))
        if action.result is Result.INTENDED:
            self.flush()
        return number

    def events(self, query: EventQuery = EVERYTHING) -> Events:
        """What happened, newest last."""
        with contextlib.closing(self._reader(query)) as reader:
            return newest_events((row for kind in query.kinds for row in reader.rows(kind)), query.limit)

    def events_json(self, query: EventQuery = EVERYTHING) -> Generator[bytes]:
        """The same as JSON, in pieces of 64 KiB; not held in memory together. One thread at a time may take them."""
        with contextlib.closing(self._reader(query)) as reader:
            yield from events_json(reader.rows)

    def _reader(self, query: EventQuery) -> EventReader:
        # waiting rows first: a row that is written meanwhile is then found twice, not missed
        waiting = self._queue.rows(query.kinds, query.since)
        try:
            return EventReader(self._directory, query, waiting)
        except sqlite3.Error as error:
            log.debug("the store's events cannot be read; %s", error)
            return EventReader(None, query, waiting)

    def open_findings(self) -> tuple[Finding, ...]:
        """The findings that were open when last saved, also of an earlier boot: a reboot is no cure."""
        return self._decoded("findings", tuple[Finding, ...]) or ()

    def save_open(self, findings: Sequence[Finding]) -> None:
        """Keep what is open now. Does not wait."""
        self._save("findings", msgspec.json.encode(findings))

    def cursor(self, boot_id: str | None) -> KernelCursor | None:
        """How far this boot's kernel log was reported; None: not known."""
        found = self._decoded("cursor", KernelCursor)
        return found if found is not None and found.boot_id == boot_id else None

    def save_cursor(self, cursor: KernelCursor) -> None:
        """Keep it. Does not wait; never on the disk before the events that were added first."""
        self._save("cursor", msgspec.json.encode(cursor))

    def memory(self, name: str) -> bytes | None:
        """The document kept under a name, by this process where the file cannot be read; None when there is none."""
        return self._document(f"memory/{name}")

    def remembered(self, name: str, type_: type[Noun]) -> Noun | None:
        """`memory`, decoded; None, too, for what is not of that type, such as that of another version."""
        try:
            return msgspec.json.decode(self.memory(name) or b"", type=prepared(type_))
        except UNREADABLE:
            return None

    def remember(self, name: str, body: bytes) -> None:
        """Keep a small document in place of the one before. Does not wait; `flush` does."""
        self._save(f"memory/{name}", body)

    def stats(self) -> StoreStats:
        """Whether it is written, and what was lost since the start."""
        kept = self._directory is not None
        up = self.trouble is None if kept else None
        return StoreStats(up=up, lost=self._queue.lost if kept else 0, set_aside=self._set_aside)

    def status(self) -> SourceStatus:
        """As one of the sources: off, and not down, where nothing is to be kept or this user may not write."""
        if self._directory is None:
            return SourceStatus(name="store", up=None, reason="nothing is kept: state_dir is empty")
        trouble = self.trouble
        up = True if trouble is None else None if self._usual else False
        return SourceStatus(name="store", up=up, reason=trouble or "")

    def flush(self) -> bool:
        """Write what waits, now; False when that is not possible, for the reason `trouble`."""
        if self._directory is None:
            return False
        with self._writing:
            try:
                self._write(self._directory)
            except FAILURES as error:
                self._close_file()
                why = trouble(self._directory, error)
                self._usual = is_usual(error)
                if why != self.trouble:
                    log.log(logging.INFO if self._usual else logging.ERROR, "%s", why)
                self.trouble = why
        return self.trouble is None

    def close(self) -> None:
        """Write what waits and close the file; a disk that takes longer than CLOSE_SECONDS is not waited for."""
        self._closing.set()
        self._due.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)

    def _write_for_ever(self) -> None:
        while not self._closing.is_set():
            if self.trouble is None:
                self._due.wait(TRIM_SECONDS)
            else:
                self._closing.wait(self._pause)
                self._pause = min(2 * self._pause, self._retry[1])
            self._due.clear()
            self.flush()
            self._closing.wait(GAP_SECONDS)
        self.flush()
        with self._writing:
            self._close_file()

    def _write(self, directory: Path) -> None:
        """Write what waits, into a new file where there is none or another one; the caller holds `_writing`."""
        if self._file is not None and self._file.replaced:
            self._close_file()
        documents = self._queue.documents(written=self._file is None)  # first: no document may precede its rows
        rows = self._queue.rows()
        if self._file is None:
            self._file, aside = StoreFile.open(directory, self._clock.time())
            if aside is not None:
                self._set_aside += 1
                log.error("the store in %s could not be used and a new one is begun; %s", directory, aside)
            self._trim(self._file)
        file = self._file
        # only a write shows that writing works again
        tried = [StoredDocument("tried", self._clock.time(), b"")] if self.trouble else []
        if rows or documents or tried:
            file.put(rows, documents + tried)
        self._queue.written(rows, documents)
        if self._clock.monotonic() - self._trimmed > TRIM_SECONDS:
            self._trim(file)
        if self.trouble is not None:
            log.info("the store in %s is written again; events lost so far: %d", directory, self._queue.lost)
        self.trouble, self._pause = None, self._retry[0]

    def _trim(self, file: StoreFile) -> None:
        kept = self._retention
        file.trim(self._clock.time() - kept.seconds, kept.rows, kept.size)
        self._trimmed = self._clock.monotonic()

    def _close_file(self) -> None:
        if self._file is not None:
            with contextlib.suppress(sqlite3.Error):
                self._file.close()
        self._file = None

    def _save(self, name: str, body: bytes) -> None:
        self._queue.save(StoredDocument(name, self._clock.time(), body))
        self._due.set()

    def _document(self, name: str) -> bytes | None:
        """What waits to be written, else what the file has, else, where that cannot be read, what we wrote last."""
        own, waits = self._queue.document(name)
        if self._directory is not None and not waits:
            try:
                return reading.document(self._directory, name)
            except sqlite3.Error as error:
                log.debug("the store's %s cannot be read; %s", name, error)
        return None if own is None else own.body

    def _decoded(self, name: str, type_: type[Noun]) -> Noun | None:
        body = self._document(name)
        try:
            return None if body is None else msgspec.json.decode(body, type=prepared(type_))
        except UNREADABLE as error:
            log.error("the store's %s cannot be read; %s; a new one is begun", name, error)
            return None


def stored_events(state_dir: str | Path, query: EventQuery = EVERYTHING) -> Events | None:
    """What the store in `state_dir` has, as `Store.events` returns it; None when there is none that can be read."""
    if not str(state_dir):
        return None
    try:
        (Path(state_dir) / NAME).stat()
        with contextlib.closing(EventReader(Path(state_dir), query)) as reader:
            return newest_events((row for kind in query.kinds for row in reader.rows(kind)), query.limit)
    except FileNotFoundError:
        return None
    except (OSError, sqlite3.Error) as error:
        why = error.strerror if isinstance(error, OSError) else error
        log.warning("the store in %s cannot be read; %s", state_dir, why)
        return None
