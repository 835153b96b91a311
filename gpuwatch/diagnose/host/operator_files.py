"""What the GPU operator has noted on this node: its validation files. They are read, never written."""

from pathlib import Path

from gpuwatch.diagnose.host.host_root import exists, listing, text
from gpuwatch.model.snapshot import Record

VALIDATIONS = "/run/nvidia/validations"
MOFED = "/run/mellanox/drivers"
MOFED_READY = f"{MOFED}/.driver-ready"
LONGEST_LINE = 200


class OperatorFiles(Record, frozen=True, kw_only=True):
    """`validations`: name below /run/nvidia/validations -> first line; `mofed_ready`: /run/mellanox/drivers, None
    without that folder.
    """

    present: bool = False
    validations: dict[str, str] = {}
    mofed_ready: bool | None = None


def operator_files(root: Path) -> OperatorFiles:
    """Absent folders mean: no operator here. Raises OSError where they cannot be read."""
    names = listing(root, VALIDATIONS)
    return OperatorFiles(
        present=exists(root, VALIDATIONS),
        validations={name.rpartition("/")[2]: _first_line(root, name) for name in names},
        mofed_ready=exists(root, MOFED_READY) if exists(root, MOFED) else None,
    )


def _first_line(root: Path, path: str) -> str:
    return next(iter(text(root, path).splitlines()), "")[:LONGEST_LINE]
