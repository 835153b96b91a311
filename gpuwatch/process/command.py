"""Runs an operator's command: an argument list, never a shell; with a deadline, and a bound on what is kept of its
output.

A command that has not ended in time gets SIGTERM, never SIGKILL: a process that is killed inside a call of the driver
can wedge the GPU.
"""

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

MAX_OUTPUT = 4096
"""Bytes that are kept of stdout and stderr together; the rest is read and dropped."""

LEAVE_SECONDS = 2.0
POLL_SECONDS = 0.1


class CommandResult(NamedTuple):
    """`status`: None when it could not be started or has not ended in time; `output` shows which."""

    status: int | None
    output: str


def run_command(
    arguments: Sequence[str],
    seconds: float,
    values: Mapping[str, str] | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    folder: str = "/",
    answer_bytes: int = 0,
    stopped: Callable[[], bool] = lambda: False,
) -> CommandResult:
    """Run it within `seconds`. `{name}` in an argument is replaced by the value of that name.

    It gets no input, a session of its own, and our environment without `NOTIFY_SOCKET`, with `environment` added.
    `answer_bytes`: how much of its stdout is kept; a command that fails returns only stderr: stdout may be secret.
    `stopped`: whether gpuwatch has to stop; the time of the command is over then.
    """
    argv = list(arguments)
    for name, value in (values or {}).items():
        argv = [argument.replace("{" + name + "}", value) for argument in argv]
    inherited = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if answer_bytes else subprocess.STDOUT,
            env={**inherited, **(environment or {})},
            cwd=folder,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return CommandResult(None, f"{argv[0]} cannot be started: {error}")
    until = time.monotonic() + seconds
    try:
        kept = _output(process, until, answer_bytes or MAX_OUTPUT, stopped)
        answer, text = (each.decode(errors="replace").strip() for each in (kept[0], kept[-1]))
        status = process.wait(0.0 if stopped() else max(0.0, until - time.monotonic()))
        return CommandResult(status, text if status else answer)
    except subprocess.TimeoutExpired:
        late = f"{argv[0]} has not ended {'when gpuwatch had to stop' if stopped() else f'within {seconds:.0f} s'}"
        _end(process)
        try:
            process.wait(LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            threading.Thread(target=process.wait, name="left command", daemon=True).start()
            return CommandResult(None, f"{late}, nor after SIGTERM: process {process.pid} was left alone; {text}")
        return CommandResult(None, f"{late}; {text}")
    except BaseException:  # Ctrl-C reaches only gpuwatch's own session
        _end(process)
        raise


def _end(process: "subprocess.Popen[bytes]") -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)


def _output(process: "subprocess.Popen[bytes]", until: float, most: int, stopped: Callable[[], bool]) -> list[bytes]:
    """What it prints to each of its pipes, up to `most` bytes, until it ends or the time is over. A child of its own
    that keeps a pipe open is not waited for.
    """
    kept = {pipe: b"" for pipe in (process.stdout, process.stderr) if pipe is not None}
    with contextlib.ExitStack() as pipes:
        left = [pipes.enter_context(pipe) for pipe in kept]
        while left and not stopped() and (seconds := until - time.monotonic()) > 0:
            ready = select.select(left, [], [], min(seconds, POLL_SECONDS))[0]
            for pipe in ready:
                data = os.read(pipe.fileno(), 1 << 16)
                kept[pipe] = (kept[pipe] + data)[:most]
                if not data:
                    left.remove(pipe)
            if not ready and process.poll() is not None:
                break
    return list(kept.values())
