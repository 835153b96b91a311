"""Runs an operator's command: an argument list, never a shell; with a deadline, and a bound on what is kept of its
output.

What has not ended in time gets SIGTERM, never SIGKILL: a process that is killed inside a call of the driver can wedge
the GPU.
"""

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

MAX_OUTPUT = 4096
"""Bytes that are kept of stdout and stderr together; the rest is read and dropped."""

LEAVE_SECONDS = 2.0
POLL_SECONDS = 0.1


class CommandResult(NamedTuple):
    """`status`: None when it could not be started or has not ended in time; `output` says which."""

    status: int | None
    output: str


def run_command(arguments: Sequence[str], seconds: float, values: Mapping[str, str] | None = None) -> CommandResult:
    """Run it within `seconds`. `{name}` in an argument stands for the value of that name.

    It gets no input, a session of its own, / as its folder, and of the environment all but `NOTIFY_SOCKET`.
    """
    argv = [_filled(argument, values or {}) for argument in arguments]
    environment = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return CommandResult(None, f"{argv[0]} cannot be started: {error}")
    until = time.monotonic() + seconds
    kept = _output(process, until)
    text = kept.decode(errors="replace").strip()
    try:
        return CommandResult(process.wait(max(0.0, until - time.monotonic())), text)
    except subprocess.TimeoutExpired:
        late = f"{argv[0]} has not ended within {seconds:.0f} s"
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            threading.Thread(target=process.wait, name="left command", daemon=True).start()
            return CommandResult(None, f"{late}, nor after SIGTERM: process {process.pid} was left alone; {text}")
        return CommandResult(None, f"{late}; {text}")


def _filled(argument: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        argument = argument.replace("{" + name + "}", value)
    return argument


def _output(process: "subprocess.Popen[bytes]", until: float) -> bytes:
    """What it prints, up to MAX_OUTPUT, until it ends or the time is over. A child of its own that keeps the pipe open
    is not waited for.
    """
    kept, stdout = b"", process.stdout
    assert stdout is not None  # noqa: S101 Popen was asked for a pipe
    with stdout:
        while (left := until - time.monotonic()) > 0:
            if select.select([stdout], [], [], min(left, POLL_SECONDS))[0]:
                data = os.read(stdout.fileno(), 1 << 16)
                if not data:
                    break
                kept = (kept + data)[:MAX_OUTPUT]
            elif process.poll() is not None:
                break
    return kept
