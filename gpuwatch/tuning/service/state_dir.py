"""What a tuner has in the state directory: what it shares with its guard, with people, and with the next tuner."""

from pathlib import Path
from typing import NamedTuple, Self

from gpuwatch.consents.file import ConsentsFile
from gpuwatch.tuning.actuation.heartbeat import GUARD_NAME, Heartbeat
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.tuning.service.memory_file import TunerMemory
from gpuwatch.tuning.service.status_file import TunerStatus
from gpuwatch.tuning.service.stop_file import TunerStop


class TunerFolder(NamedTuple):
    """The files of one directory."""

    record: SettingsRecord
    heartbeat: Heartbeat
    guard: Heartbeat
    consents: ConsentsFile
    stop: TunerStop
    status: TunerStatus
    memory: TunerMemory

    @classmethod
    def at(cls, place: Path) -> Self:
        """Those in `place`."""
        return cls(
            record=SettingsRecord(place),
            heartbeat=Heartbeat(place),
            guard=Heartbeat(place, GUARD_NAME),
            consents=ConsentsFile(place),
            stop=TunerStop(place),
            status=TunerStatus(place),
            memory=TunerMemory(place),
        )


class Hearing:
    """Whether somebody beats: a beat counts when it is another one than before, as no clock is to be trusted."""

    def __init__(self, heartbeat: Heartbeat, silence: float) -> None:
        self._heartbeat, self._silence = heartbeat, silence
        self._stamp: tuple[int, int] | None = None
        self._heard: float | None = None
        self._began: float | None = None

    def hears(self, now: float) -> bool:
        """Look; whether a beat was seen to come within the last `silence` seconds. `now`: monotonic."""
        seen = self._heartbeat.look()
        if seen is not None and seen.stamp != self._stamp:
            if self._stamp is not None:  # the first one may be that of somebody long dead
                self._heard = now
            self._stamp = seen.stamp
        return self._heard is not None and now - self._heard < self._silence

    def awaits(self, now: float, patience: float | None = None) -> bool:
        """Whether nobody was ever heard, as the listening has only just begun: less than `patience` seconds ago, None:
        than `silence`. `now`: monotonic.
        """
        self._began = now if self._began is None else self._began
        return self._heard is None and now - self._began < (self._silence if patience is None else patience)
