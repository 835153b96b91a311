"""What is expensive to find out and is data in the end: one worker of a run finds it out, the others read it."""

import fcntl
import os
import pickle
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

T = TypeVar("T")


def once(factory: pytest.TempPathFactory, name: str, compute: Callable[[Path], T]) -> T:
    """What `compute(folder)` returns, whichever worker was the first to ask; if it fails, it fails for all of them."""
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent  # that of the whole run
    file = root / f"{name}.pickle"
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # ends with the file, also when this process is killed
        if not file.exists():
            partial = file.with_suffix(".partial")
            partial.write_bytes(pickle.dumps(_tried(compute, Path(tempfile.mkdtemp(prefix=f"{name}-", dir=root)))))
            partial.replace(file)
    found, trouble = pickle.loads(file.read_bytes())
    if trouble:
        pytest.fail(trouble, pytrace=False)
    result: T = found
    return result


def _tried(compute: Callable[[Path], T], folder: Path) -> tuple[T | None, str]:
    try:
        return compute(folder), ""
    except Exception:
        return None, traceback.format_exc()
