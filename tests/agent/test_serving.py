"""A real agent without a driver, over its own sockets: what it shows to whom, and when it counts as wedged."""

import http.client
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from gpuwatch.agent.agent import MIN_WEDGED_SECONDS, WEDGED_INTERVALS, Agent
from gpuwatch.agent.client import AgentClient
from gpuwatch.config import AgentConfig, Backend, Config, SourcesConfig
from gpuwatch.model.errors import PermissionMissing
from tests.waiting import BOUND_SECONDS, until

INTERVAL = 2.0


class FakeClock:
    """Moved by hand."""

    now = 1000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def started(place: Path, clock: FakeClock, api: Literal["users", "open"] = "users", state_dir: str = "") -> Agent:
    missing = str(place / "missing")
    config = Config(
        agent=AgentConfig(
            listen="127.0.0.1:0",
            socket=str(place / "agent.sock"),
            interval=INTERVAL,
            wait_for_driver=True,
            api=api,
            hosts=("gpu-7.example",),
        ),
        sources=SourcesConfig(kmsg=missing, pod_resources=f"{missing}/kubelet.sock", sys=missing),
        state_dir=state_dir,
    )
    agent = Agent(config, Backend(target=missing), clock=clock)
    agent.start()
    return agent


@pytest.fixture
def agent(tmp_path: Path, clock: FakeClock) -> Iterator[Agent]:
    agent = started(tmp_path, clock)
    yield agent
    agent.stop()


def get(agent: Agent, path: str, host: str = "localhost") -> tuple[int, str]:
    client = http.client.HTTPConnection("127.0.0.1", agent.port or 0, timeout=BOUND_SECONDS)
    try:
        client.request("GET", path, headers={"Host": host})
        response = client.getresponse()
        return response.status, response.read().decode()
    finally:
        client.close()


def test_pods_and_processes_are_shown_on_the_socket_and_not_over_tcp(agent: Agent) -> None:
    until(lambda: agent.view() is not None)
    for page in ("view", "events", "recommendations"):
        status, line = get(agent, f"/api/v1/{page}")
        assert (status, "unix socket" in line, "agent.api: open" in line) == (403, True, True)
    with pytest.raises(PermissionMissing, match="basic_auth_users"):
        AgentClient(f"http://127.0.0.1:{agent.port}").view()
    assert AgentClient(str(agent.socket_path)).view().snapshot.interval == INTERVAL
    assert get(agent, "/metrics")[0] == 200


def test_an_agent_that_cannot_begin_leaves_no_thread_behind(tmp_path: Path, clock: FakeClock) -> None:
    place = tmp_path / "open"
    place.mkdir()
    place.chmod(0o777)
    before = set(threading.enumerate())
    with pytest.raises(PermissionMissing, match="other users may write"):
        started(place, clock, state_dir=str(tmp_path / "state"))
    assert set(threading.enumerate()) <= before


def test_a_name_of_another_machine_is_refused_on_loopback(agent: Agent) -> None:
    asked = {host: get(agent, "/metrics", host)[0] for host in ("127.0.0.1", "gpu-7.example", "evil.example")}
    assert asked == {"127.0.0.1": 200, "gpu-7.example": 200, "evil.example": 421}


def test_the_api_can_be_opened(tmp_path: Path, clock: FakeClock) -> None:
    agent = started(tmp_path, clock, api="open")
    try:
        until(lambda: get(agent, "/api/v1/view")[0] == 200)
    finally:
        agent.stop()


def test_an_agent_whose_publisher_stands_still_is_not_healthy_until_it_continues(
    agent: Agent, clock: FakeClock
) -> None:
    until(lambda: agent.view() is not None)
    with agent._lock:  # as if somebody never let go of it
        while (answer := get(agent, "/-/healthy"))[0] == 200:
            clock.now += 1.0
        assert answer == (503, "wedged: the publisher has stood still for 21 s\n")
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(agent.socket_path))
            client.sendall(b"GET /-/healthy HTTP/1.0\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 503"
    until(lambda: get(agent, "/-/healthy")[0] == 200)


def test_a_publisher_that_fails_each_time_stands_still(
    agent: Agent, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    until(lambda: agent.view() is not None)
    monkeypatch.setattr(agent, "board", None)  # no View can be rendered any more
    clock.now += max(WEDGED_INTERVALS * INTERVAL, MIN_WEDGED_SECONDS) + 1.0
    until(lambda: agent.wedged() is not None)


def test_a_driver_that_never_answers_is_no_wedge(agent: Agent, clock: FakeClock) -> None:
    for _ in range(3):
        clock.now += WEDGED_INTERVALS * INTERVAL
        at = clock.now
        until(lambda at=at: agent._turned >= at)
        assert get(agent, "/-/healthy") == (200, "ok\n")
