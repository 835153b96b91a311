"""The store's SQLite file: opened, checked, set aside when it cannot be used, written, trimmed.

Several processes share it. SQLite (WAL) isolates their writes, and keeps them whole if one of them is killed; the lock
file beside it only guards the moment in which a file is checked, made or set aside.
"""

import contextlib
import errno
import fcntl
import os
import sqlite3
import stat
import time
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Self

from gpuwatch.model.event import EVENT_KINDS
from gpuwatch.storage.private_folder import FILE_MODE, tighten_state
from gpuwatch.storage.rows import StoredDocument, StoredRow

NAME = "gpuwatch.db"
SCHEMA = 1
APPLICATION = 0x67707577
"""SQLite's application_id, `gpuw`: it distinguishes a file of ours from any other database."""

BUSY_SECONDS = 5.0
"""Most seconds to wait for another process's write."""

KEPT_ASIDE = 3
"""Unusable files kept for a person to look at; older ones are removed."""

_CREATE = f"""
BEGIN IMMEDIATE;
CREATE TABLE events (
  key TEXT PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL, gpu TEXT, boot_id TEXT, body BLOB NOT NULL
);
CREATE INDEX events_by_time ON events (kind, at);
CREATE TABLE documents (name TEXT PRIMARY KEY, at REAL NOT NULL, body BLOB NOT NULL);
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {SCHEMA};
COMMIT;
"""
_PUT_ROW = "INSERT OR REPLACE INTO events (key, at, kind, gpu, boot_id, body) VALUES (?, ?, ?, ?, ?, ?)"
_REMOVE_ROW = "DELETE FROM events WHERE key = ?"
_PUT_DOCUMENT = "INSERT OR REPLACE INTO documents (name, at, body) VALUES (?, ?, ?)"
_TOO_OLD = "DELETE FROM events WHERE at < ?"
_TOO_MANY = (
    "DELETE FROM events WHERE kind = ? AND at < "
    "(SELECT at FROM events WHERE kind = ? ORDER BY at DESC LIMIT 1 OFFSET ?)"
)  # fmt: skip
_OLDEST = "DELETE FROM events WHERE key IN (SELECT key FROM events ORDER BY at LIMIT ?)"


