"""`gpuwatch progress`: adds to the counter of work that `gpuwatch tuner --consents` keeps for the tuner."""

import contextlib
import os
import socket
import threading
from collections.abc import Callable

import click

from gpuwatch.cli.console.options import Number, option
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.model.errors import GpuwatchError, PermissionMissing, UsageError

USUAL = "/run/gpuwatch-progress/progress.sock"
ANSWER_SECONDS, SEND_SECONDS, AGAIN_SECONDS = 2.0, 0.25, 10.0
"""How long to wait: for an answer; with --lines between two messages, and from a failure to the next connection."""

LONGEST_LINE = 1 << 16
"""Bytes that are kept of an unfinished line to search for the text; of a longer one, its end."""

HELP = f"""Count work done, as the tuner's measure of speed.

Adds NUMBER (default 1) to the counter of the pod, Slurm job or user that runs it, at tuning.progress_socket of
`gpuwatch tuner --consents`, by default {USUAL}. --lines copies stdin to stdout and adds 1
for each line, and copies without a socket, too.

\b
Examples:
  gpuwatch progress 512
  python train.py | gpuwatch progress --lines --match "step "
"""


@click.command(help=HELP, short_help="Count work done, as the tuner's measure of speed.")
@click.argument("number", metavar="[NUMBER]", type=Number(0, 1e15), required=False)
@option("--lines", is_flag=True, help="Copy stdin to stdout, and add 1 for each line.")
@option("--match", metavar="TEXT", help="With --lines: only for lines with this text.")
@option("--socket", "path", metavar="PATH", envvar="GPUWATCH_PROGRESS_SOCKET", help="Where to add.")
@pass_session
def progress(session: Session, number: float | None, lines: bool, match: str | None, path: str | None) -> None:
    """Add once, or for each line."""
    if number is not None if lines else match is not None:
        raise UsageError("these do not go together", "NUMBER adds once, --match is of --lines", "give one of them")
    if path is None and session.config_path is not None:
        path = session.config_or_defaults().tuning.progress_socket
    if not lines:
        with _connected(path or USUAL) as connection:
            _add(connection, 1.0 if number is None else number)
        return
    feed = Feed(path or USUAL, session.terminal.hint)
    sending = threading.Thread(target=feed.run, name="progress", daemon=True)
    sending.start()
    feed.copy(os.fsencode(match or ""))
    sending.join(ANSWER_SECONDS)


def _connected(path: str) -> socket.socket:
    """Raises GpuwatchError: nothing can be added there."""
    connection, what = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), f"nothing can be added at {path}"
    connection.settimeout(ANSWER_SECONDS)
    try:
        connection.connect(path)
    except PermissionError as error:
        connection.close()
        raise PermissionMissing(what, str(error.strerror), "have its folder opened: mode 0755") from error
    except OSError as error:
        connection.close()
        advice = "is tuning.progress_socket set, and does `gpuwatch tuner --consents` run?"
        raise GpuwatchError(what, error.strerror or str(error), advice) from error
    return connection


def _add(connection: socket.socket, number: float) -> None:
    """Raises GpuwatchError: it was not added."""
    try:
        with contextlib.suppress(BrokenPipeError):  # the socket has refused already; its answer states why
            connection.sendall(f"add {number:.9f}\n".encode())
        answer = connection.recv(1024).decode(errors="replace").strip()
    except OSError as error:
        answer = error.strerror or str(error)
    if answer != "ok":
        raise GpuwatchError("nothing was added", answer.removeprefix("error: ") or "it closed the connection")


class Feed:
    """Counts lines in one thread and adds the counts in another, so that copying never waits for the socket. `warn`
    gets the first reason why some are not added.
    """

    def __init__(self, path: str, warn: Callable[[str], None]) -> None:
        self._path, self._warn, self._ended = path, warn, threading.Event()
        self._seen = self._sent = 0

    def copy(self, match: bytes) -> None:
        """Copy stdin to stdout until stdin ends, and count the lines with `match`."""
        line = b""
        try:
            while data := os.read(0, 1 << 16):
                left = memoryview(data)
                while left:
                    left = left[os.write(1, left) :]
                *whole, line = (line + data).split(b"\n")
                line = line[-LONGEST_LINE:]
                self._seen += sum(match in each for each in whole)
            self._seen += bool(line) and match in line
        finally:
            self._ended.set()

    def run(self) -> None:
        """Add what was counted since the last time, until the end."""
        warn: Callable[[str], None] | None = self._warn
        while not self._ended.is_set() or self._seen > self._sent:
            try:
                with _connected(self._path) as connection:
                    while not self._ended.wait(SEND_SECONDS) or self._seen > self._sent:
                        if count := self._seen - self._sent:
                            _add(connection, count)
                            self._sent += count
            except GpuwatchError as error:
                if warn is not None:
                    warn(f"gpuwatch: warning: lines are not counted; {error}")
                warn = None
                self._ended.wait(AGAIN_SECONDS)
                self._sent = self._seen  # lines counted meanwhile are dropped: they belong to an earlier time
