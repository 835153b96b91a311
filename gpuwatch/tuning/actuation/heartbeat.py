"""Signs of life in the state directory: the tuner's, which the guard watches, and the guard's, which the tuner watches.

A tuner that hears no guard sets nothing: nobody would give it back.
"""

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.snapshot import Record

NAME = "tuner.heartbeat"
GUARD_NAME = "guard.heartbeat"


class Beat(Record, frozen=True, kw_only=True):
    """Who beats. Only in mode `enforce` does a tuner answer for what is set; a guard's is `guard`."""

    mode: str
    pid: int
    at: float


class Seen(NamedTuple):
    """A beat, and a stamp that is another one after each: so no clock has to be trusted."""

    stamp: tuple[int, int]
    beat: Beat | None


class Heartbeat:
    """The file in `directory`; `name`: NAME or GUARD_NAME."""

    def __init__(self, directory: Path, name: str = NAME) -> None:
        self.path = directory / name

    def beat(self, mode: str, at: float) -> None:
        """Say that we live. Raises GpuwatchError: nobody will hear it."""
        partial = self.path.with_name(f"{self.path.name}.partial")
        try:
            partial.write_bytes(msgspec.json.encode(Beat(mode=mode, pid=os.getpid(), at=at)))
            partial.replace(self.path)
        except OSError as error:
            raise GpuwatchError(
                f"cannot write {self.path}", error.strerror or str(error), "look at --state-dir"
            ) from error

    def look(self) -> Seen | None:
        """The newest beat; None: there is none. `beat` None: it cannot be read."""
        try:
            found, body = self.path.stat(), self.path.read_bytes()
        except OSError:
            return None
        beat = None
        with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError):
            beat = msgspec.json.decode(body, type=Beat)
        return Seen((found.st_ino, found.st_mtime_ns), beat)
