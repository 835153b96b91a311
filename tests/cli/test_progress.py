"""`gpuwatch progress`: what is added, what a pipeline gets, and what is said when nothing can be added."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gpuwatch.consents.file import progress_file
from gpuwatch.consents.progress_socket import ProgressSocket
from gpuwatch.model.clock import SystemClock
from gpuwatch.workloads.procfs import Processes
from tests.waiting import until


class Listening:
    """A progress socket with the real /proc."""

    def __init__(self, path: Path) -> None:
        self.path, self._socket = path, ProgressSocket(path, Processes(), SystemClock())
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._socket.run, args=(self._ended,))
        self._thread.start()

    @property
    def total(self) -> float:
        return sum(each.total for each in self._socket.added().values())

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self._socket.close()


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[Listening]:
    made = Listening(tmp_path / "run" / "progress.sock")
    yield made
    made.end()


def run(*arguments: str, stdin: bytes = b"", before: Sequence[str] = ()) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "gpuwatch", *before, "progress", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=60, check=False)


@pytest.mark.parametrize(("arguments", "total"), [((), 1.0), (("512",), 512.0), (("0.25",), 0.25), (("0",), 0.0)])
def test_a_number_is_added_and_nothing_is_printed(listening, arguments, total):
    result = run(*arguments, "--socket", str(listening.path))
    assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")
    assert listening.total == total


def test_the_socket_of_the_configuration_is_used(listening, tmp_path):
    settings = tmp_path / "gpuwatch.yaml"
    settings.write_text(f"tuning:\n  progress_socket: {listening.path}\n")
    assert run("7", before=("--config", str(settings))).returncode == 0
    assert listening.total == 7.0


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--", "-1"), b"is not in the range"),
        (("nan",), b"'nan' is not a number up to 1e+15"),
        (("inf",), b"is not in the range"),
        (("2e15",), b"is not in the range"),
        (("many",), b"'many'"),
        (("5", "--lines"), b"these do not go together"),
        (("--match", "step"), b"these do not go together"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(listening, arguments, why):
    result = run("--socket", str(listening.path), *arguments)
    assert result.returncode == 2
    assert why in result.stderr
    assert b"Traceback" not in result.stderr
    assert listening.total == 0.0


def test_without_a_listener_it_is_reported_with_the_next_step(tmp_path):
    result = run("5", "--socket", str(tmp_path / "none.sock"))
    assert result.returncode == 1
    assert result.stdout == b""
    assert b"nothing can be added at" in result.stderr
    assert b"tuning.progress_socket" in result.stderr
    assert b"Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("match", "counted"), [(None, 5.0), ("step", 3.0), ("\u00fc", 1.0), ("nothing", 0.0)]
)  # the last line has no end
def test_lines_are_copied_as_they_are_and_counted(listening, match, counted):
    text = "step 1\nloss \u00fc\nstep 2\n\x1b[1m\x00\nstep 3".encode()
    arguments = ("--lines", *(("--match", match) if match else ()))
    result = run(*arguments, "--socket", str(listening.path), stdin=text)
    assert (result.returncode, result.stdout, result.stderr) == (0, text, b"")
    assert listening.total == counted


def test_a_pipeline_is_whole_without_a_listener_and_is_reported_once(tmp_path):
    text = os.urandom(1 << 20)
    result = run("--lines", "--socket", str(tmp_path / "none.sock"), stdin=text)
    assert (result.returncode, result.stdout) == (0, text)
    assert result.stderr.count(b"lines are not counted") == 1


def test_a_reader_that_ends_ends_it_quietly(listening):
    command = f"yes | {sys.executable} -m gpuwatch progress --lines --socket {listening.path} | head -1"
    result = subprocess.run(["bash", "-c", command], capture_output=True, timeout=60, check=False)
    assert result.stdout == b"y\n"
    assert b"Traceback" not in result.stderr


def test_a_machine_without_kubernetes_keeps_the_counters_only(tmp_path):
    settings, path, state = tmp_path / "gpuwatch.yaml", tmp_path / "run" / "progress.sock", tmp_path / "state"
    settings.write_text(f"state_dir: {state}\ntuning:\n  progress_socket: {path}\n")
    state.mkdir()
    command = [sys.executable, "-m", "gpuwatch", "--config", str(settings), "tuner", "--consents"]
    environment = {name: value for name, value in os.environ.items() if name not in ("NODE_NAME", "KUBECONFIG")}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            until(path.exists, "no socket")
            assert run("5", "--socket", str(path)).returncode == 0
            file = progress_file(state)
            until(lambda: (found := file.read()) is not None and found.owners, "no counter")
            written = file.read()
        finally:
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=20)
    assert process.returncode == 0, said
    assert written is not None
    (counter,) = written.owners.values()
    assert counter.samples[-1][1] == 5.0
    assert not path.exists()
    assert "Traceback" not in said
