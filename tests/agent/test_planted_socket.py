"""Sockets and run folders that another user has planted: no View is taken there, nothing is deleted through them."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gpuwatch.agent.client import AgentClient, find_agent
from gpuwatch.config import AgentConfig, runtime_dir
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.errors import GpuwatchError, PermissionMissing, UsageError
from gpuwatch.sim import directory
from gpuwatch.sim.directory import create, end
from gpuwatch.sim.node.scenario import Scenario
from tests.agent.test_client import VIEW
from tests.seeds import a_third
from tests.sim.node.nodes import scenario

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

SERVE = """
import contextlib, os, socket, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
listener = socket.socket(fileno=int(sys.argv[1]))
listener.listen()
print("listening", flush=True)
body = sys.stdin.buffer.read()
while True:
    client, _ = listener.accept()
    with client, contextlib.suppress(OSError):  # one that does not trust it has left
        client.recv(65536)
        client.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body) + body)
"""


@pytest.fixture
def planted(tmp_path: Path) -> Iterator[Path]:
    """A socket at which a process of `nobody` answers with a View."""
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(listener.fileno())],
            pass_fds=[listener.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"listening\n"
        process.stdin.write(msgspec.json.encode(VIEW))
        process.stdin.close()
        yield path
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@as_root
def test_a_view_of_another_users_process_is_not_taken(planted: Path) -> None:
    with pytest.raises(PermissionMissing, match="it runs as user 65534") as refused:
        AgentClient(str(planted)).view()
    assert "agent.socket_uid: 65534" in refused.value.next_step
    assert AgentClient(str(planted), uid=NOBODY).view() == VIEW


@as_root
def test_a_read_passes_it_by_and_reports_it(
    planted: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("GPUWATCH_AGENT_SOCKET", str(planted))
    found = find_agent(AgentConfig()).client
    assert found is None or found.name != str(planted)
    assert f"the agent at {planted} is not trusted" in caplog.text
    search = find_agent(AgentConfig(socket=str(planted), socket_uid=NOBODY))
    assert search.client is not None
    assert search.client.view() == VIEW


@as_root
@pytest.mark.parametrize(
    "command",
    a_third([("get", "gpus"), ("status",), ("diagnose", "--stage", "nvml"), ("recommend",), ("metrics",)]),
    ids=" ".join,
)
def test_every_command_that_asks_the_agent_takes_the_configured_user(
    planted: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """The server answers with a View whatever it is asked for: what is not trusted never gets as far."""
    file = tmp_path / "gpuwatch.yaml"

    def refused(text: str) -> bool:
        file.write_text(text)
        words = [sys.executable, "-m", "gpuwatch", "--config", str(file), "--source", f"agent:{planted}", *command]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return "is not trusted" in done.stdout + done.stderr

    assert refused("agent: {socket_uid: 1}")
    assert not refused(f"agent: {{socket_uid: {NOBODY}}}")


def test_no_run_folder_is_below_tmp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with pytest.raises(UsageError, match="XDG_RUNTIME_DIR") as refused:
        runtime_dir()
    assert "--socket" in refused.value.next_step
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/12345")
    assert runtime_dir() == Path("/run/user/12345/gpuwatch")


def test_a_user_whom_no_login_gave_a_run_folder_has_one_in_the_own_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container, after `su` and in cron; a HOME that was inherited from another user is none."""
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner or 12345)
    if owner == 0:
        os.chown(tmp_path, 12345, 12345)
    assert runtime_dir() == tmp_path / ".cache/gpuwatch/run"
    monkeypatch.setattr(os, "geteuid", lambda: 12346)
    with pytest.raises(UsageError, match="belongs to user 12346"):
        runtime_dir()


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """Folders with the names that a simulation deletes, which no simulation has made."""
    folder = tmp_path / "victim"
    (folder / "etc").mkdir(parents=True)
    (folder / "etc/precious").write_text("")
    return folder


def begin(folder: Path, node: Scenario) -> None:
    create(folder, node, 1, 1.0, SystemClock()).release()


def test_a_simulation_deletes_no_folder_that_none_has_made(victim: Path) -> None:
    with pytest.raises(GpuwatchError, match="a folder etc that no simulation made"):
        begin(victim, scenario("h100", 1))
    assert (victim / "etc/precious").exists()


def test_what_an_agent_left_where_simulations_run_by_default_is_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent ended after its node, and wrote its state until then."""
    tmp_path.chmod(0o700)
    monkeypatch.setattr(directory, "runtime_dir", lambda: tmp_path)
    (tmp_path / "sim/state").mkdir(parents=True)
    (tmp_path / "sim/state/gpuwatch.db").write_text("")
    begin(tmp_path / "sim", scenario("h100", 1))
    assert not (tmp_path / "sim/state").exists()


@as_root
def test_a_simulation_does_not_begin_at_a_planted_link(victim: Path, tmp_path: Path) -> None:
    link = tmp_path / "sim"
    link.symlink_to(victim)
    os.lchown(link, NOBODY, NOBODY)
    (victim / "node.json").write_text("{}")
    with pytest.raises(GpuwatchError, match="belongs to user 65534"):
        begin(link, scenario("h100", 1))
    assert (victim / "etc/precious").exists()


def test_a_simulation_deletes_a_link_and_not_what_is_behind_it(victim: Path, tmp_path: Path) -> None:
    begin(tmp_path / "sim", scenario("h100", 1))
    (tmp_path / "sim/etc").symlink_to(victim / "etc")
    end(tmp_path / "sim")
    assert (victim / "etc/precious").exists()
    assert not (tmp_path / "sim/etc").is_symlink()


@as_root
@pytest.mark.parametrize("mode", [0o777, 0o770], ids=["an emptyDir", "the image's"])
def test_a_run_folder_that_is_open_to_others_is_tightened_before_a_simulation_uses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    run = tmp_path / "gpuwatch"
    run.mkdir()
    run.chmod(mode)
    os.chown(run, NOBODY, NOBODY)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    begin(runtime_dir() / "sim", scenario("t4", 1))
    assert run.stat().st_mode & 0o777 == 0o750
