"""The guard: a process of its own that restores what a tuner has set when the tuner can no longer do so.

It uses neither the network nor Kubernetes. A tuner that writes no heartbeat for `silence` seconds is taken for dead,
whatever its process does. A tuner that beats in another mode than enforce is not responsible for the recorded
settings: an earlier tuner made them.
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
"""As long as three missed beats ten seconds apart; a tuner beats far more often."""

LOOK_SECONDS = 1.0
RETRY_SECONDS = 10.0
"""How long the guard waits between two attempts to restore."""

FAREWELL_SECONDS = 4.0
"""How long `stop` waits for a tuner that ends at the same time to restore its settings itself."""

FAREWELL_LOOKS = 20


class Guard:
    """Watches one state directory. `step` checks once; `run` checks until it is stopped."""

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
        """Check once, and restore what no tuner will restore; returns seconds until the next check."""
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
        seen = self._heartbeat.look()  # after the record: its writer has beaten before it wrote
        if seen is not None and seen != self._seen:
            self._seen, self._heard = seen, now
        waits = self._tried is not None and now - self._tried < self._retry
        if recorded and not waits:
            if why := self._abandoned(now):
                log.warning("%s; restoring what it has set", why)
                self._restore()
                self._tried = self._clock.monotonic()
            else:
                self._tried = None
        return self._look

    def run(self, ended: Callable[[float], bool]) -> None:
        """Step until `ended`, which waits so many seconds, returns True; then restore what no tuner restores itself."""
        log.info("guarding %s", self._record.path)
        while not ended(self.step()):
            pass
        self.stop()

    def stop(self) -> None:
        """The last check before the guard ends: wait for the tuner to restore, then restore what is left."""
        cooldown = threading.Event()
        for _ in range(FAREWELL_LOOKS):
            if not self._is_recorded() or self._abandoned(self._clock.monotonic()):
                break
            cooldown.wait(self._farewell / FAREWELL_LOOKS)
        if self._is_recorded():
            self._restore()

    def _abandoned(self, now: float) -> str:
        """Why no tuner is responsible for what is recorded; empty: one is, or may still become so."""
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
