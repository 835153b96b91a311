"""Files of a host, read so that they cannot harm the reader: it never waits for an end of file and opens no device.

A copied tree may hold a pipe without a writer, or a link to /dev/zero or to a watchdog.
"""

import errno
import os
import stat
from pathlib import Path
from typing import IO, Any

from gpuwatch.host.tree import TreePath

MOST_BYTES = 4 << 20
"""Longer files are cut off: none that is read whole is longer on a real machine."""

CHUNK = 64 << 10
"""Bytes of one read: the kernel refuses to read 4 MiB of a file of /proc/sys at once (ENOMEM)."""


def content(file: Path, most: int = MOST_BYTES) -> bytes:
    """The first `most` bytes.

    Raises:
        OSError: it cannot be read, or is no plain file.
    """
    body = bytearray()
    with opened(file, buffering=0) as found:
        while chunk := found.read(min(CHUNK, most - len(body))):
            body += chunk
    return bytes(body)


def text(file: Path, most: int = MOST_BYTES) -> str | None:
    """As `content`, stripped; bytes that are no UTF-8 are replaced. None: it cannot be read."""
    try:
        return content(file, most).decode(errors="replace").strip()
    except OSError:
        return None


def entries(folder: Path) -> list[Path] | None:
    """What is in a folder, by name; None: it cannot be listed."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return None


def opened(file: Path, mode: str = "rb", buffering: int = -1) -> IO[Any]:
    """An open file; text has its bytes that are no UTF-8 replaced.

    Raises:
        OSError: it cannot be opened, or is no plain file.
    """
    errors = None if "b" in mode else "replace"
    if isinstance(file, TreePath):
        return file.open(mode, buffering, errors=errors)
    return open(file, mode, buffering, errors=errors, opener=plain)


def plain(path: str, flags: int) -> int:
    """For `open(opener=plain)`.

    Raises:
        OSError: it cannot be opened, or is no plain file.
    """
    mode = os.stat(path).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        raise OSError(errno.EINVAL, "it is no plain file", path)
    return os.open(path, flags | os.O_CLOEXEC | os.O_NOCTTY)
