"""Harm to a GPU that is already sick: a process inside its driver is killed."""

import sys
import time
from pathlib import Path

import psutil

from gpuwatch.collect.reader.messages import AnyMessage, ReaderFailed, Settings
from gpuwatch.collect.reader.supervisor import Supervisor

SECONDS = 8.0
INSIDE = """
import os, pathlib, signal, time
from gpuwatch.collect.reader.messages import ReaderHeartbeat, encode
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
pathlib.Path(__file__).with_name(f"pid-{os.getpid()}").touch()
os.write(1, encode(ReaderHeartbeat(reads={"GPU-1": ("fields", 9.0, 9.0)})))
os.write(1, b"nonsense" * 4)
time.sleep(60)
"""


def test_a_reader_inside_the_driver_is_not_killed_even_when_it_talks_nonsense(tmp_path: Path) -> None:
    """To kill a process there can wedge the GPU for good; it is left alone until its call returns."""
    child = tmp_path / "child.py"
    child.write_text(INSIDE)
    failures: list[AnyMessage] = []

    def handle(message: AnyMessage) -> None:
        if isinstance(message, ReaderFailed):
            failures.append(message)

    supervisor = Supervisor(Settings(factory="not:used"), handle, (sys.executable, str(child)))
    supervisor.start()
    deadline = time.monotonic() + SECONDS
    while not failures and time.monotonic() < deadline:
        time.sleep(0.02)
    supervisor.stop()
    began = [int(path.name.removeprefix("pid-")) for path in tmp_path.glob("pid-*")]
    alive = [pid for pid in began if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]
    for pid in alive:
        psutil.Process(pid).kill()
    assert failures
    assert began
    assert alive == began
