"""Reads of the store's SQLite file, over connections of their own: no reader waits for a write or changes the content.

Events are read row by row, so that a hundred thousand of them need no more memory than one.
"""

import contextlib
import heapq
import itertools
import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gpuwatch.model.event import EventQuery
from gpuwatch.storage.file import APPLICATION, NAME, SCHEMA, check_plain
from gpuwatch.storage.rows import StoredRow

log = logging.getLogger(__name__)

_WHERE = "kind = ? AND at >= ? AND typeof(at) = 'real' AND typeof(key) = 'text' AND typeof(body) = 'blob'"
"""SQLite keeps a value of another type where another program wrote one: such a row is no event, and no document."""
_SELECT_MOMENTS = f"SELECT at, key FROM events WHERE {_WHERE} ORDER BY at DESC, key DESC LIMIT ?"  # noqa: S608
_SELECT_ROWS = f"SELECT key, at, kind, gpu, boot_id, body FROM events WHERE {_WHERE} ORDER BY at, key"  # noqa: S608
_SELECT_DOCUMENT = f"""
SELECT body FROM documents WHERE name = ? AND typeof(body) = 'blob' AND length(body) <= {16 << 20}
"""  # noqa: S608

Moment = tuple[float, str]
"""Time and key of an event: no two events have the same."""


class EventReader:
    """The newest events of a query, kind by kind. `waiting`: rows on their way to the file, in place of those with
    their key; without a `directory` there are only these. Raises sqlite3.Error where the file cannot be opened.
    """

    def __init__(self, directory: Path | None, query: EventQuery, waiting: Iterable[StoredRow] = ()) -> None:
        self._query, self._waiting = query, {row.key: row for row in waiting}
        self._replaced = {key for row in self._waiting.values() for key in (row.key, row.replaces)}
        self._open = contextlib.ExitStack()
        self._connection = self._open.enter_context(_reading(directory)) if directory is not None else None
        with contextlib.ExitStack() as unless_complete:
            unless_complete.callback(self.close)
            if self._connection is not None:
                self._connection.execute("BEGIN")  # all that follows is read as of one moment
            # All rows from the oldest of the newest `limit` on.
            kinds, since, limit = self._query.kinds, self._query.since, self._query.limit
            own = sorted((_moment(row) for row in self._waiting.values() if row.kind in kinds), reverse=True)
            written = [self._select(_SELECT_MOMENTS, kind, since, limit + len(own)) for kind in kinds]
            wanted = (moment for moment in heapq.merge(*written, reverse=True) if moment[1] not in self._replaced)
            newest = heapq.merge(wanted, own, reverse=True)
            self._first = next(itertools.islice(newest, limit - 1, None), (since, ""))
            unless_complete.pop_all()

    def rows(self, kind: str) -> Iterator[StoredRow]:
        """Those of a kind, oldest first."""
        if kind not in self._query.kinds:
            return iter(())
        written = (StoredRow(*row) for row in self._select(_SELECT_ROWS, kind, self._first[0]))
        own = sorted((row for row in self._waiting.values() if row.kind == kind), key=_moment)
        every = heapq.merge((row for row in written if row.key not in self._replaced), own, key=_moment)
        return (row for row in every if _moment(row) >= self._first)

    def close(self) -> None:
        """Close the file."""
        self._open.close()

    def _select(self, statement: str, *values: str | float) -> Iterator[Any]:
        if self._connection is not None:
            try:
                yield from self._connection.execute(statement, values)
            except sqlite3.Error as error:  # a part of the file is broken: what was read of it is still useful
                log.debug("the store's events cannot be read to the end; %s", error)


def _moment(row: StoredRow) -> Moment:
    return row.at, row.key


def document(directory: Path, name: str) -> bytes | None:
    """One document; None when there is none. Raises sqlite3.Error."""
    with _reading(directory) as connection:
        found = connection.execute(_SELECT_DOCUMENT, (name,)).fetchone()
    return None if found is None else bytes(found[0])


@contextlib.contextmanager
def _reading(directory: Path) -> Iterator[sqlite3.Connection]:
    check_plain(directory)
    path = directory / NAME
    # without its log no process has it open, and an immutable read neither makes one nor needs the right to
    mode = "mode=ro" if os.path.exists(f"{path}-wal") else "mode=ro&immutable=1"
    try:
        connection = _connect(path, mode)
    except sqlite3.OperationalError as error:
        # The index beside the log, which a killed process left, cannot be made again on a full disk. A process that is
        # alone with the file needs none: the open findings must be known at a start on such a disk, too.
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_IOERR:
            raise
        connection = _connect(path, "mode=rw", "PRAGMA locking_mode = EXCLUSIVE")
    with contextlib.closing(connection):
        yield connection


def _connect(path: Path, mode: str, *first: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?{mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=1, isolation_level=None, check_same_thread=False)
    connection.text_factory = lambda text: text.decode(errors="replace")  # one odd row would end the reading
    try:
        for statement in first:
            connection.execute(statement).fetchall()
        (application,), (version,) = (
            connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
        )
        if application != APPLICATION or version > SCHEMA:
            raise sqlite3.DatabaseError(f"{path} is not a store that this gpuwatch knows")
    except BaseException:
        connection.close()
        raise
    return connection
