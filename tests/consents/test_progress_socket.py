"""Counters that processes add to at a unix socket: whose they are, what counts, and within which bounds."""

import contextlib
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.consents import progress_socket
from gpuwatch.consents.file import ConsentsFile, progress_file
from gpuwatch.consents.progress import ProgressFollower
from gpuwatch.consents.progress_socket import IDLE_SECONDS, SILENT_SECONDS, ProgressSocket
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.consent import PROGRESS, Consents, PodConsent
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.workloads.procfs import Processes
from tests.remediation.model.remediating import FakeClock

SCRIPT = Path(__file__).parents[2] / "deploy/progress/count_progress.py"
POD = "0c2e8b1a-6f0d-4d0e-9b53-6a4b7c0d1e2f"
IN_POD = f"0::/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-containerd-{'a' * 64}.scope"
IN_JOB = "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0"


class Bench:
    """A socket whose /proc is a folder, and a clock that stands still."""

    def __init__(self, folder: Path) -> None:
        self.started = 100
        self.proc, self.clock, self.path = folder / "proc", FakeClock(), folder / "run" / "progress.sock"
        self.be("0::/user.slice/user-0.slice/session-1.scope")
        processes = Processes(self.proc, users={os.getuid(): "ada", 7: "mallory"}.get, jobs="", runtimes=())
        self.socket = ProgressSocket(self.path, processes, self.clock)
        (folder / "state").mkdir()
        self.consents = ConsentsFile(folder / "state")
        self.file = progress_file(folder / "state")
        self.follower = ProgressFollower(self.consents, self.file, self.clock, socket=self.socket)

    def be(self, cgroup: str, uid: int | None = None, pid: int | None = None) -> None:
        """What /proc says of this process from now on."""
        pid, uid = pid or os.getpid(), os.getuid() if uid is None else uid
        folder = self.proc / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup").write_text(f"{cgroup}\n")
        (folder / "comm").write_text("python\n")
        (folder / "status").write_text(f"Name:\tpython\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
        self.started += 1  # another process under this number
        (folder / "stat").write_text(f"{pid} (python) S {' '.join(['0'] * 18)} {self.started} 0 0\n")

    def connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(5)
        connection.connect(str(self.path))
        self.socket.step(1)
        return connection

    def say(self, connection: socket.socket, text: bytes) -> str:
        """What is answered."""
        with contextlib.suppress(BrokenPipeError):
            connection.sendall(text)
        self.socket.step(1)
        return connection.recv(4096).decode()

    def add(self, number: float) -> str:
        with self.connect() as connection:
            return self.say(connection, f"add {number:.3f}\n".encode())

    @property
    def totals(self) -> dict[str, float]:
        return {owner: each.total for owner, each in self.socket.added().items()}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.socket.close()


def test_what_processes_of_one_user_add_is_one_counter(bench):
    with bench.connect() as one, bench.connect() as other:
        assert bench.say(one, b"add 3\nadd 0.5\n") == "ok\nok\n"
        assert bench.say(other, b"add 4\r\n") == "ok\n"
    assert bench.totals == {"user ada": 7.5}


@pytest.mark.parametrize(("cgroup", "owner"), [(IN_JOB, "slurm 4711"), (IN_POD, POD)])
def test_a_counter_is_of_the_job_or_pod_of_its_process(bench, cgroup, owner):
    bench.socket.pods = frozenset({POD})
    bench.be(cgroup)
    assert bench.add(2) == "ok\n"
    assert bench.totals == {owner: 2.0}


def test_a_pod_that_has_not_consented_is_refused_and_one_that_has_no_longer_is_dropped(bench):
    bench.be(IN_POD)
    assert bench.add(1).startswith(f"error: pod {POD} is not counted; neither it nor its namespace says {PROGRESS}")
    bench.socket.pods = frozenset({POD})
    assert bench.add(1) == "ok\n"
    bench.socket.pods = frozenset()
    assert bench.totals == {}


def test_a_process_that_proc_shows_as_another_user_is_refused(bench):
    bench.be("0::/user.slice", uid=os.getuid() + 7)
    with bench.connect() as connection:
        assert "is not known; /proc does not show it as one of user" in connection.recv(999).decode()
    assert bench.totals == {}


def test_a_process_that_proc_does_not_show_is_refused(bench):
    for name in ("stat", "status", "cgroup", "comm"):
        (bench.proc / str(os.getpid()) / name).unlink()
    with bench.connect() as connection:
        assert "is not known" in connection.recv(999).decode()


@pytest.mark.parametrize("group", [IN_POD[3:], IN_JOB[3:]])
def test_below_a_users_own_manager_the_name_of_a_group_says_nothing(bench, group):
    """A user makes groups there as they like: the counter is the user's, and nobody else's falls or rises."""
    bench.socket.pods = frozenset({POD})
    bench.be(f"0::/user.slice/user-1000.slice/user@1000.service/app.slice{group}")
    assert bench.add(5) == "ok\n"
    assert bench.totals == {"user ada": 5.0}


@pytest.mark.parametrize(
    "line",
    [
        b"", b"add", b"add ", b"add -1", b"add +1", b"add 1e3", b"add nan", b"add inf", b"add 0x10", b"ADD 1",
        b"add 1 2", b" add 1", b"add 1.", b"add .5", b"add 1000000000000001", b"add 12345678901234567",
        b"add 1.1234567890", b"set 5", b"\x00", b"\xff\xfe", b"GET / HTTP/1.1", "add \u0661".encode(), b"add 1\x1b[2J",
    ],
)  # fmt: skip
def test_what_is_no_number_ends_its_connection_and_adds_nothing(bench, line):
    assert bench.add(2) == "ok\n"
    with bench.connect() as connection:
        assert bench.say(connection, line + b"\nadd 1\n").startswith("error: a line is not `add NUMBER`")
        assert connection.recv(99) == b""
    assert bench.totals == {"user ada": 2.0}


def test_a_line_without_an_end_is_not_collected(bench):
    with bench.connect() as connection:
        assert bench.say(connection, b"9" * 200).startswith("error: a line is too long; 64 bytes at most")


def test_bytes_at_random_never_end_the_socket_nor_lower_a_counter(bench):
    chance, before = random.Random(3), 0.0
    for _ in range(300):
        pieces = [chance.choice((b"add 1\n", b"add 2", b"\n", b"add ", chance.randbytes(9))) for _ in range(6)]
        with bench.connect() as connection, contextlib.suppress(OSError):
            connection.sendall(b"".join(pieces))
            bench.socket.step(1)
        bench.socket.step(0)
        now = bench.totals.get("user ada", 0.0)
        assert now >= before
        before = now
    assert bench.add(1) == "ok\n"


def test_a_counter_ends_where_a_float_counts_no_further(bench):
    for _ in range(9):
        assert bench.add(1e15) == "ok\n"
    assert "is full" in bench.add(1e15)
    assert bench.totals["user ada"] == 9e15


def test_who_reads_no_answers_is_closed(bench, monkeypatch):
    monkeypatch.setattr(progress_socket, "RECEIVED", 1 << 16)
    with bench.connect() as connection:
        connection.setblocking(False)
        sent = 0
        for _ in range(100_000):
            try:
                sent += connection.send(b"add 1\n" * 1000)
            except BlockingIOError:
                pass
            except OSError:
                break
            bench.socket.step(0)
    assert 0 < sent < 10_000_000
    assert bench.add(1) == "ok\n"


def test_an_owner_has_so_many_connections_and_the_next_owner_gets_one_all_the_same(bench, monkeypatch):
    monkeypatch.setattr(progress_socket, "MOST_CONNECTIONS", 6)
    monkeypatch.setattr(progress_socket, "MOST_OF_OWNER", 5)
    with contextlib.ExitStack() as stack:
        many = [stack.enter_context(bench.connect()) for _ in range(5)]
        with bench.connect() as refused:
            assert refused.recv(999).decode() == "error: too many connections; user ada has 5\n"
        bench.clock.go(1)
        for each in many[1:]:
            assert bench.say(each, b"add 1\n") == "ok\n"
        for job in (1, 2):
            bench.be(f"0::/system.slice/slurmstepd.scope/job_{job}/step_0")
            other = stack.enter_context(bench.connect())
            assert bench.say(other, b"add 1\n") == "ok\n"
        assert many[0].recv(999).startswith(b"error: closed; user ada has most connections")
        assert bench.say(many[4], b"add 1\n") == "ok\n"


def test_a_user_has_so_many_owners(bench):
    for job in range(progress_socket.MOST_OF_USER):
        bench.be(f"0::/system.slice/slurmstepd.scope/job_{job}/step_0")
        assert bench.add(1) == "ok\n"
    bench.be("0::/system.slice/slurmstepd.scope/job_99/step_0")
    assert bench.add(1) == "error: slurm 99 is not counted; too many others are\n"
    assert len(bench.totals) == progress_socket.MOST_OF_USER


def test_a_silent_connection_is_closed_and_a_silent_owner_has_no_counter(bench):
    with bench.connect() as connection:
        assert bench.say(connection, b"add 1\n") == "ok\n"
        bench.clock.go(SILENT_SECONDS + 1)
        assert bench.totals == {}
        bench.clock.go(IDLE_SECONDS)
        bench.socket.step(0)
        assert connection.recv(999).decode() == f"error: closed; nothing came for {IDLE_SECONDS:.0f} s\n"


def test_the_file_has_what_was_added_each_second(bench):
    with bench.connect() as connection:
        for _ in range(3):
            assert bench.say(connection, b"add 10\n") == "ok\n"
            bench.follower.step()
            bench.clock.go(1)
    written = bench.file.read()
    assert [value for _, value in written.owners["user ada"].samples] == [10.0, 20.0, 30.0]
    bench.clock.go(SILENT_SECONDS)
    bench.follower.step()
    assert bench.file.read().owners == {}


def test_a_pod_that_says_socket_is_counted_and_says_why_it_is_not(bench):
    pod = PodConsent(namespace="ml", name="train", uid=POD, annotations={PROGRESS: "socket"})
    bench.consents.write(Consents(at=bench.clock.time(), pods=(pod,)))
    bench.follower.step()
    assert "nothing was added at tuning.progress_socket" in bench.file.read().owners[POD].trouble
    bench.be(IN_POD)
    assert bench.add(4) == "ok\n"
    bench.follower.step()
    counter = bench.file.read().owners[POD]
    assert (counter.samples[-1][1], counter.trouble) == (4.0, "")


def test_it_is_open_to_all_users_and_a_file_of_another_is_left(tmp_path, bench):
    assert bench.path.stat().st_mode & 0o777 == 0o666
    assert bench.path.parent.stat().st_mode & 0o777 == 0o755
    foreign = tmp_path / "run" / "notes"
    foreign.write_text("mine")
    with pytest.raises(GpuwatchError, match="a file that is no socket is there"):
        ProgressSocket(foreign, Processes(bench.proc), bench.clock)
    assert foreign.read_text() == "mine"
    with pytest.raises(GpuwatchError, match="answers there"):
        ProgressSocket(bench.path, Processes(bench.proc), bench.clock)


def script(path: Path, body: str) -> "subprocess.Popen[str]":
    """A script that has copied our file beside it."""
    code = f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r})\nfrom count_progress import Progress\n{body}"
    environment = {**os.environ, "GPUWATCH_PROGRESS_SOCKET": str(path)}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_a_script_counts_and_its_children_too(tmp_path):
    served = ProgressSocket(tmp_path / "run" / "p.sock", Processes(), SystemClock())
    ended = threading.Event()
    thread = threading.Thread(target=served.run, args=(ended,))
    thread.start()
    try:
        body = """
progress = Progress()
import os, time
def work():
    begun, count = time.monotonic(), 0
    while time.monotonic() - begun < 1.0:
        progress.add(2)
        count += 2
        time.sleep(0.01)
    return count
child = os.fork()
os.write(1, b"%d\\n" % work())
if child:
    os.wait()
"""
        with script(tmp_path / "run" / "p.sock", body) as process:
            output, _ = process.communicate(timeout=30)
        counts = [int(line) for line in output.split()]
        assert len(counts) == 2
        (total,) = [each.total for each in served.added().values()]
        assert sum(counts) / 2 < total <= sum(counts)
    finally:
        ended.set()
        thread.join()
        served.close()


@pytest.mark.parametrize("there", [False, True])
def test_a_script_continues_without_a_listener_or_an_answer(tmp_path, there):
    path = tmp_path / "p.sock"
    with contextlib.ExitStack() as stack:
        if there:
            deaf = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            deaf.bind(str(path))
            deaf.listen(1)
        body = """
progress = Progress()
progress._next = 0
for step in range(200000):
    progress.add()
print("done")
"""
        with script(path, body) as process:
            assert process.communicate(timeout=60)[0] == "done\n"
