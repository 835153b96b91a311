"""/dev/kmsg, record by record: the kernel log as it grows, with sequence numbers that show what was lost.

The same form may come through a FIFO or a growing file, which is how a simulated node speaks.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from gpuwatch.collect.kernel_log.framing import Frame, joined, raw_frame

_RECORD_BYTES = 16_384
_READS_AT_ONCE = 1_000
_FILE_POLL_SECONDS = 0.02


class KmsgRecords:
    """Open at the oldest record the kernel still has. Raises OSError."""

    def __init__(self, path: Path) -> None:
        is_fifo = stat.S_ISFIFO(path.stat().st_mode)
        self.replays = not is_fifo
        # A FIFO held open for writing too never reports the end when its writer goes.
        access = os.O_RDWR if is_fifo else os.O_RDONLY
        self._fd = os.open(path, access | os.O_NONBLOCK | os.O_CLOEXEC)
        is_file = stat.S_ISREG(os.fstat(self._fd).st_mode)
        self.fileno: int | None = None if is_file else self._fd
        """For poll(2); None where poll always says yes, so that the caller has to look every `interval`."""
        self.interval: float | None = _FILE_POLL_SECONDS if is_file else None
        self.lost = 0
        self.malformed = 0
        self._rest = b""
        self._last: int | None = None
        self._overrun = False

    def read(self) -> list[Frame]:
        """The records that are there now, at most a thousand reads of them; never blocks.

        Raises OSError when the file itself fails; an overrun ring or one bad record is no failure.
        """
        frames: list[Frame] = []
        for _ in range(_READS_AT_ONCE):
            try:
                data = os.read(self._fd, _RECORD_BYTES)
            except BlockingIOError:
                break
            except OSError as error:
                self._skip(error)
                continue
            if not data:
                break
            frames += self._frames(data)
        return list(joined(frames))

    def close(self) -> None:
        """Give the file back."""
        os.close(self._fd)

    def _skip(self, error: OSError) -> None:
        """EPIPE: records were overwritten before they were read. EINVAL: one longer than any real one."""
        if error.errno == errno.EPIPE:
            self._overrun = True
        elif error.errno == errno.EINVAL:
            self.malformed += 1
        else:
            raise error

    def _frames(self, data: bytes) -> Iterator[Frame]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-_RECORD_BYTES:]
        for line in lines:
            if not line or line.startswith(b" "):
                continue  # key=value lines behind a record
            frame = raw_frame(line.decode("utf-8", "replace"))
            if frame is None:
                self.malformed += 1
                continue
            self._count_lost(frame.sequence)
            yield frame

    def _count_lost(self, sequence: int | None) -> None:
        """A gap in the numbers is what was overwritten; numbers that start again are a new writer's."""
        gap = 0
        if sequence is not None and self._last is not None:
            gap = sequence - self._last - 1
        self.lost += max(gap, 1 if self._overrun else 0)
        self._last, self._overrun = sequence, False
