"""A thread that does one thing every so often, and at once when woken."""

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

MIN_GAP_SECONDS = 1.0
"""However often it is woken, the task rests this long between two turns."""


class Periodic(threading.Thread):
    """Runs `task` now, then every `interval` seconds; a task that raises is logged and runs again next time."""

    def __init__(self, name: str, interval: float, task: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._interval, self._task = interval, task
        self._wake = threading.Event()
        self._stopping = threading.Event()

    def wake(self) -> None:
        """Run soon."""
        self._wake.set()

    def stop(self) -> None:
        """End after the turn under way."""
        self._stopping.set()
        self._wake.set()

    def run(self) -> None:
        """Take turns until stopped."""
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                self._task()
            except Exception:  # the thread must outlive a bug in one turn
                log.exception("%s failed; trying again in %.0f s", self.name, self._interval)
            self._stopping.wait(MIN_GAP_SECONDS)
            self._wake.wait(max(0.0, self._interval - MIN_GAP_SECONDS))
