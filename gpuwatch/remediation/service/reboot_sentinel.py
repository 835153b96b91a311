"""The file that a tool which reboots nodes waits for, such as kured's sentinel; only our own is removed."""

import contextlib
import os
from pathlib import Path

from gpuwatch.host.plain_file import content
from gpuwatch.model.errors import GpuwatchError

MARK = "gpuwatch: a GPU needs this node to be rebooted\n"
"""The content, which shows that the file is ours."""


def set_sentinel(path: Path, *, wanted: bool) -> bool:
    """Make or remove the file; False when it was as wanted, or is not ours.

    Raises:
        GpuwatchError: it can be neither made nor removed.
    """
    try:
        if wanted:
            return _make(path)
        if content(path, len(MARK) + 1) != MARK.encode():
            return False
        path.unlink()
    except FileNotFoundError as error:
        if not wanted:
            return False
        raise _failed(path, error) from error
    except OSError as error:
        raise _failed(path, error) from error
    return True


def _make(path: Path) -> bool:
    """All of it or nothing: half a file would not be recognised as ours."""
    if path.exists():
        return False
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(MARK)
        os.link(draft, path)  # unlike a rename, it replaces no file that appeared meanwhile
    except FileExistsError:
        return False
    finally:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
    return True


def _failed(path: Path, error: OSError) -> GpuwatchError:
    why = error.strerror or str(error)
    return GpuwatchError(f"cannot hand over by {path}", why, "check remediation.handover.sentinel and its mount")
