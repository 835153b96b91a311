"""Logs that never block their caller.

A log line written to a pipe that is not read blocks the thread that writes it, for ever: a stopped `kubectl logs`, a
full disk behind a log shipper. The agent would then withhold its metrics because of its log. So threads put lines into
a bounded queue, and one thread of its own writes them. When the queue is full, new lines are dropped and counted; the
count is logged once there is room. The writer first asks the kernel whether a write would block, so it can always end.
"""

import logging
import os
import queue
import select
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from logging.handlers import QueueHandler
from typing import Any

from gpuwatch.model.text import visible, visible_lines

MOST_LINES = 1_000
"""The most lines that wait: some 200 KB."""

CLOSE_SECONDS = 0.3
"""How long the lines that wait may take when the process ends."""

# poll(2) promises that so many bytes can be written to a pipe without blocking (PIPE_BUF).
_PIECE = select.PIPE_BUF


class LogFormatter(logging.Formatter):
    """A message is one line; the lines of its traceback are indented, so that none of them looks like a message."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, without a traceback."""
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        """The traceback."""
        return textwrap.indent(visible_lines(super().formatException(ei)), "  ")


class _BoundedHandler(QueueHandler):
    """Formats in the calling thread, as arguments may change, and never waits. `logging` calls it under its lock."""

    dropped = 0

    def enqueue(self, record: logging.LogRecord) -> None:
        """Put the line in, or count it."""
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1


class _Writer(threading.Thread):
    """Writes lines to a file descriptor until `close`."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(name="log", daemon=True)
        self.lines: queue.Queue[logging.LogRecord | None] = queue.Queue(MOST_LINES)
        self.handler = _BoundedHandler(self.lines)
        self._descriptor, self._closed_at, self._reported = descriptor, float("inf"), 0
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)

    def run(self) -> None:
        # no timeout: it would wake an idle process ten times a second
        while (record := self.lines.get()) and time.monotonic() < self._closed_at:
            self._write(record.getMessage())
            if (dropped := self.handler.dropped) > self._reported:
                self._reported = dropped
                self._write(f"gpuwatch: log lines dropped so far, as nothing reads the log: {dropped}")

    def close(self) -> None:
        """Write what waits, for CLOSE_SECONDS at most."""
        self._closed_at = time.monotonic() + CLOSE_SECONDS
        with suppress(queue.Full):  # nothing reads the log: the writer has lines, and ends at its next one
            self.lines.put(None, timeout=CLOSE_SECONDS)
        self.join(CLOSE_SECONDS)

    def _write(self, line: str) -> None:
        rest = line.encode("utf-8", "backslashreplace") + b"\n"
        while rest and time.monotonic() < self._closed_at:
            try:
                if self._poll.poll(100):
                    rest = rest[os.write(self._descriptor, rest[:_PIECE]) :]
            except OSError:  # the reader of the pipe has gone: this cannot be logged
                return


@contextmanager
def queued_stderr() -> Iterator[None]:
    """Let the root logger's handlers that write to stderr write through a queue; others stay as they are."""
    root = logging.getLogger()
    direct = [each for each in root.handlers if isinstance(each, logging.StreamHandler) and each.stream is sys.stderr]
    try:
        descriptor = sys.stderr.fileno() if direct else None
    except OSError:  # a stream in memory, which never blocks
        descriptor = None
    if descriptor is None:
        yield
        return
    writer = _Writer(descriptor)
    writer.handler.setFormatter(direct[0].formatter)
    writer.handler.setLevel(direct[0].level)
    before = list(root.handlers)
    root.handlers[:] = [*(each for each in before if each not in direct), writer.handler]
    writer.start()
    try:
        yield
    finally:
        root.handlers[:] = before
        writer.close()
