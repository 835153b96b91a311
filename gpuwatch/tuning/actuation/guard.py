"""The guard: a process of its own that gives back what a tuner has set when the tuner can no longer do it.

It listens to no network and knows no Kubernetes. A tuner that is silent for `silence` seconds is taken for dead,
whatever its process does. One that beats but does not enforce answers for nothing; what is recorded is an
earlier one's.
"""

import logging
import threading
from collections.abc import Callable

from gpuwatch.model.clock import Clock
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.tuning.actuation.heartbeat import GUARD_NAME, HeartbeatFile, HeartbeatReading
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.tuning.actuation.restore import RestoreOutcome, Restorer

log = logging.getLogger(__name__)

SILENCE_SECONDS = 30.0
"""Three beats of ten seconds missed; a tuner beats far more often."""

LOOK_SECONDS = 1.0
RETRY_SECONDS = 10.0
"""Before what could not be given back is tried again."""

FAREWELL_SECONDS = 4.0
"""At the end: for a tuner that is told to stop as well, to give back by itself."""

FAREWELL_LOOKS = 20


class Guard:
    """Watches one state directory. `step` looks once; `run` looks until it is told to stop."""

    def __init__(
        self,
        record: SettingsRecord,
        heartbeat: HeartbeatFile,
        restorer: Restorer,
        clock: Clock,
        *,
        silence: float = SILENCE_SECONDS,
        look: float = LOOK_SECONDS,
        retry: float = RETRY_SECONDS,
        farewell: float = FAREWELL_SECONDS,
    ) -> None:
        self._record, self._heartbeat, self._restorer, self._clock = record, heartbeat, restorer, clock
        self._silence, self._look, self._retry, self._farewell = silence, look, retry, farewell
        self._own = HeartbeatFile(record.directory, GUARD_NAME)
        self._seen: HeartbeatReading | None = None
        self._heard = clock.monotonic()
        self._tried: float | None = None
        self._trouble = ""
        self._mute = False

    def step(self) -> float:
        """Look once, and give back where nobody else will; seconds until the next look."""
        now = self._clock.monotonic()
        try:
            self._own.beat("guard", self._clock.time())
        except GpuwatchError as error:
            if not self._mute:
                log.error("%s; no tuner will set anything", error)
            self._mute = True
        else:
            self._mute = False
        recorded = self._is_recorded()
        seen = self._heartbeat.look()  # after the record: whoever has written that has beaten before
        if seen is not None and seen != self._seen:
            self._seen, self._heard = seen, now
        waits = self._tried is not None and now - self._tried < self._retry
        if recorded and not waits:
            if why := self._abandoned(now):
                log.warning("%s; giving back what it has set", why)
                self._restore()
                self._tried = self._clock.monotonic()
            else:
                self._tried = None
        return self._look

    def run(self, ended: Callable[[float], bool]) -> None:
        """Until `ended`, which waits so many seconds, says so; what no tuner gives back itself is given back then."""
        log.info("guarding %s", self._record.path)
        while not ended(self.step()):
            pass
        self.stop()

    def stop(self) -> None:
        """The last look: afterwards nobody guards."""
        cooldown = threading.Event()
        for _ in range(FAREWELL_LOOKS):
            if not self._is_recorded() or self._abandoned(self._clock.monotonic()):
                break
            cooldown.wait(self._farewell / FAREWELL_LOOKS)
        if self._is_recorded():
            self._restore()

    def _abandoned(self, now: float) -> str:
        """Why nobody answers for what is recorded; empty: a tuner does, or may yet begin to."""
        silent = now - self._heard
        if silent >= self._silence:
            return f"the tuner has been silent for {silent:.0f} s"
        beat = self._seen.beat if self._seen else None
        return f"the tuner's mode is {beat.mode}" if beat is not None and beat.mode != "enforce" else ""

    def _is_recorded(self) -> bool:
        try:
            found = bool(self._record.read().settings)
        except GpuwatchError as error:
            self._say(str(error))
            return False
        self._say("")
        return found

    def _restore(self) -> None:
        try:
            done = self._restorer.restore()
        except GpuwatchError as error:
            self._say(str(error))
            return
        for each in done:
            level = logging.ERROR if each.outcome is RestoreOutcome.KEPT else logging.INFO
            log.log(level, "%s of %s: %s, %s", each.setting.knob, each.setting.uuid, each.outcome, each.message)

    def _say(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            log.error("%s", trouble)
        self._trouble = trouble
