"""Where a port or a socket is taken, the error says by which process, and which option chooses another."""

import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.http.listen import listen_tcp, listen_unix
from gpuwatch.model.errors import UsageError
from tests.cli.commands import run
from tests.ports import free_port

LISTEN = "import socket, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1])))"
STAYS = "print(flush=True); sys.stdin.read()"


@contextlib.contextmanager
def process(program: str, *args: str) -> Iterator[int]:
    """The PID of a Python program that has said a line; it ends with its stdin."""
    command = [sys.executable, "-c", f"{program}; {STAYS}", *args]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline()
        yield child.pid


def name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


@pytest.fixture
def taken() -> Iterator[tuple[int, int]]:
    """(port, PID) of another process that listens."""
    port = free_port()
    with process(LISTEN, str(port)) as pid:
        yield port, pid


ROLES = {
    "agent": "--source sim agent --sim-dir {0}/sim --socket {0}/agent.sock",
    "remediator": "remediator --node-name node-a --agent {0}/agent.sock",
    "tuner": "tuner --agent {0}/agent.sock",
}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_says_who_has_its_port_and_that_listen_helps(taken, tmp_path, role):
    port, pid = taken
    address = f"127.0.0.1:{port}"
    args = [*ROLES[role].format(tmp_path).split(), "--listen", address, "--state-dir", str(tmp_path / "state")]
    ended = run(*args, env={"KUBECONFIG": "/nowhere"})
    last = ended.stderr.splitlines()[-1]
    assert last.startswith(f"gpuwatch: error: cannot listen on {address}; Address already in use by ")
    assert f" by {name(pid)} (process {pid}); " in last
    assert last.endswith("or choose another with --listen ADDR:PORT")
    assert ended.exit_code == 2


def test_the_agent_says_who_has_its_socket_and_that_socket_helps(tmp_path):
    path = tmp_path / "agent.sock"
    program = "import sys,pathlib; from gpuwatch.http.listen import listen_unix as on"
    with process(f"{program}; s=on(pathlib.Path(sys.argv[1]))", str(path)) as pid:
        args = [*ROLES["agent"].format(tmp_path).split(), "--listen", "127.0.0.1:0"]
        ended = run(*args, "--state-dir", str(tmp_path / "state"))
        expected = f"cannot listen on {path}; {name(pid)} (process {pid}) answers there; "
    last = ended.stderr.splitlines()[-1]
    assert expected in last
    assert last.endswith("or choose another with --socket PATH")
    assert ended.exit_code == 2


@pytest.mark.parametrize(("has", "wants"), [(":{}", "127.0.0.1:{}"), ("127.0.0.1:{}", ":{}"), ("0.0.0.0:{}", ":{}")])
def test_the_owner_is_found_whichever_address_it_has(has, wants):
    port = free_port()
    with listen_tcp(has.format(port)), pytest.raises(UsageError, match=rf"\(process {os.getpid()}\)"):
        listen_tcp(wants.format(port))


def test_a_process_whose_name_is_an_escape_sequence_writes_none_to_the_terminal():
    port = free_port()
    rename = r"import ctypes; ctypes.CDLL(None).prctl(15, b'\x1b[2J\xff\n', 0, 0, 0)"
    with process(f"{rename}; {LISTEN}", str(port)) as pid, pytest.raises(UsageError) as refused:
        listen_tcp(f"127.0.0.1:{port}")
    assert refused.value.why.isprintable()
    assert f"?[2J\ufffd (process {pid})" in refused.value.why


def test_a_port_that_is_bound_without_a_listener_is_taken_by_nobody_known():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        with pytest.raises(UsageError) as refused:
            listen_tcp(f"127.0.0.1:{bound.getsockname()[1]}")
    assert refused.value.why == "Address already in use"
    assert "--listen" in refused.value.next_step


@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
def test_of_another_users_process_the_user_is_reported():
    port = free_port()
    program = (
        "import os, sys\n"
        "from gpuwatch.model.errors import UsageError\n"
        "from gpuwatch.http.listen import listen_tcp\n"
        "import encodings.idna, gpuwatch.http.listen\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "try: listen_tcp(sys.argv[1])\n"
        "except UsageError as error: print(error.why)"
    )
    with listen_tcp(f"127.0.0.1:{port}"):
        command = [sys.executable, "-c", program, f"127.0.0.1:{port}"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said == "Address already in use by a process of user root\n"


def test_a_socket_whose_owner_is_gone_is_taken_over(tmp_path):
    path = tmp_path / "agent.sock"
    listen_unix(path).close()
    with listen_unix(path) as listener:
        assert path.is_socket()
        assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
