"""Tells coroutines of any event loop, from any thread, that there is a new View."""

import asyncio
import contextlib
import threading
from collections.abc import Callable


class Bell:
    """Any thread may `ring`; everybody who waits looks again."""

    def __init__(self) -> None:
        self._ears: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self._lock = threading.Lock()

    def ring(self) -> None:
        """Wake all who wait; does not wait for them."""
        with self._lock:
            ears = tuple(self._ears)
        for loop, event in ears:
            with contextlib.suppress(RuntimeError):  # that loop has ended
                loop.call_soon_threadsafe(event.set)

    async def wait_for(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Until `holds` at a ring, or is so already; whether it was within `seconds`."""
        ear = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:  # before the first look: a ring in between is heard
            self._ears.add(ear)
        try:
            async with asyncio.timeout(seconds):
                while not holds():
                    await ear[1].wait()
                    ear[1].clear()
        except TimeoutError:
            return False
        finally:
            with self._lock:
                self._ears.discard(ear)
        return True
