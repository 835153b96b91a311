"""Threads log without waiting, whatever reads the log: lines wait in a bounded queue; those too many are counted."""

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

from gpuwatch.process.log_queue import MOST_LINES
from tests.waiting import BOUND_SECONDS

PROGRAM = """
import logging, time
from gpuwatch.process.log_queue import queued_stderr
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
with queued_stderr():
    began = time.monotonic()
    for number in range({lines}):
        logging.info("line %d %s", number, "x" * 100)
    print(time.monotonic() - began, flush=True)
    input()
    ending = time.monotonic()
print(time.monotonic() - ending)
"""


def start(lines: int, stderr: int = subprocess.PIPE) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", PROGRAM.format(lines=lines)]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=stderr, text=True)


def test_every_line_is_written_in_order_while_lines_are_read() -> None:
    process = start(MOST_LINES // 2)
    _, log = process.communicate("\n")
    assert [line.split()[:3] for line in log.splitlines()] == [
        ["INFO", "line", str(number)] for number in range(MOST_LINES // 2)
    ]


def test_a_pipe_that_is_not_read_keeps_no_thread_and_no_end_waiting() -> None:
    lines = 5 * MOST_LINES
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    process = start(lines, writing)
    os.close(writing)
    try:
        process.communicate("\n", timeout=BOUND_SECONDS)  # a thread that waits for the pipe never ends
    finally:
        process.kill()
        with os.fdopen(reading) as log:
            written = len(log.read().splitlines())
    assert process.returncode == 0
    assert 0 < written < lines


def test_dropped_lines_are_counted_once_the_log_is_read_again() -> None:
    process = start(5 * MOST_LINES)
    assert process.stdout
    process.stdout.readline()
    assert process.stderr
    dropped = next(line for line in process.stderr if "dropped" in line)
    process.communicate("\n")
    assert 0 < int(dropped.rpartition(":")[2]) < 5 * MOST_LINES


def test_a_thread_without_lines_to_write_sleeps() -> None:
    process = start(1)
    assert process.stdout
    process.stdout.readline()
    assert process.stderr
    process.stderr.readline()
    (thread,) = (int(each) for each in os.listdir(f"/proc/{process.pid}/task") if each != str(process.pid))
    assert any(rests(thread) for _ in range(5)), "the first time it may still be on its way to wait"
    process.communicate("\n")


def rests(thread: int) -> bool:
    """Whether nothing wakes it for half a second."""
    before = wakeups(thread)
    time.sleep(0.5)
    return wakeups(thread) == before


def wakeups(thread: int) -> int:
    lines = Path(f"/proc/{thread}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("voluntary"))
