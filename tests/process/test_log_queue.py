"""Threads log without waiting, whatever reads the log: lines wait in a bounded queue; those too many are counted."""

import fcntl
import subprocess
import sys

from gpuwatch.process.log_queue import MOST_LINES

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


def start(lines: int) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", PROGRAM.format(lines=lines)]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def test_every_line_is_written_in_order_where_somebody_reads() -> None:
    process = start(MOST_LINES // 2)
    _, log = process.communicate("\n")
    assert [line.split()[:3] for line in log.splitlines()] == [
        ["INFO", "line", str(number)] for number in range(MOST_LINES // 2)
    ]


def test_a_pipe_that_is_not_read_keeps_no_thread_and_no_end_waiting() -> None:
    lines = 5 * MOST_LINES
    process = start(lines)
    assert process.stdout
    assert process.stdin
    assert process.stderr
    fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 4096)
    logging_took = float(process.stdout.readline())
    process.stdin.write("\n")
    process.stdin.close()
    end_took = float(process.stdout.readline())
    assert process.wait() == 0
    assert (logging_took, end_took) < (30, 30)
    assert len(process.stderr.read().splitlines()) < lines
    process.stdout.close()
    process.stderr.close()


def test_dropped_lines_are_counted_once_the_log_is_read_again() -> None:
    process = start(5 * MOST_LINES)
    assert process.stdout
    process.stdout.readline()
    assert process.stderr
    dropped = next(line for line in process.stderr if "dropped" in line)
    process.communicate("\n")
    assert 0 < int(dropped.rpartition(":")[2]) < 5 * MOST_LINES
