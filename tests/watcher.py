"""Ends the processes of a test run that was killed: a process of its own, which needs nothing but the standard library.

When pytest is killed no code of it runs any more. So this one waits for the end of a pipe whose other end only pytest
holds, and then kills whatever still has the run's mark in its environment.
"""

import os
import signal
import sys
import time
from pathlib import Path

MARK = "GPUWATCH_TEST_RUN"
ROUNDS = 100
"""A process inside a driver call cannot be killed: the watcher does not wait for it longer than ten seconds."""


def marked(mark: str) -> set[int]:
    """Pids of living processes that have the mark, as far as this user may read their environment."""
    wanted, found = f"{MARK}={mark}".encode(), set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):  # a zombie's is empty
                    found.add(int(entry.name))
            except OSError:  # it ended, or belongs to another user
                continue
    return found


def main(mark: str) -> None:
    """Wait for the end of the run, however it ends; then kill what has its mark."""
    while os.read(0, 4096):
        pass
    for _ in range(ROUNDS):
        left = marked(mark)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
        if not left:
            return
        time.sleep(0.1)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # ctrl-C is for pytest; this ends after it
    main(sys.argv[1])
