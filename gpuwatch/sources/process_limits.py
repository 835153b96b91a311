"""What this process, and those like it, may do: locked memory, shared memory, capabilities."""

from pathlib import Path

from gpuwatch.model.snapshot import Record


class Limits(Record, frozen=True, kw_only=True):
    """Bytes; `memlock` None: unlimited. `capabilities`: names such as CAP_SYS_ADMIN, of the effective set."""

    euid: int
    memlock: int | None = None
    shm: int | None = None  # size of /dev/shm
    hugepages: int | None = None
    capabilities: tuple[str, ...] = ()


def limits(proc: Path, dev: Path) -> Limits:
    """Of the process that asks. Raises OSError."""
    return Limits(euid=0)
