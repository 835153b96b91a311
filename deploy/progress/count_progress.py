"""Count the work of a training or batch script for gpuwatch's tuner. Copy this file beside the script:

    progress = Progress()
    for batch in loader:
        ...
        progress.add(len(batch))

It never raises and never waits: without a socket it counts nothing. Python 3.8 or newer, nothing else.
"""

import os
import socket
import time

PLACE = "/run/gpuwatch-progress/progress.sock"


class Progress:
    """Adds to the counter of this pod, Slurm job or user. Counts are sent five times a second at most."""

    def __init__(self, path: str = "") -> None:
        self._path = path or os.environ.get("GPUWATCH_PROGRESS_SOCKET", PLACE)
        self._connection: socket.socket | None = None
        self._begin(0.0)

    def _begin(self, wait: float) -> None:
        self._connection, self._pid = None, os.getpid()
        self._count, self._next = 0.0, time.monotonic() + wait

    def add(self, count: float = 1) -> None:
        """Count work that is done: steps, samples or tokens, always the same."""
        try:
            if self._pid != os.getpid():  # a fork: the connection is the parent's
                self._begin(0.0)
            self._count += count
            if time.monotonic() < self._next:
                return
            if self._connection is None:
                self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self._connection.setblocking(False)
                self._connection.connect(self._path)
            self._connection.send(b"add %.6f\n" % self._count)
            self._count, self._next = 0.0, time.monotonic() + 0.2
            if self._connection.recv(4096).strip(b"ok\n"):
                self._begin(10.0)  # refused
        except BlockingIOError:
            pass  # no answer yet
        except Exception:  # noqa: BLE001 the script's own work must go on, whatever fails here
            self._begin(10.0)
