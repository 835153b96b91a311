"""A session with the driver that stays open between two uses: the first one of a process takes the driver long.

The library counts its users and starts anew only when the last one has left. So after a driver load the open session is
given up, and once every call under way has ended as well, the next one reaches the new driver.
"""

import contextlib
import threading
from collections.abc import Iterator

from gpuwatch.model.errors import NoGpuStack
from gpuwatch.tuning.actuation.restore import Connect, Control


class OpenSession:
    """`connect` for many threads: each has its own session, one more stays open until `close`."""

    def __init__(self, connect: Connect) -> None:
        self._connect, self._changing = connect, threading.Lock()
        self._open: contextlib.ExitStack | None = None

    @contextlib.contextmanager
    def __call__(self) -> Iterator[Control]:
        """A session. Raises NoGpuStack: there is no driver, or it was loaded anew meanwhile."""
        try:
            with self._connect() as control:
                self._stay()
                yield control
        except NoGpuStack:
            self.close()
            raise

    def close(self) -> None:
        """Leave the driver; a later session opens it again."""
        with self._changing:
            left, self._open = self._open, None
        if left is not None:
            left.close()

    def _stay(self) -> None:
        if self._open is not None:
            return
        with contextlib.ExitStack() as own:
            own.enter_context(self._connect())
            with self._changing:
                if self._open is None:
                    self._open = own.pop_all()
