"""`tmp_path` in memory: a simulated host is 400 files and folders, and to make and remove them costs a disk ten times
what the tests themselves do.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

MEMORY = Path("/dev/shm")
ROOM = 1 << 30
PREFIX = "gpuwatch-test-"


def place() -> str | None:
    """A folder in memory where there is room and files may be executed; else None, as `tempfile` understands it."""
    if not os.access(MEMORY, os.W_OK):
        return None
    found = os.statvfs(MEMORY)
    is_good = found.f_bavail * found.f_frsize > ROOM and not found.f_flag & os.ST_NOEXEC
    return str(MEMORY) if is_good else None


def folder() -> TemporaryDirectory[str]:
    """One that names its process, so that `no_folder_is_left` of a later run can tell whether it is in use."""
    return TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-", dir=place(), ignore_cleanup_errors=True)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Removed after the test, also when it has failed: memory is scarcer than disks."""
    with folder() as made:
        yield Path(made)


@pytest.fixture(scope="session", autouse=True)
def no_folder_is_left() -> None:
    """What killed runs have left."""
    for path in MEMORY.glob(f"{PREFIX}*"):
        pid = path.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(path, ignore_errors=True)
