"""Keeps the ledger's state over restarts: `rightsizing.json` in the state directory.

Two lines: a head with format, schema and checksum, then the state. A new file replaces the old one,
which stays as `rightsizing.previous.json`. An unusable file is set aside under another name, and the one before it is
used: weeks of history are not lost to one bad block, nor to an upgrade of gpuwatch that was reverted.
"""

import os
import time
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from gpuwatch.model.decoding import prepared
from gpuwatch.model.errors import GpuwatchError, PermissionMissing
from gpuwatch.model.snapshot import UNREADABLE, Record
from gpuwatch.storage.versioned_file import open_file, replace_file

NAME = "rightsizing.json"
FORMAT = "gpuwatch-rightsizing"
SCHEMA = 1

LONGEST_HEAD, MOST_BYTES = 1024, 512 << 20
"""Of a file whose head fits, the second is read: the memory of an agent that reads what others wrote is less."""

KEPT_ASIDE = 3
"""Unusable files of each kind that are kept for a person to look at; older ones are removed."""

AGAIN = "history is collected again from what is left; look at the disk, then remove it"

State = TypeVar("State")
Migration = Callable[[Any], Any]
"""From the plain values of one schema to those of the next."""


class Schema(NamedTuple):
    """What this gpuwatch writes, and which older ones it can read: by number, the step to the next.

    New members with defaults need no new number: a gpuwatch that does not know them ignores them.
    """

    number: int = SCHEMA
    migrations: Mapping[int, Migration] = {}


CURRENT = Schema()

BROKEN = (*UNREADABLE, ArithmeticError, LookupError, TypeError, ValueError)
"""Errors of reading, of migrating from another schema, and of using invalid values."""


class Head(Record, frozen=True, kw_only=True, omit_defaults=False):
    """The first line. `size` and `crc32` are of the second, without its line end."""

    format: str
    schema: int
    size: int
    crc32: int


class Loaded(NamedTuple, Generic[State]):
    """What was found. `state` None: nothing usable. `trouble`: of each bad file, what; why; next step."""

    state: State | None
    trouble: tuple[str, ...] = ()


class _Unusable(Exception):
    """The text is the reason; `kind` becomes part of the name under which it is set aside."""

    def __init__(self, kind: str, why: str, next_step: str) -> None:
        super().__init__(why)
        self.kind, self.next_step = kind, next_step


