"""The tuner's files in the state directory: what it shares with its guard, with commands, and with the next tuner."""

import contextlib
import logging
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple, Self

import msgspec
from msgspec.structs import replace

from gpuwatch.agent.roles import TUNER_STATE
from gpuwatch.config import Config
from gpuwatch.consents.file import ConsentsFile, progress_file
from gpuwatch.model.consent import Progress
from gpuwatch.model.decoding import prepared
from gpuwatch.model.errors import GpuwatchError, UsageError
from gpuwatch.model.snapshot import UNREADABLE, Record
from gpuwatch.storage.versioned_file import UnreadableFile, VersionedFile
from gpuwatch.tuning.actuation.heartbeat import GUARD_NAME, HeartbeatFile
from gpuwatch.tuning.actuation.record import FOLDER, FOLDER_MODE, SettingsRecord
from gpuwatch.tuning.energy.model import TrialState
from gpuwatch.tuning.model.setting import Knob
from gpuwatch.tuning.model.status import TunerState

STOP_NAME = "tuner.stop"


class StopRequest(Record, frozen=True, kw_only=True):
    """The user who stopped the tuner, when (unix seconds) and why; None or empty: that is not known."""

    by: str = ""
    at: float | None = None
    why: str = ""

    @property
    def message(self) -> str:
        """The request as text for display."""
        return f"stopped by {self.by or 'an unknown user'}{f': {self.why}' if self.why else ''}"


class TunerStopFile:
    """The file in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FOLDER / STOP_NAME
        step = "run it as the tuner's user, which is root, or name --state-dir"
        self._file = VersionedFile(self.path, StopRequest, folder_mode=FOLDER_MODE, next_step=step)

    def put(self, stop: StopRequest) -> None:
        """Stop the tuner. Raises GpuwatchError: it cannot be written."""
        self._file.write(stop)

    def clear(self) -> StopRequest | None:
        """Let it work again; returns the request that held, None: it was not stopped. Raises GpuwatchError."""
        found = self.read()
        self._file.remove()
        return found

    def read(self) -> StopRequest | None:
        """None: the file is not there. One that cannot be read or understood stops as well."""
        try:
            return self._file.read()
        except UnreadableFile:
            return StopRequest()
        except GpuwatchError as error:
            return StopRequest(why=error.why)


FRESH_SECONDS = 10.0
"""An older state is that of a tuner which hangs or is gone."""


class _StatusFile(msgspec.Struct, frozen=True, kw_only=True):
    """`actions` is stored apart, as the keys of a JSON object cannot be pairs."""

    state: TunerState
    actions: tuple[tuple[Knob, str, int], ...] = ()


class TunerStatus:
    """The file in `directory`. It is written each second, and of no use after a reboot: it is not flushed."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / TUNER_STATE
        self._file = VersionedFile(self.path, _StatusFile, durable=False, folder_mode=FOLDER_MODE)

    def write(self, state: TunerState) -> None:
        """Replace it. Raises GpuwatchError: it cannot be written."""
        actions = tuple((knob, result, count) for (knob, result), count in state.actions.items())
        self._file.write(_StatusFile(state=replace(state, actions={}), actions=actions))

    def clear(self) -> None:
        """Remove it at the end; one that cannot be removed is soon too old to be shown."""
        with contextlib.suppress(GpuwatchError):
            self._file.remove()

    def read(self) -> TunerState | None:
        """The newest state, however old; None: there is none, or not one that this gpuwatch understands."""
        with contextlib.suppress(GpuwatchError):
            if (found := self._file.read()) is not None:
                return replace(found.state, actions={(knob, result): count for knob, result, count in found.actions})
        return None


MEMORY_NAME = "tuner-memory.json"

MOST_OWNERS = 64
"""Owners that are kept; a node has fewer."""


