"""A file that keeps whoever opens it, as those of a wedged driver do."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def kept(file: Path) -> Iterator[None]:
    """For as long as the block runs, the kernel lets nobody else open this plain file (fcntl(2), leases), but for
    those who have waited for lease-break-time: 45 s.
    """
    descriptor = os.open(file, os.O_RDWR)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETOWN, 0)  # no SIGIO to this process, which would end it
        yield
    finally:
        os.close(descriptor)
