"""An operator's command: real processes, a deadline, a bounded output, no shell."""

import sys
import time

from gpuwatch.process.command import MAX_OUTPUT, run_command

PYTHON = sys.executable


def test_arguments_are_arguments_and_never_a_shells() -> None:
    ended = run_command(("/bin/echo", "{uuid}; $(id) `id` | cat", "{other}"), 20.0, {"uuid": "GPU-1 && id"})
    assert ended == (0, "GPU-1 && id; $(id) `id` | cat {other}")


def test_output_is_bounded_and_read_to_its_end() -> None:
    ended = run_command(("/usr/bin/head", "-c", "3000000", "/dev/zero"), 20.0)
    assert ended.status == 0
    assert len(ended.output) == MAX_OUTPUT


def test_what_does_not_end_in_time_is_asked_to_end() -> None:
    began = time.monotonic()
    ended = run_command(("/bin/sleep", "60"), 0.05)
    assert ended.status is None
    assert "has not ended within" in ended.output
    assert "was left alone" not in ended.output
    assert time.monotonic() - began < 30


def test_a_program_that_is_not_there_is_a_result() -> None:
    ended = run_command(("/nonexistent/program",), 1.0)
    assert ended.status is None
    assert "cannot be started" in ended.output


def test_a_child_that_keeps_the_pipe_open_is_not_waited_for() -> None:
    ended = run_command(("/bin/sh", "-c", "sleep 5 & echo begun"), 60.0)
    assert ended == (0, "begun")
