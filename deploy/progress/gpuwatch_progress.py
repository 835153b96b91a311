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


class Progress:
    """Adds to the counter of this pod, Slurm job or user. Counts are sent five times a second at most."""

    def __init__(self, path=""):
        self._path = path or os.environ.get("GPUWATCH_PROGRESS_SOCKET", "/run/gpuwatch-progress/progress.sock")
        self._socket, self._pid, self._next, self._count = None, os.getpid(), 0.0, 0.0

    def add(self, count=1):
        """Count work that is done: steps, samples or tokens, always the same."""
        try:
            self._count += count
            now = time.monotonic()
            if self._pid != os.getpid():  # a fork: the connection is the parent's
                self._socket, self._pid, self._next, self._count = None, os.getpid(), 0.0, count
            if now < self._next:
                return
            text, self._count, self._next = "add %.6f\n" % self._count, 0.0, now + 0.2
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self._socket.setblocking(False)
                self._socket.connect(self._path)
            else:
                self._drain()
            self._socket.send(text.encode())
        except Exception:  # noqa: BLE001 the script's own work must go on, whatever fails here
            self._socket, self._count, self._next = None, 0.0, time.monotonic() + 10

    def _drain(self):
        """Take the answers; one that is not `ok`, or none any more, raises."""
        try:
            if self._socket.recv(4096).strip(b"ok\n"):
                raise OSError("refused")
        except BlockingIOError:
            pass