class StoreFile:
    """One open file. Any method may raise sqlite3.Error, OSError; `Unusable` where the file itself is broken."""

    def __init__(self, directory: Path) -> None:
        """Open or make it. Raises also Newer."""
        self.path = directory / NAME
        # An existing file is opened by SQLite only: closing it would drop the locks of this process's connections.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
        # SQLite gives its log and its index the mode of the file
        self._connection = sqlite3.connect(
            self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            with _unusable():
                self._prepare()
        except BaseException:
            self._connection.close()
            raise
        self._log = self.path.with_name(f"{NAME}-wal")
        self._inode, self._is_logged = self.path.stat().st_ino, False

    @classmethod
    def open(cls, directory: Path, now: float) -> tuple[Self, str | None]:
        """The file in `directory`, which is made; and what was set aside for it, in words, or None."""
        tighten_state(directory)
        check_plain(directory)
        with _locked(directory / f"{NAME}.lock"):
            with contextlib.suppress(FileNotFoundError):
                if not (directory / NAME).stat().st_size:  # a process that has it open holds a lock on it
                    for suffix in ("", "-wal", "-shm"):
                        (directory / f"{NAME}{suffix}").unlink(missing_ok=True)
            try:
                return cls(directory), None
            except Unusable as error:
                aside = _set_aside(directory, now)
                return cls(directory), f"{error}; it is now {aside}"

    @property
    def replaced(self) -> bool:
        """Whether another file has its name by now: another process has set this one aside, or a person removed it. Or
        a person has emptied it or its log: SQLite then drops what is written to the log.
        """
        try:
            found, logged = self.path.stat(), not self._is_logged or self._log.stat().st_size
            return found.st_ino != self._inode or not found.st_size or not logged
        except FileNotFoundError:
            return True

    def put(self, rows: Collection[StoredRow], documents: Iterable[StoredDocument]) -> None:
        """Write all of them or none; on the disk when it returns."""
        with _unusable(), self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(_REMOVE_ROW, [(row.replaces,) for row in rows if row.replaces])
            self._connection.executemany(_PUT_ROW, [row[:6] for row in rows])
            self._connection.executemany(_PUT_DOCUMENT, documents)
        self._is_logged = self._log.exists()  # a file system may have no shared memory, and SQLite then no log

    def trim(self, oldest: float, rows: int, size: int) -> None:
        """Delete events before unix time `oldest`, those beyond `rows` of a kind, and the oldest above `size` bytes."""
        with _unusable():
            with self._connection:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.execute(_TOO_OLD, (oldest,))
                for kind in EVENT_KINDS:
                    self._connection.execute(_TOO_MANY, (kind, kind, rows - 1))
            while (self._number("page_count") - self._number("freelist_count")) * self._number("page_size") > size:
                (count,) = self._connection.execute("SELECT count(*) FROM events").fetchone()
                if not self._connection.execute(_OLDEST, (1 + int(count) // 10,)).rowcount:
                    break
            self._connection.executescript("PRAGMA incremental_vacuum")  # execute() would free one page
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def close(self) -> None:
        """Close it."""
        self._connection.close()

    def _prepare(self) -> None:
        run = self._connection.execute
        run("PRAGMA synchronous = FULL")
        application, version = self._number("application_id"), self._number("user_version")
        tables = {name for (name,) in run("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if application == 0 and not tables:
            run("PRAGMA auto_vacuum = INCREMENTAL")
            run("PRAGMA journal_mode = WAL").fetchall()
            self._connection.executescript(_CREATE)
            return
        if application != APPLICATION:
            raise Unusable("it is another program's database")
        if version > SCHEMA:
            raise Newer(f"it has schema {version}, this gpuwatch knows {SCHEMA}")
        if not tables >= {"events", "documents"}:
            raise Unusable("it has lost its tables")
        run("PRAGMA journal_mode = WAL").fetchall()
        run("PRAGMA journal_size_limit = 4194304").fetchall()
        (verdict,) = run("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise Unusable(str(verdict))

    def _number(self, pragma: str) -> int:
        (value,) = self._connection.execute(f"PRAGMA {pragma}").fetchone()
        return int(value)


def check_plain(directory: Path) -> None:
    """Raises NotPlain: SQLite would wait for the writer of a pipe, and write through a link."""
    for suffix in ("", "-journal", "-wal", "-shm", ".lock"):
        path = directory / f"{NAME}{suffix}"
        with contextlib.suppress(OSError):  # SQLite reports a folder that cannot be read
            if not stat.S_ISREG(path.lstat().st_mode):
                raise NotPlain(f"{path.name} is no plain file")


@contextlib.contextmanager
def _unusable() -> Iterator[None]:
    """Raise Unusable for a broken file; other errors pass unchanged."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if _code(error) in _BROKEN:
            raise Unusable(str(error)) from error
        raise


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other processes out. Raises TimeoutError when another one does not release the lock."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"another process keeps {path}") from None
                time.sleep(0.02)
        yield
    finally:
        os.close(fd)


def _set_aside(directory: Path, now: float) -> Path:
    """Rename file and log. The log goes first: SQLite would apply one that is left to the new file."""
    path = directory / NAME
    aside = directory / f"{NAME}.corrupt-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(now))}"
    number = 1
    while aside.exists():
        number += 1
        aside = aside.with_name(f"{aside.name.partition('.again')[0]}.again{number}")
    for suffix in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(NAME + suffix).rename(aside.with_name(aside.name + suffix))
    files = (file for file in directory.glob(f"{NAME}.corrupt-*") if not file.name.endswith(("-wal", "-shm")))
    for old in sorted(files)[:-KEPT_ASIDE]:
        for suffix in ("", "-wal", "-shm"):
            old.with_name(old.name + suffix).unlink(missing_ok=True)
    return aside


class Unusable(Exception):
    """The file is broken, or not ours: it is set aside."""


class Newer(Exception):
    """The file is of a newer gpuwatch and must stay as it is."""


class NotPlain(sqlite3.OperationalError):
    """Something else than a plain file has the name of one of the store's files."""


FAILURES = (OSError, sqlite3.Error, Unusable, Newer)

_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_READ_ONLY = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_usual(error: Exception) -> bool:
    """Whether gpuwatch was started by a user without the right to keep state, which is usual."""
    return os.geteuid() != 0 and _is_denied(error)


def trouble(directory: Path, error: Exception) -> str:
    """The message of a failure to write in `directory`."""
    why = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    step = "look at its disk, or name another place with --state-dir"
    if isinstance(error, Newer):
        step = "use the gpuwatch that wrote it, or another --state-dir"
    elif isinstance(error, Unusable):
        step = "it will be set aside"
    elif isinstance(error, NotPlain):
        step = "remove it, or name another place with --state-dir"
    elif _is_denied(error):
        step = "make it writable or name another place with --state-dir"
    what = f"the store in {directory} cannot be written"
    return f"{what}; {why}; what happens is kept in memory meanwhile: {step}"


def _is_denied(error: Exception) -> bool:
    return _code(error) in _READ_ONLY or (isinstance(error, OSError) and error.errno in _DENIED)


def _code(error: Exception) -> int:
    """SQLite's primary result code; 0 for other errors."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
