"""A test run leaves no process and no thread: a test that does fails, and a killed run is cleaned up after."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.waiting import until
from tests.watcher import MARK

ROOT = Path(__file__).resolve().parents[1]


def start(folder: Path, body: str) -> subprocess.Popen:
    """Pytest on one test, in a run of its own, with a short patience for what it leaves."""
    (folder / "impatient.py").write_text("from tests import leftovers\n\nleftovers.PATIENCE_SECONDS = 0.2\n")
    (folder / "test_it.py").write_text(f"import subprocess, sys, time\n\ndef test_it():\n    {body}\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.leftovers",
        "-p",
        "impatient",
        "-p",
        "no:cacheprovider",
    ]
    env = {name: value for name, value in os.environ.items() if name != MARK and "XDIST" not in name}
    paths = {"PYTHONPATH": f"{ROOT}:{folder}"}
    where = ["-c", os.devnull, "--rootdir", str(folder), str(folder)]
    return subprocess.Popen([*command, *where], env=env | paths, stdout=subprocess.PIPE, text=True, cwd=folder)


def sleeper(folder: Path, **how: object) -> str:
    """A statement that starts a process which sleeps for long and says its pid in a file."""
    code = f"import os, time; open({str(folder / 'pid')!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    options = "".join(f", {name}={value!r}" for name, value in how.items())
    return f"subprocess.Popen([sys.executable, '-c', {code!r}]{options})"


def pid_of(folder: Path) -> int:
    """Pid of the sleeper, once it runs."""
    return int(until(lambda: (folder / "pid").exists() and (folder / "pid").read_text(), "the sleeper runs"))


def ended(pid: int) -> bool:
    """Whether the process is gone, or is only waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_test_that_leaves_a_process_fails_and_the_process_is_ended(tmp_path):
    started = sleeper(tmp_path)
    with start(tmp_path, f"{started}\n    while not __import__('os').path.exists('pid'): time.sleep(0.01)") as run:
        printed, _ = run.communicate(timeout=90)
    assert run.returncode == 1
    assert "processes that a test of this worker left" in printed
    until(lambda: ended(pid_of(tmp_path)), "the sleeper is gone")


def test_what_a_killed_run_started_is_killed(tmp_path):
    with start(tmp_path, f"{sleeper(tmp_path, start_new_session=True)}; time.sleep(600)") as run:
        pid = pid_of(tmp_path)
        assert not ended(pid)
        run.send_signal(signal.SIGKILL)
        until(lambda: ended(pid), "the sleeper is gone")


def test_a_test_that_leaves_a_thread_of_gpuwatch_fails(tmp_path):
    body = """from gpuwatch.config import RightsizingConfig
    from gpuwatch.rightsizing.service.thread import Rightsizer
    Rightsizer(RightsizingConfig(), None).start()"""
    with start(tmp_path, body) as run:
        printed, _ = run.communicate(timeout=90)
    assert run.returncode == 1
    assert "threads that this test left: rightsizing" in printed