def previous(path: Path) -> Path:
    """Where the file before the newest is."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def save(path: Path, state: msgspec.Struct, schema: Schema = CURRENT) -> int:
    """Put `state` in the place of what was there; it is on the disk when this returns. Returns its size in bytes.

    Raises:
        PermissionMissing: it may not be written.
        GpuwatchError: it cannot be written; what was there still is, perhaps as `previous`.
    """
    body = msgspec.json.encode(state)
    head = msgspec.json.encode(Head(format=FORMAT, schema=schema.number, size=len(body), crc32=zlib.crc32(body)))
    try:
        replace_file(path, (head, b"\n", body, b"\n"), previous=previous(path))
    except OSError as error:
        kind = PermissionMissing if isinstance(error, PermissionError) else GpuwatchError
        next_step = "what workloads use is remembered until a restart only; look at its disk and at --state-dir"
        raise kind(f"cannot write {path}", error.strerror or str(error), next_step) from error
    return len(head) + len(body) + 2


def load(
    path: Path, kind: type[State], schema: Schema = CURRENT, check: Callable[[State], object] = bool
) -> Loaded[State]:
    """The newest state that can be read, for the one process that saves there. An unusable file is set aside.

    `check` uses the state, and fails with one of BROKEN where it holds impossible values.
    """
    return _load(path, kind, schema, check, _set_aside)


def peek(path: Path, kind: type[State], check: Callable[[State], object] = bool) -> Loaded[State]:
    """As `load`, for any other process: nothing is moved."""
    return _load(path, kind, CURRENT, check, lambda path, _: path)


def _load(
    path: Path,
    kind: type[State],
    schema: Schema,
    check: Callable[[State], object],
    aside: Callable[[Path, str], Path | None],
) -> Loaded[State]:
    trouble: list[str] = []
    for file in (path, previous(path)):
        try:
            state = _read(file, kind, schema)
            try:
                check(state)
            except BROKEN as error:
                why = f"it holds impossible values ({type(error).__name__}: {error})"
                raise _Unusable("corrupt", why, AGAIN) from error
            return Loaded(state, tuple(trouble))
        except FileNotFoundError:
            continue
        except OSError as error:
            why = error.strerror or str(error)
            trouble.append(f"cannot read {file}; {why}; look at --state-dir and its permissions")
        except _Unusable as error:
            now_at = aside(file, error.kind)
            where = "" if now_at == file else f", it is now {now_at}" if now_at else ", and it cannot be moved away"
            trouble.append(f"{file} cannot be used{where}; {error}; {error.next_step}")
    return Loaded(None, tuple(trouble))


def _read(path: Path, kind: type[State], schema: Schema) -> State:
    with open_file(path) as file:
        first, size = file.readline(LONGEST_HEAD), os.fstat(file.fileno()).st_size
        head = _head(first, schema)
        found = size - len(first)  # with the line end
        fits = 0 <= head.size <= MOST_BYTES and found - 1 <= head.size <= found
        body = file.read(head.size) if fits else b""
    if len(body) != head.size:
        raise _Unusable("corrupt", f"{found} of {head.size} bytes are there", AGAIN)
    if zlib.crc32(body) != head.crc32:
        raise _Unusable("corrupt", "its checksum is wrong", AGAIN)
    try:
        if head.schema == schema.number:
            return msgspec.json.decode(body, type=prepared(kind))
        return msgspec.convert(_migrated(msgspec.json.decode(body), head.schema, schema), prepared(kind), str_keys=True)
    except BROKEN as error:
        raise _Unusable("corrupt", f"{type(error).__name__}: {error}", AGAIN) from error


def _head(line: bytes, schema: Schema) -> Head:
    try:
        head = msgspec.json.decode(line, type=prepared(Head))
    except BROKEN as error:
        why = f"its first line is not one that gpuwatch writes ({error})"
        raise _Unusable("corrupt", why, "history is collected again; find out who wrote it, then remove it") from error
    if head.format != FORMAT:
        raise _Unusable("foreign", f"it is of format {head.format!r}", "find out who wrote it, then remove it")
    if head.schema > schema.number:
        next_step = "restore its name for the gpuwatch that wrote it, or remove it"
        raise _Unusable("newer", f"it has schema {head.schema}, this gpuwatch knows {schema.number}", next_step)
    return head


def _migrated(values: Any, number: int, schema: Schema) -> Any:
    steps = [schema.migrations.get(each) for each in range(number, schema.number)]
    for step in steps:
        if step is None:
            why = f"it has schema {number}, which this gpuwatch cannot read any more"
            raise _Unusable("older", why, "use a gpuwatch in between first, or remove it")
        values = step(values)
    return values


def _set_aside(path: Path, kind: str) -> Path | None:
    """Its new name, which contains the time at which it was written. None: it cannot be moved."""
    try:
        written = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(path.stat().st_mtime))
        stem = path.name.partition(".")[0]
        aside = path.with_name(f"{stem}.{kind}-{written}.json")
        number = 1
        while aside.exists():
            number += 1
            aside = path.with_name(f"{stem}.{kind}-{written}.{number}.json")
        path.rename(aside)
        kept = sorted(path.parent.glob(f"{stem}.{kind}-*.json"), key=lambda file: file.stat().st_mtime)
        for old in kept[:-KEPT_ASIDE]:
            old.unlink(missing_ok=True)
    except OSError:
        return None
    return aside
