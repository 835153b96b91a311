"""Starts `gpuwatch` as a process of its own, for what only a process has: exit codes, signals, pipes, terminals."""

import os
import subprocess
import sys
import time
from collections.abc import Callable

COMMAND = (sys.executable, "-m", "gpuwatch")


def environment(**changes: str) -> dict[str, str]:
    """The caller's variables without any of ours."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GPUWATCH_", "COLUMNS"))}
    return kept | {"COLUMNS": "100"} | changes


def start(*args: str, **changes: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**changes)
    )


def finish(*args: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *args], capture_output=True, text=True, env=environment(**changes), timeout=60, check=False
    )


def until(condition: Callable[[], object], seconds: float = 20.0) -> object:
    """What `condition` gives once it gives something; fails at the deadline."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"nothing within {seconds} s")