class TunerMemory:
    """The file in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FOLDER / MEMORY_NAME
        self._file = VersionedFile(self.path, dict[str, msgspec.Raw], folder_mode=FOLDER_MODE)

    def read(self) -> dict[str, bytes]:
        """JSON by owner, of the last MOST_OWNERS; nothing where there is no file that this gpuwatch understands."""
        try:
            return {owner: bytes(known) for owner, known in [*(self._file.read() or {}).items()][-MOST_OWNERS:]}
        except GpuwatchError as error:
            log.warning("%s; this tuner searches again", error)
            return {}

    def write(self, owners: Mapping[str, Record]) -> None:
        """Replace it, with the last MOST_OWNERS. Raises GpuwatchError: it cannot be written."""
        newest = list(owners.items())[-MOST_OWNERS:]
        self._file.write({owner: msgspec.Raw(msgspec.json.encode(known)) for owner, known in newest})


log = logging.getLogger(__name__)


class SavedSearches:
    """Keeps one file. `saved`: by owner, as `CycleInputs.saved`."""

    def __init__(self, file: TunerMemory) -> None:
        self._file = file
        found = []
        for owner, body in file.read().items():
            try:
                found.append((owner, msgspec.json.decode(body, type=prepared(TrialState))))
            except UNREADABLE as error:
                log.warning("the saved search of %s cannot be used: %s", owner, error)
        self.saved: Mapping[str, TrialState] = dict(found)
        self._kept: Mapping[str, TrialState] = {}
        self._written: Mapping[str, float | None] = {}

    def keep(self, kept: Mapping[str, TrialState], used: Collection[str]) -> None:
        """After each cycle. `used`: owners whose saved state is not needed any more."""
        left = {owner: state for owner, state in self.saved.items() if owner not in used}
        self._kept = {**left, **kept}
        if {owner: state.held for owner, state in self._kept.items()} != self._written:
            self.write()

    def write(self) -> None:
        """Write now. What cannot be written has to be searched for again."""
        self._written = {owner: state.held for owner, state in self._kept.items()}
        try:
            self._file.write(self._kept)
        except GpuwatchError as error:
            log.warning("%s; a restarted tuner searches again", error)


CAPS_NAME = "tuner-caps.json"

MOST_CAPS = 256
"""Workloads of which caps are kept."""


class KnownCaps:
    """Keeps one file: the caps that held for work that may come back, in hertz or watts, by the cycle's key of the
    work; the newest last.
    """

    def __init__(self, file: VersionedFile[dict[str, float]]) -> None:
        self._file = file
        self.known: Mapping[str, float] = {}
        try:
            found = file.read() or {}
            self.known = {work: cap for work, cap in [*found.items()][-MOST_CAPS:] if 0 < cap < math.inf}
        except GpuwatchError as error:
            log.warning("%s; this tuner searches again", error)

    def keep(self, caps: Mapping[str, float]) -> None:
        """After each cycle. What cannot be written is known to this tuner only."""
        news = {work: cap for work, cap in caps.items() if self.known.get(work) != cap}
        if not news:
            return
        left = {work: cap for work, cap in self.known.items() if work not in news}
        self.known = dict([*left.items(), *news.items()][-MOST_CAPS:])
        try:
            self._file.write(dict(self.known))
        except GpuwatchError as error:
            log.warning("%s; a restarted tuner searches again", error)


class TunerFolder(NamedTuple):
    """The files of one directory."""

    record: SettingsRecord
    heartbeat: HeartbeatFile
    guard: HeartbeatFile
    consents: ConsentsFile
    progress: VersionedFile[Progress]
    stop: TunerStopFile
    status: TunerStatus
    memory: TunerMemory
    caps: VersionedFile[dict[str, float]]

    @classmethod
    def at(cls, place: Path) -> Self:
        """Those in `place`."""
        return cls(
            record=SettingsRecord(place),
            heartbeat=HeartbeatFile(place),
            guard=HeartbeatFile(place, GUARD_NAME),
            consents=ConsentsFile(place),
            progress=progress_file(place),
            stop=TunerStopFile(place),
            status=TunerStatus(place),
            memory=TunerMemory(place),
            caps=VersionedFile(place / FOLDER / CAPS_NAME, dict[str, float], folder_mode=FOLDER_MODE),
        )


class HeartbeatMonitor:
    """Whether heartbeats arrive: a beat counts when it differs from the one before, whatever the clocks show."""

    def __init__(self, heartbeat: HeartbeatFile, timeout: float) -> None:
        self._heartbeat, self._timeout = heartbeat, timeout
        self._stamp: tuple[int, int] | None = None
        self._latest_at: float | None = None
        self._started_at: float | None = None

    def is_alive(self, now: float) -> bool:
        """Read the file; whether a new beat arrived within the last `timeout` seconds. `now`: monotonic."""
        latest = self._heartbeat.latest()
        if latest is not None and latest.stamp != self._stamp:
            if self._stamp is not None:  # the first one may be that of a process long dead
                self._latest_at = now
            self._stamp = latest.stamp
        return self._latest_at is not None and now - self._latest_at < self._timeout

    def is_awaited(self, now: float, within: float | None = None) -> bool:
        """Whether no beat has arrived yet, and the first call was less than `within` seconds ago, None: than
        `timeout`. `now`: monotonic.
        """
        self._started_at = now if self._started_at is None else self._started_at
        return self._latest_at is None and now - self._started_at < (self._timeout if within is None else within)


def state_directory(config: Config) -> Path:
    """The state directory.

    Raises:
        UsageError: there is none; what is not recorded cannot be restored.
    """
    if not config.state_dir:
        raise UsageError("tuning needs a state directory", "state_dir is empty", "name it with --state-dir")
    return Path(config.state_dir)
