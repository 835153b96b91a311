"""Where the driver's user-space half is installed: the host itself, or the root of a driver container."""

from pathlib import Path

from gpuwatch.model.snapshot import Record


class DriverRoot(Record, frozen=True, kw_only=True):
    """`path` on the host (`/`, `/run/nvidia/driver`); `libraries`: soname -> version of the file behind it, such as
    `libnvidia-ml.so.1` -> `570.86.15`.
    """

    path: str
    libraries: dict[str, str] = {}
    smi: bool = False


def driver_roots(root: Path) -> tuple[DriverRoot, ...]:
    """Every place where some of it was found, the usual one first."""
    return ()
