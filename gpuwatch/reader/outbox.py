"""The reader's way out: whole frames from many threads onto one pipe."""

import os
import threading

from gpuwatch.reader.messages import AnyMessage, encode


class Outbox:
    """Writes frames one after another; the agent gone means there is nobody left to read for."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def send(self, message: AnyMessage) -> None:
        """Write one frame; ends the process when the agent closed the pipe."""
        frame = memoryview(encode(message))
        with self._lock:
            try:
                while frame:
                    frame = frame[os.write(self._fd, frame) :]
            except BrokenPipeError:
                os._exit(0)
