"""The tuner's sign of life: `tuner.heartbeat` in the state directory, written anew each cycle, watched by the guard."""

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.snapshot import Record

NAME = "tuner.heartbeat"


class Beat(Record, frozen=True, kw_only=True):
    """Who beats. Only in mode `enforce` does a tuner answer for what is set."""

    mode: str
    pid: int
    at: float


class Seen(NamedTuple):
    """A beat, and a stamp that is another one after each: so no clock has to be trusted."""

    stamp: tuple[int, int]
    beat: Beat | None


class Heartbeat:
    """The file in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME

    def beat(self, mode: str, at: float) -> None:
        """Say that we live. Raises GpuwatchError: nobody will hear it."""
        partial = self.path.with_suffix(".partial")
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
