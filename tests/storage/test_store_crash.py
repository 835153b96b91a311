"""The store in processes of its own: killed at any moment, several at once, and on a disk that is full."""

import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.model.event import EventQuery
from gpuwatch.storage.private_folder import tighten_state
from gpuwatch.storage.store import Store, stored_events
from tests.waiting import BOUND_SECONDS, until

ALL = EventQuery(limit=100_000)
KILLS = 6

RECORD = """
import sys, time
from gpuwatch.model.event import ActionEvent, Result
from gpuwatch.storage.store import Store
store = Store.open(sys.argv[1])
while True:
    number = store.record(
        ActionEvent(at=time.time(), actor=sys.argv[2], action="taint", target="node/n", result=Result.INTENDED)
    )
    store.remember(sys.argv[2], str(number).encode())
    print(number, store.trouble is None, flush=True)
"""
ADD = """
import sys, time
from gpuwatch.model.event import EventQuery
from gpuwatch.model.xid import XidEvent
from gpuwatch.storage.store import Store
store = Store.open(sys.argv[1], retry=(0.02, 0.05))
print("open", flush=True)
for line in sys.stdin:
    if line.strip() == "flush":
        print(store.flush(), flush=True)
    elif line.strip() == "trouble":
        print(store.trouble or "none", flush=True)
    else:
        for number in range(200):
            origin = {"source": "kernel", "sequence": number, "boot_id": line}
            store.add(XidEvent(at=time.time(), xid=31, message="x" * 900, **origin))
        print("added", len(store.events(EventQuery(limit=10_000)).xids), flush=True)
store.close()
"""


@pytest.fixture
def start():
    """`start(program, *arguments)` gives a process that is dead when the test ends."""
    processes: list[subprocess.Popen[str]] = []

    def started(program: str, *arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield started
    for process in processes:
        process.kill()
        process.communicate()


def numbers(process: subprocess.Popen[str], count: int, *, patient: bool = False) -> list[int]:
    """So many numbers that it said were recorded, all without trouble; `patient`: with trouble in between."""
    found: list[int] = []
    while len(found) < count:
        assert process.stdout
        number, durable = process.stdout.readline().split()
        assert durable == "True" or patient
        if durable == "True":
            found.append(int(number))
    return found


def ask(process: subprocess.Popen[str], text: str) -> str:
    assert process.stdin
    assert process.stdout
    process.stdin.write(f"{text}\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


def test_what_was_recorded_survives_kill_9_at_any_moment(start, tmp_path: Path) -> None:
    told: list[int] = []
    for life in range(KILLS):
        process = start(RECORD, tmp_path, "remediator")
        told += numbers(process, 3 + 5 * life)
        process.kill()
        assert process.stdout
        rest = process.stdout.read()  # communicate() would leave out the part of a line that readline() has buffered
        told += [int(line.split()[0]) for line in rest.splitlines() if line.endswith("True")]
        store = Store.open(tmp_path)
        kept = {action.number for action in store.events(ALL).actions}
        assert store.stats().set_aside == 0
        assert set(told) <= kept
        store.close()
    assert len(set(told)) == len(told)


def test_two_processes_write_while_a_third_is_killed(start, tmp_path: Path) -> None:
    actors = ("agent", "remediator", "tuner")
    processes = {actor: start(RECORD, tmp_path, actor) for actor in actors}
    told = {actor: numbers(processes[actor], 5) for actor in actors}
    processes["tuner"].kill()
    for actor in actors[:2]:
        told[actor] += numbers(processes[actor], 10)
        processes[actor].send_signal(signal.SIGKILL)
    found = stored_events(tmp_path, ALL)
    assert found is not None
    for actor in actors:
        assert set(told[actor]) <= {each.number for each in found.actions if each.actor == actor}


def test_of_processes_that_find_a_broken_file_one_sets_it_aside(start, tmp_path: Path) -> None:
    (tmp_path / "gpuwatch.db").write_bytes(b"rubbish" * 1000)
    processes = [start(RECORD, tmp_path, actor) for actor in ("agent", "remediator", "tuner")]
    # until one has set it aside, others may find it broken, and say so
    told = [number for process in processes for number in numbers(process, 3, patient=True)]
    for process in processes:
        process.kill()
    assert len(list(tmp_path.glob("gpuwatch.db.corrupt-*Z"))) == 1
    found = stored_events(tmp_path, ALL)
    assert found is not None
    assert set(told) <= {each.number for each in found.actions}


def test_a_full_disk_costs_nothing_while_it_fits_into_memory(start, tmp_path: Path) -> None:
    process = start(ADD, tmp_path)
    assert process.stdout
    assert process.stdout.readline() == "open\n"
    size = max(path.stat().st_size for path in tmp_path.iterdir())
    _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, hard))
    assert ask(process, "boot-1") == "added 200"
    assert ask(process, "flush") == "False"
    assert "cannot be written" in ask(process, "trouble")
    assert ask(process, "boot-2") == "added 400"
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    until(lambda: ask(process, "trouble") == "none")
    _, said = process.communicate()
    found = stored_events(tmp_path, ALL)
    assert found is not None
    assert len(found.xids) == 400
    assert "corrupt" not in said


