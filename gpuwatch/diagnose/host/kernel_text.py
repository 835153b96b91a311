"""What the kernel log says about NVIDIA's driver, XIDs and all else, since the machine was booted."""

import errno
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from gpuwatch.collect.kernel_log.follower import DEVICE
from gpuwatch.collect.kernel_log.lines import Frame, frames, joined
from gpuwatch.collect.kernel_log.ring import KmsgRecords, SyslogRing
from gpuwatch.host.plain_file import plain
from gpuwatch.model.snapshot import Record

_CONCERNS_GPUS = re.compile(
    r"nvrm|nvidia|nouveau|secure ?boot|lockdown|signature|unsigned module|unavailable key|pkcs#7|\baer\b|vfio",
    re.ASCII | re.IGNORECASE,
)
_BOOTED = "Linux version "
_MOST_READS, _MOST_LINES = 1_000, 20_000
_NEWEST_BYTES = 16 * 1024 * 1024
"""Of a copy: /var/log/messages of a chatty machine holds weeks."""


class KernelLine(Record, frozen=True, kw_only=True):
    """One message of facility 0, the driver's three-line ones as one. `at`: seconds since boot, None where the copy
    does not tell.
    """

    text: str
    at: float | None = None


def kernel_text(kmsg: Path, copies: tuple[Path, ...] = ()) -> tuple[KernelLine, ...]:
    """Lines that concern GPUs, oldest first: from the kernel, or else from the first of `copies` that can be read.

    Of a copy only what was written since the last boot in it counts. A kernel log that is a FIFO is somebody else's to
    read and is left alone.

    Raises:
        OSError: neither can be read.
    """
    try:
        return _relevant(_records(kmsg))
    except OSError:
        for copy in copies:
            try:
                return _relevant(_since_boot(_copied(copy)))
            except OSError:
                continue
        raise


def _records(kmsg: Path) -> list[Frame]:
    try:
        if stat.S_ISFIFO(kmsg.stat().st_mode):
            raise OSError(errno.ESPIPE, "another process reads this pipe", str(kmsg))
        records = KmsgRecords(kmsg)
    except OSError:
        if kmsg != DEVICE:
            raise
        return _from_ring()
    try:
        return _drained(records)
    finally:
        records.close()


def _drained(records: KmsgRecords) -> list[Frame]:
    found: list[Frame] = []
    for _ in range(_MOST_READS):
        more = records.read()
        if not more:
            break
        found += more
    return found


def _from_ring() -> list[Frame]:
    try:
        return SyslogRing().read()
    except AttributeError:  # a C library without klogctl
        raise OSError(errno.ENOSYS, "no klogctl", str(DEVICE)) from None


def _copied(file: Path) -> list[Frame]:
    """The newest part of a log file, in whatever form its logger gave it."""
    with open(file, "rb", opener=plain) as log:
        size = log.seek(0, 2)
        log.seek(max(0, size - _NEWEST_BYTES))
        text = log.read(_NEWEST_BYTES).decode("utf-8", "replace")
    lines = text.splitlines()[1 if size > _NEWEST_BYTES else 0 :]
    return list(joined(frames(lines)))


def _since_boot(lines: list[Frame]) -> list[Frame]:
    boots = (number for number in reversed(range(len(lines))) if lines[number].message.startswith(_BOOTED))
    return lines[next(boots, 0) :]


def _relevant(lines: Iterable[Frame]) -> tuple[KernelLine, ...]:
    kept = [
        KernelLine(text=line.message.rstrip(), at=line.uptime)
        for line in lines
        if not line.facility and _CONCERNS_GPUS.search(line.message)
    ]
    return tuple(kept[-_MOST_LINES:])
