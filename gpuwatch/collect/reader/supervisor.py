"""The agent's end of the pipe: keeps one reader alive and passes on its messages.

A reader whose pipe is closed ends as soon as it is in no driver call. A reader inside a call is never killed, because
that can wedge the GPU: it is left alone, and a new one takes its place.
"""

import logging
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

import msgspec

from gpuwatch.collect.reader.messages import (
    REFRESH,
    AnyMessage,
    DriverOpened,
    FrameBuffer,
    ProtocolError,
    ReaderFailed,
    ReaderHeartbeat,
    Settings,
)

log = logging.getLogger(__name__)

SILENCE_SECONDS = 5.0
"""A reader that sends no message, not even a heartbeat, for so long is given up."""

PIPE_BYTES = 1 << 16
"""What a pipe holds; for more Python would map new memory at each read."""

BACKOFF_SECONDS = (0.1, 30.0)
STEADY_SECONDS = 60.0
"""A reader that ran for so long resets the back-off."""

MAX_ABANDONED = 3
"""Readers left inside the driver at the same time; with so many no new one is started, for it would hang too."""

ASKED = "a new reader opens the driver"

STOP_SECONDS = 0.7


class Supervisor(threading.Thread):
    """Runs readers one after another until `stop`. `handle` is called on this thread for every message."""

    def __init__(
        self, settings: Settings, handle: Callable[[AnyMessage], None], command: Sequence[str] | None = None
    ) -> None:
        super().__init__(name="reader", daemon=True)
        self._settings = settings
        self._program = command or (sys.executable, "-m", "gpuwatch.collect.reader")
        self._take = handle
        self._process: subprocess.Popen[bytes] | None = None
        self._abandoned: list[subprocess.Popen[bytes]] = []
        self._in_driver = True
        self._stopping = False
        self._starts = 0
        self._wake_out, self._wake_in = os.pipe()

    @property
    def pid(self) -> int | None:
        """The reader's process id while one runs."""
        return self._process.pid if self._process else None

    @property
    def restarts(self) -> int:
        """Readers started after the first."""
        return max(0, self._starts - 1)

    @property
    def abandoned(self) -> int:
        """Readers left inside a driver call that has not returned yet."""
        self._abandoned = [process for process in self._abandoned if process.poll() is None]
        return len(self._abandoned)

    def refresh(self) -> None:
        """Ask for a full sample of every GPU at once."""
        process = self._process
        if process and process.stdin:
            try:
                os.write(process.stdin.fileno(), REFRESH)
            except (OSError, ValueError):
                log.debug("the reader is gone; nothing to refresh")

    def replace(self) -> None:
        """Have a fresh reader open the driver, for GPUs that came or went."""
        os.write(self._wake_in, b"r")

    def close(self, indexes: tuple[int, ...]) -> None:
        """Have a fresh reader open all GPUs except those at these NVML indexes, if the present one opens others. NVML
        keeps a GPU open for as long as the process lives, and opens none before the first call about it.
        """
        if indexes != self._settings.closed:
            self._settings = msgspec.structs.replace(self._settings, closed=indexes)
            self.replace()

    def stop(self) -> None:
        """End the reader and this thread within a second, whatever the driver does."""
        self._stopping = True
        os.write(self._wake_in, b"s")
        self.join(STOP_SECONDS + 0.3)

    def run(self) -> None:
        """Start readers until stopped."""
        backoff = BACKOFF_SECONDS[0]
        while not self._stopping:
            if self.abandoned < MAX_ABANDONED:
                started = time.monotonic()
                asked = self._run_one()
                if asked or time.monotonic() - started >= STEADY_SECONDS:
                    backoff = BACKOFF_SECONDS[0]
            if not self._stopping:
                readable, _, _ = select.select([self._wake_out], [], [], backoff)
                if readable and b"r" in os.read(self._wake_out, 64):  # asked for a fresh reader
                    backoff = BACKOFF_SECONDS[0]
            backoff = min(backoff * 2, BACKOFF_SECONDS[1])

    def _run_one(self) -> bool:
        """Run one reader until it ends; True when it was replaced on request."""
        env = {**os.environ, "MALLOC_ARENA_MAX": "2"}  # a thread per GPU must not cost a heap per GPU
        self._starts += 1
        try:
            argument = msgspec.json.encode(self._settings).decode()
            command = [*self._program, argument]
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, bufsize=0)
        except OSError as error:
            self._take(ReaderFailed(reason=f"the reader cannot be started: {error}", kind="reader"))
            return False
        self._process, self._in_driver = process, True
        reason: str | None = None
        try:
            reason = self._listen(process)
        except ProtocolError as error:
            reason = f"the reader is broken: {error}"
            log.error("%s; starting a new one", reason)
            if not self._in_driver:
                process.kill()
        finally:
            self._process = None
            # close the pipes, which ends a reader that can end, and leave alone one that cannot yet
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                log.warning("reader %d is inside a driver call; left alone", process.pid)
                self._abandoned.append(process)
                threading.Thread(target=process.wait, name="left reader", daemon=True).start()
        if reason is not None and not self._stopping:
            self._take(ReaderFailed(reason=reason or ending(process.poll()), kind="reader"))
        return reason == ASKED

    def _listen(self, process: subprocess.Popen[bytes]) -> str | None:
        """Pass on messages until the reader ends or is replaced. Returns why: empty when it ended without a reason,
        None when its own last message gave the reason.

        Raises:
            ProtocolError: it does not follow the protocol, or is silent.
        """
        stdout, frames = process.stdout, FrameBuffer()
        assert stdout is not None  # noqa: S101 Popen was asked for a pipe
        while True:
            readable, _, _ = select.select([stdout.fileno(), self._wake_out], [], [], SILENCE_SECONDS)
            if not readable:
                raise ProtocolError(f"silent for {SILENCE_SECONDS:.0f} s")
            if self._wake_out in readable:
                os.read(self._wake_out, 64)
                return ASKED
            data = os.read(stdout.fileno(), PIPE_BYTES)
            if not data:
                return ""
            for message in frames.feed(data):
                if isinstance(message, ReaderHeartbeat):
                    self._in_driver = bool(message.reads) or message.starting is not None
                elif isinstance(message, DriverOpened):
                    self._in_driver = False
                self._take(message)
                if isinstance(message, ReaderFailed):
                    return None


def ending(status: int | None) -> str:
    """How a reader ended, in words."""
    if status is None:
        return "the reader process does not answer"
    if status < 0:
        return f"the reader process was ended by {signal.Signals(-status).name}"
    return f"the reader process ended with status {status}"
