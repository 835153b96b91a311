"""The guard: a process of its own that restores what a tuner has set when the tuner can no longer do so.

It uses neither the network nor Kubernetes. A tuner that writes no heartbeat for `timeout` seconds is taken for dead,
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

HEARTBEAT_TIMEOUT_SECONDS = 30.0
"""As long as three missed beats ten seconds apart; a tuner beats far more often."""

CHECK_SECONDS = 1.0
RETRY_SECONDS = 10.0
"""How long the guard waits between two attempts to restore."""

EXIT_WAIT_SECONDS = 4.0
"""How long `stop` waits for a tuner that ends at the same time to restore its settings itself."""

EXIT_CHECKS = 20


class Guard:
    """Watches one state directory. `step` checks once; `run` checks until it is stopped."""

    def __init__(
        self,
        record: SettingsRecord,
        heartbeat: HeartbeatFile,
        restorer: Restorer,
        clock: Clock,
        *,
        timeout: float = HEARTBEAT_TIMEOUT_SECONDS,
        interval: float = CHECK_SECONDS,
        retry: float = RETRY_SECONDS,
        exit_wait: float = EXIT_WAIT_SECONDS,
    ) -> None:
        self._record, self._heartbeat, self._restorer, self._clock = record, heartbeat, restorer, clock
        self._timeout, self._interval, self._retry, self._exit_wait = timeout, interval, retry, exit_wait
        self._own_heartbeat = HeartbeatFile(record.directory, GUARD_NAME)
        self._latest: HeartbeatReading | None = None
        self._latest_at = clock.monotonic()
        self._tried_at: float | None = None
        self._error = ""
        self._is_unwritable = False

    def step(self) -> float:
        """Check once, and restore what no tuner will restore; returns seconds until the next check."""
        now = self._clock.monotonic()
        try:
            self._own_heartbeat.beat("guard", self._clock.time())
        except GpuwatchError as error:
            if not self._is_unwritable:
                log.error("%s; no tuner will set anything", error)
            self._is_unwritable = True
        else:
            self._is_unwritable = False
        recorded = self._is_recorded()
        latest = self._heartbeat.latest()  # after the record: its writer has beaten before it wrote
        if latest is not None and latest != self._latest:
            self._latest, self._latest_at = latest, now
        waits = self._tried_at is not None and now - self._tried_at < self._retry
        if recorded and not waits:
            if why := self._abandoned(now):
                log.warning("%s; restoring what it has set", why)
                self._restore()
                self._tried_at = self._clock.monotonic()
            else:
                self._tried_at = None
        return self._interval

    def run(self, ended: Callable[[float], bool]) -> None:
        """Step until `ended`, which waits so many seconds, returns True; then restore what no tuner restores itself."""
        log.info("guarding %s", self._record.path)
        while not ended(self.step()):
            pass
        self.stop()

    def stop(self) -> None:
        """The last check before the guard ends: wait for the tuner to restore, then restore what is left."""
        pause = threading.Event()
        for _ in range(EXIT_CHECKS):
            if not self._is_recorded() or self._abandoned(self._clock.monotonic()):
                break
            pause.wait(self._exit_wait / EXIT_CHECKS)
        if self._is_recorded():
            self._restore()

    def _abandoned(self, now: float) -> str:
        """Why no tuner is responsible for what is recorded; empty: one is, or may still become so."""
        age = now - self._latest_at
        if age >= self._timeout:
            return f"the tuner has written no heartbeat for {age:.0f} s"
        beat = self._latest.beat if self._latest else None
        return f"the tuner's mode is {beat.mode}" if beat is not None and beat.mode != "enforce" else ""

    def _is_recorded(self) -> bool:
        try:
            found = bool(self._record.read().settings)
        except GpuwatchError as error:
            self._log_change(str(error))
            return False
        self._log_change("")
        return found

    def _restore(self) -> None:
        try:
            done = self._restorer.restore()
        except GpuwatchError as error:
            self._log_change(str(error))
            return
        for each in done:
            level = logging.ERROR if each.outcome is RestoreOutcome.KEPT else logging.INFO
            log.log(level, "%s of %s: %s, %s", each.setting.knob, each.setting.uuid, each.outcome, each.message)

    def _log_change(self, error: str) -> None:
        if error and error != self._error:
            log.error("%s", error)
        self._error = error
