"""Signals as messages to the main thread.

A Python handler runs in the middle of whatever the main thread does. To set an Event there can wait for ever for a lock
that the main thread itself holds, as it waits for that Event; SimpleQueue is made to be put into from handlers.
"""

import signal
from collections.abc import Iterable
from queue import Empty, SimpleQueue

ENDS = (signal.SIGTERM, signal.SIGINT)
HEEDED = (*ENDS, signal.SIGHUP)


class Signals:
    """What has come and was not asked for yet."""

    def __init__(self) -> None:
        self._came: SimpleQueue[int | None] = SimpleQueue()

    def heed(self, numbers: Iterable[signal.Signals] = HEEDED) -> None:
        """From now on. Only in the main thread."""
        for number in numbers:
            signal.signal(number, lambda came, _: self._came.put(came))

    def wake(self) -> None:
        """Have `next` return at once; any thread may."""
        self._came.put(None)

    def next(self, seconds: float) -> int | None:
        """The next signal; None when none comes within `seconds`, or when somebody wakes us."""
        try:
            return self._came.get(timeout=seconds)
        except Empty:
            return None
