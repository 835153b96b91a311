"""The thread that follows the kernel log."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from gpuwatch.collect.kernel_log.follower import KernelLog
from gpuwatch.config import SourcesConfig
from gpuwatch.host.machine import boot_id_file
from gpuwatch.model.clock import Clock
from gpuwatch.model.snapshot import SourceStatus
from gpuwatch.model.xid import KernelCursor, KernelEvent

log = logging.getLogger(__name__)

POLL_SECONDS = 5.0


class KernelLogThread(threading.Thread):
    """Passes every GPU event of the kernel log to `handle`, on this thread; with `after`, those behind that cursor."""

    def __init__(
        self,
        config: SourcesConfig,
        clock: Clock,
        handle: Callable[[list[KernelEvent]], None],
        after: KernelCursor | None = None,
    ) -> None:
        super().__init__(name="kmsg", daemon=True)
        self._clock, self._take = clock, handle
        self._off = "switched off in the configuration" if "kmsg" in config.disabled else None
        boot_id = boot_id_file(Path(config.proc))
        self._log = (
            None if self._off else KernelLog.open(Path(config.kmsg), boot_id_path=boot_id, clock=clock, after=after)
        )
        if self._log and self._log.unusable:
            log.warning("the kernel log cannot be read; %s", self._log.reason)
        self.resumed = self._log is not None and self._log.resumed
        """Whether an earlier agent has reported the historical events."""
        self.cursor: KernelCursor | None = None
        """The place behind the handled records; None before the history was handled."""
        self._last_success: float | None = None
        self._stopping = False

    @property
    def lost(self) -> int:
        """Records the kernel overwrote before they were read."""
        return self._log.lost if self._log else 0

    def status(self) -> SourceStatus:
        """The state of reading; off, with the reason, where it is not permitted or no record can count."""
        if self._log is None or self._log.unusable:
            reason = self._off or (self._log.reason if self._log else "") or ""
            return SourceStatus(name="kmsg", up=None, reason=reason)
        reason = self._log.reason or ""
        return SourceStatus(
            name="kmsg", up=True, reason=reason, last_success=self._last_success, failures=self._log.malformed
        )

    def run(self) -> None:
        """Follow the log until `stop`."""
        wait = 0.0  # the history is there at once, or there is none
        while self._log is not None and not self._stopping and self._log.mode != "off":
            events = self._log.read(wait)
            self._last_success = self._clock.time()
            if events:
                self._take(events)
            self.cursor, wait = self._log.cursor, POLL_SECONDS

    def stop(self) -> None:
        """End the thread."""
        self._stopping = True
        if self._log is not None:
            self._log.stop()
