"""The kernel log through klogctl(3), for a container that has CAP_SYSLOG but no /dev/kmsg.

The call gives the newest part of the ring as text, without record numbers and without a way to wait: it is
asked again and again, and new is what follows the text seen last.
"""

import ctypes
import os
import time
from collections.abc import Callable
from functools import cache

from gpuwatch.collect.kernel_log.framing import Frame, frames, joined

_READ_ALL, _SIZE_BUFFER = 3, 10
_TAIL_BYTES = 65_536
_SEEN_BYTES = 4_096
_INTERVAL_SECONDS = 0.1
_SHARE_OF_A_CPU = 0.02


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _klogctl(action: int, buffer: ctypes.Array[ctypes.c_char] | None, size: int) -> int:
    count = int(_libc().klogctl(action, buffer, size))
    if count < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return count


def ring_size() -> int:
    """Bytes of the kernel's log buffer. Raises OSError."""
    return _klogctl(_SIZE_BUFFER, None, 0)


def read_newest(size: int) -> bytes:
    """Up to `size` bytes of the newest whole lines, `<4>[ 12.345678] text`. Raises OSError."""
    buffer = ctypes.create_string_buffer(size)
    count = _klogctl(_READ_ALL, buffer, size)
    return buffer.raw[:count]


class SyslogRing:
    """Starts at the oldest line the kernel still has. Raises OSError when the call is not permitted."""

    fileno: int | None = None
    replays = True

    def __init__(self, newest: Callable[[int], bytes] = read_newest, size: int | None = None) -> None:
        self._newest = newest
        self._size = ring_size() if size is None else size
        self._seen: bytes | None = None
        self._newest(_SEEN_BYTES)
        self.interval: float | None = _INTERVAL_SECONDS
        """Seconds between looks; longer where a look is dear, as each one walks the kernel's whole ring."""
        self.lost = 0
        self.malformed = 0

    def read(self) -> list[Frame]:
        """The messages that are new since the last call. Raises OSError."""
        started = time.thread_time()
        lines = self._unseen().decode("utf-8", "replace").split("\n")
        self.interval = max(_INTERVAL_SECONDS, (time.thread_time() - started) / _SHARE_OF_A_CPU)
        return list(joined(frames(line for line in lines if line)))

    def close(self) -> None:
        """Nothing is held open."""

    def _unseen(self) -> bytes:
        """Look at a short tail first, at everything when what was seen last is further back."""
        text = b""
        for size in (_TAIL_BYTES, self._size) if self._seen is not None else (self._size,):
            text = self._newest(size)
            start = text.rfind(self._seen) if self._seen is not None else -1
            if self._seen is not None and start >= 0:
                return self._remember(text, start + len(self._seen))
        if self._seen is not None and len(text) > self._size - _SEEN_BYTES:
            self.lost += 1  # a full ring without it was run over; one that was cleared is short
        return self._remember(text, 0)

    def _remember(self, text: bytes, new: int) -> bytes:
        if text:
            self._seen = text[-_SEEN_BYTES:]
        return text[new:]
