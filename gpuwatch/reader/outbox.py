"""The reader's way out: whole frames from many threads onto one pipe."""

import os
import threading

from gpuwatch.reader.messages import AnyMessage, encode


class Outbox:
    """Writes frames one after another; `closed` once the agent has closed the pipe and nobody reads on."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self.closed = False

    def send(self, message: AnyMessage) -> None:
        """Write one frame; nothing more once the pipe is closed."""
        frame = memoryview(encode(message))
        with self._lock:
            try:
                while frame and not self.closed:
                    frame = frame[os.write(self._fd, frame) :]
            except BrokenPipeError:
                self.closed = True
