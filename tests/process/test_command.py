"""An operator's command: real processes, a deadline, a bounded output, no shell."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from gpuwatch.process.command import MAX_OUTPUT, run_command
from tests.waiting import BOUND_SECONDS, until

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


def test_what_gpuwatch_cannot_wait_for_as_it_stops_is_asked_to_end() -> None:
    answers = iter((False, False, True))
    ended = run_command(("/bin/sleep", "600"), 600.0, stopped=lambda: next(answers, True))
    assert ended == (None, "/bin/sleep has not ended when gpuwatch had to stop; ")


def test_a_program_that_is_not_there_is_a_result() -> None:
    ended = run_command(("/nonexistent/program",), 1.0)
    assert ended.status is None
    assert "cannot be started" in ended.output


def test_a_child_that_keeps_the_pipe_open_is_not_waited_for() -> None:
    ended = run_command(("/bin/sh", "-c", "sleep 5 & echo begun"), 60.0)
    assert ended == (0, "begun")


@pytest.mark.parametrize("output", ["", "exec >&- 2>&-; "], ids=["while it may print", "while it only runs"])
def test_ctrl_c_ends_the_command_too(tmp_path: Path, output: str) -> None:
    """It runs in a session of its own, which no terminal interrupts."""
    begun = tmp_path / "pid"
    script = f"echo $$ > {begun}.new; mv {begun}.new {begun}; {output}exec sleep 600"
    code = f"from gpuwatch.process.command import run_command; run_command(('/bin/sh', '-c', {script!r}), 600.0)"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) as runner:
        until(begun.exists, "the command runs")
        command = psutil.Process(int(begun.read_text()))
        until(lambda: command.name() == "sleep", "it runs what it is to run")
        runner.send_signal(signal.SIGINT)
        assert b"KeyboardInterrupt" in runner.communicate(timeout=BOUND_SECONDS)[1]
    until(lambda: _has_ended(command), "it has ended")


def _has_ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
