"""The messages of the kernel log that concern GPUs, since the machine was booted."""

import errno
import os
import re
import stat
from pathlib import Path

from gpuwatch.collect.kernel_log.lines import Frame
from gpuwatch.collect.kernel_log.records import text_frames
from gpuwatch.collect.kernel_log.ring import DEVICE, KmsgRecords, SyslogRing
from gpuwatch.host.plain_file import opened
from gpuwatch.host.tree import TreePath
from gpuwatch.model.snapshot import Record

_CONCERNS_GPUS = re.compile(
    r"nvrm|nvidia|nouveau|secure ?boot|lockdown|signature|unsigned module|unavailable key|pkcs#7|\baer\b|vfio",
    re.ASCII | re.IGNORECASE,
)
_BOOTED = "Linux version "
_MOST_READS, _MOST_LINES = 1_000, 20_000
_NEWEST_BYTES = 16 * 1024 * 1024
"""The newest bytes of a copy, which are read: /var/log/messages may hold weeks."""


class KernelMessage(Record, frozen=True, kw_only=True):
    """One message of facility 0, the driver's three-line ones as one. `at`: seconds since boot, None where the copy
    has no times.
    """

    text: str
    at: float | None = None


def kernel_text(kmsg: Path, copies: tuple[Path, ...] = ()) -> tuple[KernelMessage, ...]:
    """Lines that concern GPUs, oldest first: from the kernel, or else from the first of `copies` that can be read.

    Of a copy only the part since its last boot counts. A kernel log that is a FIFO belongs to another reader and is
    not read.

    Raises:
        OSError: neither can be read.
    """
    try:
        found = _records(kmsg)
    except OSError:
        copied = next((lines for lines in map(_copied, copies) if lines is not None), None)
        if copied is None:
            raise
        found = copied
    kept = [
        KernelMessage(text=line.message.rstrip(), at=line.uptime)
        for line in found
        if not line.facility and _CONCERNS_GPUS.search(line.message)
    ]
    return tuple(kept[-_MOST_LINES:])


def _records(kmsg: Path) -> list[Frame]:
    if isinstance(kmsg, TreePath):  # a copy is no device
        if (lines := _copied(kmsg)) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(kmsg))
        return lines
    try:
        if stat.S_ISFIFO(kmsg.stat().st_mode):
            raise OSError(errno.ESPIPE, "another process reads this pipe", str(kmsg))
        records = KmsgRecords(kmsg)
    except OSError:
        if kmsg != DEVICE:
            raise
        try:
            return SyslogRing().read()
        except AttributeError:  # a C library without klogctl
            raise OSError(errno.ENOSYS, "no klogctl", str(DEVICE)) from None
    found: list[Frame] = []
    try:
        for _ in range(_MOST_READS):
            more = records.read()
            if not more:
                break
            found += more
    finally:
        records.close()
    return found


def _copied(file: Path) -> list[Frame] | None:
    """The newest part of a log file, in any logger's format, since the last boot; None: it cannot be read."""
    try:
        with opened(file) as log:
            size = log.seek(0, 2)
            log.seek(max(0, size - _NEWEST_BYTES))
            text = log.read(_NEWEST_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    lines = text_frames(text.partition("\n")[2] if size > _NEWEST_BYTES else text)
    boots = (number for number in reversed(range(len(lines))) if lines[number].message.startswith(_BOOTED))
    return lines[next(boots, 0) :]