REMEMBER = """
import os, sys
from gpuwatch.model.finding import Finding, Severity
from gpuwatch.model.xid import KernelCursor, XidEvent
from gpuwatch.storage.store import Store
store = Store.open(sys.argv[1])
store.add(XidEvent(at=1.0, xid=79, source="kernel", sequence=7, boot_id="boot-1"))
store.save_open((Finding(check="gpu_lost", severity=Severity.CRITICAL, message="gone"),))
store.save_cursor(KernelCursor(boot_id="boot-1", mode="kmsg", position=7))
print(store.flush(), flush=True)
sys.stdin.readline()
"""
RECALL = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
from gpuwatch.storage.store import Store
store = Store.open(sys.argv[1])
print(store.trouble is not None, len(store.events().xids), len(store.open_findings()), store.cursor("boot-1").position)
"""


def test_what_was_open_is_known_at_a_start_on_a_full_disk(start, tmp_path: Path) -> None:
    """A kill leaves SQLite's index to be made anew, for which such a disk has no room."""
    first = start(REMEMBER, tmp_path)
    assert first.stdout
    assert first.stdout.readline() == "True\n"
    first.kill()
    first.wait()
    said, logged = start(RECALL, tmp_path).communicate(timeout=BOUND_SECONDS)
    assert said == "True 1 1 7\n", logged


DMS_LOCK = 128
"""Byte of the index that each connection to a WAL database holds a lock on (os_unix.c: UNIX_SHM_DMS)."""
TRY_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, int(sys.argv[2]))
"""


@pytest.mark.parametrize("again", [Store.open, tighten_state], ids=["a second store", "modes"])
def test_a_connection_keeps_its_locks_whatever_else_its_process_opens(tmp_path: Path, again) -> None:
    """Without them the next process that opens the store shortens the index, and this one dies of SIGBUS."""
    store = Store.open(tmp_path)
    store.remember("a", b"1")
    assert store.flush()
    other = again(tmp_path)
    taken = subprocess.run(
        [sys.executable, "-c", TRY_LOCK, f"{tmp_path}/gpuwatch.db-shm", str(DMS_LOCK)], capture_output=True
    )
    for each in filter(None, (store, other)):
        each.close()
    assert b"BlockingIOError" in taken.stderr


DENIED = """
import logging, os, sys
from gpuwatch.storage.store import Store
logging.basicConfig(level="INFO", format="%(levelname)s %(message)s")
if os.geteuid() == 0:
    os.setuid(65534)
store = Store.open(sys.argv[1], retry=(0.01, 0.02))
store.flush()
print(store.stats().up, flush=True)
store.close()
"""


def test_who_may_not_keep_state_is_reported_in_one_line(start, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    process = start(DENIED, tmp_path / "state")
    said, logged = process.communicate(timeout=BOUND_SECONDS)
    tmp_path.chmod(0o700)
    assert said == "False\n"
    (line,) = logged.splitlines()
    assert line.startswith("INFO the store in")
    assert line.endswith("make it writable or name another place with --state-dir")
