"""`tmp_path` in memory: a simulated host is 400 files and folders, and to make and remove them costs a disk ten times
what the tests themselves do.
"""

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

MEMORY = Path("/dev/shm")
ROOM = 1 << 30
PREFIX = "gpuwatch-test-"
NEW_SECONDS = 60.0


def place() -> str | None:
    """A folder in memory where there is room and files may be executed; else None, as `tempfile` understands it."""
    if not os.access(MEMORY, os.W_OK):
        return None
    found = os.statvfs(MEMORY)
    is_good = found.f_bavail * found.f_frsize > ROOM and not found.f_flag & os.ST_NOEXEC
    return str(MEMORY) if is_good else None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """`path` is locked meanwhile, or until this process dies. BlockingIOError: another process has locked it."""
    opened = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(opened)


@contextmanager
def folder() -> Iterator[Path]:
    """One that is locked while it is in use: by a process number none can tell, as containers have their own."""
    with ExitStack() as stack:
        made = Path(stack.enter_context(TemporaryDirectory(prefix=PREFIX, dir=place(), ignore_cleanup_errors=True)))
        stack.enter_context(locked(made))
        yield made


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Removed after the test, also when it has failed: memory is scarcer than disks."""
    with folder() as made:
        yield made


@pytest.fixture(scope="session", autouse=True)
def no_folder_is_left() -> None:
    """What killed runs have left. A new folder may not have its lock yet."""
    for path in MEMORY.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > NEW_SECONDS:
                with locked(path):
                    shutil.rmtree(path, ignore_errors=True)
