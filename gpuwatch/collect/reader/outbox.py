"""The reader's way out: whole frames from many threads onto one pipe."""

import os
import threading

from gpuwatch.collect.reader.messages import AnyMessage, encode


class Outbox:
    """Writes frames one after another; `closed` once the agent has closed the pipe and nobody reads on."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self.closed = False

    def send(self, message: AnyMessage) -> None:
        """Write one message; nothing more once the pipe is closed."""
        self.write(encode(message))

    def write(self, frame: bytes) -> None:
        """As `send`, a frame that is made already."""
        rest = memoryview(frame)
        with self._lock:
            try:
                while rest and not self.closed:
                    rest = rest[os.write(self._fd, rest) :]
            except BrokenPipeError:
                self.closed = True
