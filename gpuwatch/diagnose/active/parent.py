"""Runs a job in a child process: reads its messages, ends it, and never waits for ever."""

import logging
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import IO, NamedTuple

import msgspec

from gpuwatch.diagnose.active.results import ChildMessage, DeviceRun, DriverCall, Fault, Job, RunEnded
from gpuwatch.model.decoding import prepared

log = logging.getLogger(__name__)

LEAVE_SECONDS = 2.0
"""A process that is in no call of the driver ends within this time after SIGTERM."""

KEPT = "CUDA_MPS_"
"""The only CUDA_* variables that the child inherits; others change its devices or its run, and distort the result."""


class Ended(NamedTuple):
    """`left`: the process is still inside the driver, and was left alone."""

    runs: tuple[DeviceRun, ...]
    left: bool = False


def run_job(job: Job, seconds: float) -> Ended:
    """Run a job in a process of its own within `seconds`, and a little more for it to end."""
    command = (sys.executable, "-m", "gpuwatch.diagnose.active.child", msgspec.json.encode(job).decode())
    kept = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_") or k.startswith(KEPT)}
    environment = kept | {"CUDA_VISIBLE_DEVICES": ",".join(job.devices), "CUDA_CACHE_DISABLE": "1"}
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=environment
            )
        except OSError as error:
            return Ended((_unfinished(job, [], None, "crash", f"the check cannot be started: {error}"),))
        try:
            return _followed(process, job, seconds, errors)
        except BaseException:
            terminated(process)
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()


def _followed(process: "subprocess.Popen[bytes]", job: Job, seconds: float, errors: IO[bytes]) -> Ended:
    runs: list[DeviceRun] = []
    last: DriverCall | None = None
    until = time.monotonic() + seconds
    try:
        for message in received(process, until):
            if isinstance(message, RunEnded):
                runs.append(message.run)
                last = None
            else:
                last = message
        # at its end the kernel closes the pipe first; closing the driver's files may block
        status = process.wait(max(LEAVE_SECONDS, until - time.monotonic()))
    except (TimeoutError, subprocess.TimeoutExpired) as error:
        left = not terminated(process)
        why = f"no answer within {seconds:.0f} s" if isinstance(error, TimeoutError) else "its process does not end"
        run = _unfinished(job, runs, last, "hang", why, f"process {process.pid} was left alone" if left else "")
        return Ended((*runs, run), left)
    if not status:
        return Ended(tuple(runs))
    names = {number.value: number.name for number in signal.Signals}
    by_signal = f"was ended by {names.get(-status, f'signal {-status}')}"
    errors.seek(0)
    lines = errors.read(1 << 20).decode(errors="replace").strip().splitlines()
    why = f"the check {f'ended with status {status}' if status > 0 else by_signal}"
    return Ended((*runs, _unfinished(job, runs, last, "crash", why, lines[-1][:300] if lines else "")))


def received(process: "subprocess.Popen[bytes]", until: float) -> Iterator[ChildMessage]:
    """Messages until the process ends; bytes after the last full line are lost.

    Raises:
        TimeoutError: it has not ended in time.
    """
    stdout, waiting = process.stdout, b""
    assert stdout is not None  # noqa: S101 Popen was asked for a pipe
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([stdout], [], [], left)[0]:
            raise TimeoutError
        data = os.read(stdout.fileno(), 1 << 16)
        if not data:
            return
        *lines, waiting = (waiting + data).split(b"\n")
        for line in lines:
            yield msgspec.json.decode(line, type=prepared(ChildMessage))


def terminated(process: "subprocess.Popen[bytes]") -> bool:
    """Send SIGTERM; whether it ended. It is never killed: inside the driver that can wedge the GPU, and outside of it
    SIGTERM is enough.
    """
    process.terminate()
    try:
        process.wait(LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        log.warning("process %d is inside a call of the driver; left alone", process.pid)
        threading.Thread(target=process.wait, name="left process", daemon=True).start()
        return False
    return True


def _unfinished(
    job: Job, runs: list[DeviceRun], last: DriverCall | None, fault: Fault, why: str, more: str = ""
) -> DeviceRun:
    """A failed run for the test that was under way: the first one without a result."""
    test = job.tests[min(len(runs), len(job.tests) - 1)]
    function = last.function if last else None
    error = (f"{why} in {function}" if function else why) + (f"; {more}" if more else "")
    return DeviceRun(test=test, device=job.devices[0], error=error, fault=fault, function=function)
