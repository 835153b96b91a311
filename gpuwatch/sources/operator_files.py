"""What the GPU operator has noted on this node: its validation files. They are read, never written."""

from pathlib import Path

from gpuwatch.model.snapshot import Record


class OperatorFiles(Record, frozen=True, kw_only=True):
    """`validations`: name below /run/nvidia/validations -> first line; `mofed_ready`: /run/mellanox/drivers."""

    present: bool = False
    validations: dict[str, str] = {}
    mofed_ready: bool | None = None


def operator_files(root: Path) -> OperatorFiles:
    """Absent folders mean: no operator here. Raises OSError where they cannot be read."""
    return OperatorFiles()
