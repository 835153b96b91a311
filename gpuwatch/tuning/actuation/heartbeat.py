"""Heartbeats in the state directory: the tuner's, which the guard watches, and the guard's, which the tuner watches.

A tuner without a guard sets nothing: after its death nothing would restore the settings.
"""

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.snapshot import Record
from gpuwatch.storage.versioned_file import VersionedFile
from gpuwatch.tuning.actuation.record import FOLDER, FOLDER_MODE

NAME = "tuner.heartbeat"
GUARD_NAME = "guard.heartbeat"


class Heartbeat(Record, frozen=True, kw_only=True):
    """`mode`: the tuner's, which is responsible for recorded settings in `enforce` only; the guard's is `guard`."""

    mode: str
    pid: int
    at: float


class HeartbeatReading(NamedTuple):
    """A beat, and a stamp that changes with each beat, so that no clock has to be trusted."""

    stamp: tuple[int, int]
    beat: Heartbeat | None


class HeartbeatFile:
    """The file in `directory`; `name`: NAME or GUARD_NAME.

    It is not flushed to the disk: a beat means nothing after a reboot, and one that waited for a slow disk would come
    too late.
    """

    def __init__(self, directory: Path, name: str = NAME) -> None:
        self.path = directory / FOLDER / name
        self._file = VersionedFile(self.path, Heartbeat, durable=False, folder_mode=FOLDER_MODE)

    def beat(self, mode: str, at: float) -> None:
        """Write a beat. Raises GpuwatchError: it cannot be written."""
        self._file.write(Heartbeat(mode=mode, pid=os.getpid(), at=at))

    def latest(self) -> HeartbeatReading | None:
        """The newest beat; None: there is none. `beat` None: it cannot be read."""
        stamp, beat = self._file.stamp(), None
        if stamp is None:
            return None
        with contextlib.suppress(GpuwatchError):
            beat = self._file.read()
        return HeartbeatReading(stamp, beat)
