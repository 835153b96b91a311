"""The thread that follows the kernel log."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from gpuwatch.config import SourcesConfig
from gpuwatch.model.clock import Clock
from gpuwatch.model.snapshot import SourceStatus
from gpuwatch.model.xid import KernelEvent
from gpuwatch.sources.klog import KernelLog

log = logging.getLogger(__name__)

POLL_SECONDS = 5.0


class KernelLoop(threading.Thread):
    """Hands every GPU event of the kernel log to `handle`, on this thread."""

    def __init__(self, config: SourcesConfig, clock: Clock, handle: Callable[[list[KernelEvent]], None]) -> None:
        super().__init__(name="kmsg", daemon=True)
        self._clock, self._handle = clock, handle
        self._off = "switched off in the configuration" if "kmsg" in config.disabled else None
        self._log = None if self._off else KernelLog.open(Path(config.kmsg), clock=clock)
        if self._log and self._log.mode == "off":
            log.warning("the kernel log cannot be read; %s", self._log.reason)
        self._last_success: float | None = None
        self._stopping = False

    @property
    def lost(self) -> int:
        """Records the kernel overwrote before they were read."""
        return self._log.lost if self._log else 0

    def status(self) -> SourceStatus:
        """How reading goes; `off` with the reason where it is not permitted."""
        if self._log is None or self._log.mode == "off":
            reason = self._off or (self._log.reason if self._log else "") or ""
            return SourceStatus(name="kmsg", up=None, reason=reason)
        reason = self._log.reason or ""
        return SourceStatus(
            name="kmsg", up=True, reason=reason, last_success=self._last_success, failures=self._log.malformed
        )

    def run(self) -> None:
        """Follow the log until `stop`."""
        while self._log is not None and not self._stopping and self._log.mode != "off":
            events = self._log.read(POLL_SECONDS)
            self._last_success = self._clock.time()
            if events:
                self._handle(events)

    def stop(self) -> None:
        """End the thread."""
        self._stopping = True
        if self._log is not None:
            self._log.stop()
