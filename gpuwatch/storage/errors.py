"""What a store that cannot be written says: what; why; next step."""

import errno
import os
import sqlite3
from pathlib import Path


class Unusable(Exception):
    """The file is broken, or not ours: it is set aside."""


class Newer(Exception):
    """The file is of a newer gpuwatch, which must find it as it left it."""


FAILURES = (OSError, sqlite3.Error, Unusable, Newer)

_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_READ_ONLY = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)
_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_broken(error: sqlite3.Error) -> bool:
    """Whether the file itself is wrong, not just the moment."""
    return _code(error) in _BROKEN


def is_usual(error: Exception) -> bool:
    """Whether somebody simply started gpuwatch without the right to keep state."""
    return os.geteuid() != 0 and _is_denied(error)


def trouble(directory: Path, error: Exception) -> str:
    """A failure to write in `directory`, for people."""
    why = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    what = f"the store in {directory} cannot be written"
    return f"{what}; {why}; what happens is kept in memory meanwhile: {_next_step(error)}"


def _next_step(error: Exception) -> str:
    if isinstance(error, Newer):
        return "use the gpuwatch that wrote it, or another --state-dir"
    if isinstance(error, Unusable):
        return "it will be set aside"
    if _is_denied(error):
        return "make it writable or name another place with --state-dir"
    return "look at its disk, or name another place with --state-dir"


def _is_denied(error: Exception) -> bool:
    return _code(error) in _READ_ONLY or (isinstance(error, OSError) and error.errno in _DENIED)


def _code(error: Exception) -> int:
    """SQLite's primary result code; 0 for other errors."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
