"""Wakes coroutines of any event loop, from any thread, when there is a new View."""

import asyncio
import contextlib
import threading
from collections.abc import Callable


class ViewSignal:
    """Any thread may call `notify`; every coroutine in `wait_for` then checks its condition again.

    `_lock` guards the set of waiting coroutines.
    """

    def __init__(self) -> None:
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._lock = threading.Lock()

    def notify(self) -> None:
        """Wake all that wait; does not block."""
        with self._lock:
            waiting = tuple(self._waiting)
        for loop, event in waiting:
            with contextlib.suppress(RuntimeError):  # that loop has ended
                loop.call_soon_threadsafe(event.set)

    async def wait_for(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Wait until `holds`, checked now and at each `notify`; whether it did within `seconds`."""
        own = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:  # before the first check: a `notify` in between is not lost
            self._waiting.add(own)
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    await own[1].wait()
                    own[1].clear()
        except TimeoutError:
            return False
        finally:
            with self._lock:
                self._waiting.discard(own)
        return True
