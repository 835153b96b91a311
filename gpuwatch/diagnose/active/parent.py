"""The other end of the pipe: starts the process that does the work, hears it out, and never waits for ever."""

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

from gpuwatch.diagnose.active.messages import Calling, Done, Job, Line
from gpuwatch.diagnose.active.results import DeviceRun, Fault

log = logging.getLogger(__name__)

LEAVE_SECONDS = 2.0
"""A process in no call of the driver ends within so long after SIGTERM."""

KEPT = "CUDA_MPS_"
"""Of the variables CUDA_*; the others change what a program sees or how it runs, and the work is to be plain."""


class Ended(NamedTuple):
    """`left`: the process is still inside the driver; it was left alone."""

    runs: tuple[DeviceRun, ...]
    left: bool = False


def done_by(job: Job, seconds: float) -> Ended:
    """Run a job in a process of its own for at most so long, and a little for it to leave."""
    argument = msgspec.json.encode(job).decode()
    command = (sys.executable, "-m", "gpuwatch.diagnose.active", argument)
    with tempfile.TemporaryFile() as trouble:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=trouble, env=_environment(job)
            )
        except OSError as error:
            return Ended((_unfinished(job, [], None, "crash", f"the check cannot be started: {error}"),))
        try:
            return _heard(process, job, seconds, trouble)
        except BaseException:
            has_gone(process)
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()


def _environment(job: Job) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("CUDA_") or k.startswith(KEPT)}
    return kept | {"CUDA_VISIBLE_DEVICES": ",".join(job.devices), "CUDA_CACHE_DISABLE": "1"}


def _heard(process: "subprocess.Popen[bytes]", job: Job, seconds: float, trouble: IO[bytes]) -> Ended:
    runs: list[DeviceRun] = []
    last: Calling | None = None
    until = time.monotonic() + seconds
    try:
        for line in _lines(process, until):
            if isinstance(line, Done):
                runs.append(line.run)
                last = None
            else:
                last = line
        # the kernel closes its pipe before the driver's files, which may keep it
        status = process.wait(max(LEAVE_SECONDS, until - time.monotonic()))
    except (TimeoutError, subprocess.TimeoutExpired) as error:
        left = not has_gone(process)
        words = f"no answer within {seconds:.0f} s" if isinstance(error, TimeoutError) else "its process does not end"
        run = _unfinished(job, runs, last, "hang", words, f"process {process.pid} was left alone" if left else "")
        return Ended((*runs, run), left)
    if status:
        run = _unfinished(job, runs, last, "crash", f"the check {_ending(status)}", _last_line(trouble))
        return Ended((*runs, run))
    return Ended(tuple(runs))


def _lines(process: "subprocess.Popen[bytes]", until: float) -> Iterator[Line]:
    """What it tells until it ends; what comes after the last full line is lost.

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
            yield msgspec.json.decode(line, type=Line)


def has_gone(process: "subprocess.Popen[bytes]") -> bool:
    """Ask it to go. It is never killed: inside the driver that can wedge the GPU, and outside it goes by itself."""
    process.terminate()
    try:
        process.wait(LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        log.warning("process %d is inside a call of the driver; left alone", process.pid)
        threading.Thread(target=process.wait, name="left process", daemon=True).start()
        return False
    return True


def _unfinished(
    job: Job, runs: list[DeviceRun], last: Calling | None, fault: Fault, words: str, more: str = ""
) -> DeviceRun:
    """The run that was under way: the first of which nothing was heard."""
    test = job.tests[min(len(runs), len(job.tests) - 1)]
    function = last.function if last else None
    error = (f"{words} in {function}" if function else words) + (f"; {more}" if more else "")
    return DeviceRun(test=test, device=job.devices[0], error=error, fault=fault, function=function)


def _ending(status: int) -> str:
    if status > 0:
        return f"ended with status {status}"
    names = {number.value: number.name for number in signal.Signals}
    return f"was ended by {names.get(-status, f'signal {-status}')}"


def _last_line(text: IO[bytes]) -> str:
    """Of what it wrote to stderr."""
    text.seek(0)
    lines = text.read(1 << 20).decode(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else ""
