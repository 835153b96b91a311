"""How far a reader of a fleet's history has come, so that whoever starts again goes on from there.

A file in the cache directory, written whole or not at all. It is nothing that would be missed: one that cannot be read
means that the reader begins at the beginning.
"""

import contextlib
import os
from pathlib import Path

import msgspec

from gpuwatch.model.decoding import prepared
from gpuwatch.model.snapshot import UNREADABLE
from gpuwatch.storage.versioned_file import read_file, replace_file

SCHEMA = 1
ENDING = ".history"
MOST_BYTES = 1 << 30


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """`question`: a fingerprint of what is asked of whom; `begin`, `end`, `at`: unix seconds of the history, read up to
    `at`; `step`: seconds, `steps` of them a chunk; `windows`: so many so far; `ledger`: its state, as msgpack.
    """

    question: str
    begin: float
    end: float
    step: float
    steps: int
    at: float
    saved: float
    windows: int
    ledger: bytes
    schema: int = SCHEMA


class PositionFile:
    """The file of one question in the directory `place`."""

    def __init__(self, place: Path, question: str) -> None:
        self.path = place / f"{question[:16]}{ENDING}"
        self._question = question

    def read(self) -> Position | None:
        """What an earlier reader of the same has left; None: nothing that is of use."""
        with contextlib.suppress(OSError, *UNREADABLE):
            found = msgspec.msgpack.decode(read_file(self.path, MOST_BYTES)[1], type=prepared(Position))
            if (found.schema, found.question) == (SCHEMA, self._question):
                return found
        return None

    def write(self, position: Position) -> None:
        """Replace it. Raises OSError: it cannot be written."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        partial = self.path.with_name(f"{self.path.name}.{os.getpid()}.partial")  # another reader may ask the same
        replace_file(self.path, (msgspec.msgpack.encode(position),), partial=partial)

    def forget_older(self, than: float) -> None:
        """What was left before unix time `than`, of whatever question, also half written: nobody goes on with it."""
        with contextlib.suppress(OSError):
            for file in self.path.parent.glob(f"*{ENDING}*"):
                if file.stat().st_mtime < than:
                    file.unlink(missing_ok=True)

    def forget(self) -> None:
        """The whole has been read."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)
