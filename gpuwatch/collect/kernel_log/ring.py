"""The two ways to the kernel's log ring.

/dev/kmsg gives records one by one, with sequence numbers that show which were lost; the same form may come through a
FIFO or a growing file, as a simulated node writes it. klogctl(3) is for a container that has CAP_SYSLOG but no
/dev/kmsg: it gives the newest part of the ring as text, without record numbers and without a way to wait, so it is
called again and again, and only text behind that of the call before is new.
"""

import ctypes
import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gpuwatch.collect.kernel_log.lines import Frame, raw_frame, syslog_frame
from gpuwatch.collect.kernel_log.records import records

DEVICE = Path("/dev/kmsg")
_STDIN = 0
_RECORD_BYTES = 16_384
_READS_AT_ONCE = 1_000
_FILE_POLL_SECONDS = 0.02


class KmsgRecords:
    """Open at the oldest record the kernel still has. Raises OSError.

    A service manager may open /dev/kmsg as standard input, so that the process needs no right to the kernel's log.
    """

    def __init__(self, path: Path) -> None:
        is_fifo = stat.S_ISFIFO(path.stat().st_mode)
        self.replays = not is_fifo
        if path == DEVICE and _is_kmsg(_STDIN):
            self._fd = os.dup(_STDIN)
            os.set_blocking(self._fd, False)
        else:
            # A FIFO held open for writing too never reports the end when its writer goes.
            access = os.O_RDWR if is_fifo else os.O_RDONLY
            self._fd = os.open(path, access | os.O_NONBLOCK | os.O_CLOEXEC)
        is_file = stat.S_ISREG(os.fstat(self._fd).st_mode)
        self.fileno: int | None = None if is_file else self._fd
        """For poll(2); None where poll always reports data, so that the caller has to read every `interval`."""
        self.unusable: str | None = None
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
                # EPIPE: records were overwritten before they were read. EINVAL: one longer than any real one
                if error.errno == errno.EPIPE:
                    self._overrun = True
                elif error.errno == errno.EINVAL:
                    self.malformed += 1
                else:
                    raise error
                continue
            if not data:
                if self.fileno is None and os.lseek(self._fd, 0, os.SEEK_CUR) > os.fstat(self._fd).st_size:
                    os.lseek(self._fd, 0, os.SEEK_SET)  # a file that was emptied, and has grown since
                    continue
                break
            frames += self._frames(data)
        return list(records(frames))

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

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
            # a gap in the numbers means overwritten records; numbers that start again are from a new writer
            gap = 0
            if frame.sequence is not None and self._last is not None:
                gap = frame.sequence - self._last - 1
            self.lost += max(gap, 1 if self._overrun else 0)
            self._last, self._overrun = frame.sequence, False
            yield frame


_READ_ALL, _SIZE_BUFFER = 3, 10
_TAIL_BYTES = 65_536
_SEEN_BYTES = 4_096
_INTERVAL_SECONDS = 0.1
_SHARE_OF_A_CPU = 0.02

PRINTK_TIMES = Path("/sys/module/printk/parameters/time")
NO_TIMES = (
    "printk.time is off, and without times klogctl does not show where a record begins, so no line counts; "
    "give the container /dev/kmsg, or switch times on: echo Y > /sys/module/printk/parameters/time"
)


_libc = ctypes.CDLL(None, use_errno=True)


def _klogctl(action: int, buffer: ctypes.Array[ctypes.c_char] | None, size: int) -> int:
    count = int(_libc.klogctl(action, buffer, size))
    if count < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return count


def read_newest(size: int) -> bytes:
    """Up to `size` bytes of the newest whole lines, `<4>[ 12.345678] text`. Raises OSError."""
    buffer = ctypes.create_string_buffer(size)
    count = _klogctl(_READ_ALL, buffer, size)
    return buffer.raw[:count]


def _is_kmsg(fd: int) -> bool:
    try:
        info = os.fstat(fd)
    except OSError:
        return False
    return stat.S_ISCHR(info.st_mode) and info.st_rdev == os.makedev(1, 11)


class SyslogRing:
    """Starts at the oldest line the kernel still has. Raises OSError when the call is not permitted."""

    fileno: int | None = None
    replays = True

    def __init__(
        self, newest: Callable[[int], bytes] = read_newest, size: int | None = None, times: Path = PRINTK_TIMES
    ) -> None:
        self._newest, self._times = newest, times
        self._size = _klogctl(_SIZE_BUFFER, None, 0) if size is None else size
        self._seen: bytes | None = None
        self._newest(_SEEN_BYTES)
        self.interval: float | None = _INTERVAL_SECONDS
        """Seconds between reads; longer where a read is costly, as each one walks the kernel's whole ring."""
        self.lost = 0
        self.malformed = 0
        self.unusable: str | None = None
        """Why no record counts; None where records count."""

    def read(self) -> list[Frame]:
        """The records that are new since the last call: a call gives whole ones. Raises OSError.

        Without times nothing shows where a record begins: such text never counts, not even once times are on again.
        """
        started = time.thread_time()
        lines = [line for line in self._unseen().decode("utf-8", "replace").split("\n") if line]
        found = [frame for frame in map(syslog_frame, lines) if frame is not None]
        was_unusable = self.unusable is not None
        try:
            times_are_off = self._times.read_bytes().startswith(b"N")
        except OSError:  # no sysfs in this container: only the lines show it
            times_are_off = False
        if len(found) < len(lines) or times_are_off:
            self.unusable = NO_TIMES
        elif lines:
            self.unusable = None
        self.interval = max(_INTERVAL_SECONDS, (time.thread_time() - started) / _SHARE_OF_A_CPU)
        return [] if was_unusable or self.unusable else list(records(found))

    def close(self) -> None:
        """Nothing is held open."""

    def _unseen(self) -> bytes:
        """Read a short tail first, and the whole ring when the text read last is further back."""
        text, new = b"", 0
        for size in (_TAIL_BYTES, self._size) if self._seen is not None else (self._size,):
            text = self._newest(size)
            # whole lines: a message may quote the text read last, but begins no line with another record's prefix
            start = (b"\n" + text).rfind(b"\n" + self._seen) if self._seen is not None else -1
            if self._seen is not None and start >= 0:
                new = start + len(self._seen)
                break
        else:
            if self._seen is not None and len(text) > self._size - _SEEN_BYTES:
                self.lost += 1  # a full ring without that text was overwritten; a cleared one is short
        if text:
            tail = text[-_SEEN_BYTES:]
            self._seen = text if len(text) <= _SEEN_BYTES else tail[tail.find(b"\n", 0, -1) + 1 :]
        return text[new:]
