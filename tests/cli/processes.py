"""Starts `gpuwatch` as a process of its own, for what only a process has: exit codes, signals, pipes, terminals."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from tests.cpu_clock import waited
from tests.waiting import BOUND_SECONDS

COMMAND = (sys.executable, "-m", "gpuwatch")
OURS = ("GPUWATCH_", "KUBERNETES_", "POD_", "KUBECONFIG", "NODE_NAME", "COLUMNS", "NO_COLOR", "FORCE_COLOR")
"""How the names of variables begin that change what gpuwatch does."""


def environment(**changes: str) -> dict[str, str]:
    """The caller's variables without any that gpuwatch reads."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return kept | {"COLUMNS": "100"} | changes


def start(*args: str, **changes: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**changes)
    )


@contextlib.contextmanager
def started(*args: str, variables: dict[str, str] | None = None, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """`gpuwatch ARGS`, which has ended when the block has, however the block ends. `options`: of subprocess.Popen."""
    with subprocess.Popen([*COMMAND, *args], env=environment(**(variables or {})), **options) as process:
        try:
            yield process
        finally:
            process.terminate()  # nothing happens to one that has ended
            try:
                process.wait(BOUND_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def finish(*args: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *args],
        capture_output=True,
        text=True,
        env=environment(**changes),
        timeout=BOUND_SECONDS,
        check=False,
    )


def interrupted(process: subprocess.Popen[Any]) -> tuple[int, Any, Any]:
    """Exit code, output and errors of a process after SIGINT."""
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=BOUND_SECONDS)
    return process.returncode, out, errors


class Ended:
    """A process that has ended: its output, and the seconds that it took apart from its waiting for a CPU.

    What a command promises about time is about an idle machine. Waiting for a CPU is what other programs cost, and the
    kernel counts it for the first thread, which is the one that decides when the command ends.
    """

    def __init__(self, *args: str, **changes: str) -> None:
        began = time.monotonic()
        with started(*args, variables=changes, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            self.stdout, self.stderr, ended = _read(process)
            self.seconds = ended - began - waited(process.pid)
            self.returncode = process.wait()


def _read(process: subprocess.Popen[bytes]) -> tuple[str, str, float]:
    """What it writes until nobody has the other end of its pipes any more, and when it ended; it is not waited for."""
    end, deadline = os.pidfd_open(process.pid), time.monotonic() + BOUND_SECONDS
    said: dict[Any, bytes] = {process.stdout: b"", process.stderr: b""}
    left, ended = {end, *said}, 0.0
    try:
        while left:
            ready, _, _ = select.select(left, [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"not all of it has ended within {BOUND_SECONDS:g} s; it said {said}"
            for each in ready:
                data = os.read(each.fileno(), 1 << 16) if each is not end else b""
                ended = time.monotonic() if each is end else ended
                left -= set() if data else {each}
                if data:
                    said[each] += data
    finally:
        os.close(end)
    return said[process.stdout].decode(), said[process.stderr].decode(), ended
