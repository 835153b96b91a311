"""The client against real servers: what it reads, what it refuses and what it says when nobody answers."""

import json
import os
import socket
import threading

import msgspec
import pytest
import trustme

from gpuwatch.agent.client import AgentClient, find_agent
from gpuwatch.config import AgentConfig
from gpuwatch.http.server import HttpServer, Response
from gpuwatch.model.errors import GpuwatchError, PermissionMissing, UsageError
from gpuwatch.model.snapshot import Snapshot
from gpuwatch.model.view import SCHEMA, AgentStatus, Events, View
from tests.ports import free_port

VIEW = View(snapshot=Snapshot(at=1.0, interval=2.0, node="n"), agent=AgentStatus(version="0", started=0.0))


@pytest.fixture
def serve(tmp_path):
    """`serve(body, status)` gives a server that answers so on TCP and on a unix socket."""
    servers = []

    def start(body: bytes = msgspec.json.encode(VIEW), status: int = 200) -> HttpServer:
        page = Response(status=status, content_type="application/json", body=body)
        routes = {
            "/api/v1/view": lambda _: page,
            "/api/v1/events": lambda _: page,
            "/prefix/api/v1/view": lambda _: page,
        }
        server = HttpServer(routes, listen="127.0.0.1:0", socket_path=tmp_path / f"{len(servers)}.sock")
        server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.stop()


def test_a_view_comes_over_the_socket_and_over_http(serve, tmp_path):
    server = serve()
    for url in (str(tmp_path / "0.sock"), f"unix:{tmp_path}/0.sock", f"http://127.0.0.1:{server.port}"):
        assert AgentClient(url).view() == VIEW


def test_a_url_may_have_a_path_in_front(serve):
    assert AgentClient(f"http://127.0.0.1:{serve().port}/prefix/").view() == VIEW


def test_http_to_tls_and_an_unknown_ca_are_reported(serve, tmp_path, monkeypatch):
    authority = trustme.CA()
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    web = tmp_path / "web.yaml"
    web.write_text("tls_server_config: {cert_file: server.pem, key_file: server.pem}")
    page = Response(content_type="application/json", body=msgspec.json.encode(VIEW))
    server = HttpServer({"/api/v1/view": lambda _: page}, listen="127.0.0.1:0", web_config=web)
    server.start()
    try:
        refused = {
            f"http://localhost:{server.port}": "if it serves with TLS, write agent:https://",
            f"https://localhost:{server.port}": "name the file of the CA that signed its certificate in SSL_CERT_FILE",
            f"https://localhost:{serve().port}": "if it serves without TLS, write agent:http://",
        }
        for url, hint in refused.items():
            with pytest.raises(GpuwatchError, match="cannot reach the agent") as found:
                AgentClient(url).view()
            assert found.value.next_step == hint
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        assert AgentClient(f"https://localhost:{server.port}").view() == VIEW
    finally:
        server.stop()


def test_events_come_too(serve):
    assert AgentClient(f"http://127.0.0.1:{serve(msgspec.json.encode(Events())).port}").events() == Events()


def test_the_schema_is_on_the_wire_although_it_is_a_default():
    assert json.loads(msgspec.json.encode(VIEW))["schema"] == SCHEMA
    assert json.loads(msgspec.json.encode(Events()))["schema"] == SCHEMA


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (json.dumps({"schema": SCHEMA + 1, "other": "shape"}).encode(), f"it speaks schema {SCHEMA + 1}"),
        (b"{}", "it names no schema"),
        (b"<html>", "JSON is malformed"),
        (json.dumps({"schema": SCHEMA}).encode(), "missing required field"),
        (b'{"schema": "one"}', "Expected"),
        (b"", "truncated"),
    ],
)
def test_what_it_does_not_know_is_refused(serve, body, why):
    with pytest.raises(GpuwatchError, match="cannot read the answer") as refused:
        AgentClient(f"http://127.0.0.1:{serve(body).port}").view()
    assert why in refused.value.why
    assert refused.value.next_step


@pytest.mark.parametrize(
    ("status", "kind", "step"),
    [
        (401, PermissionMissing, "user and password"),
        (403, PermissionMissing, "user and password"),
        (503, GpuwatchError, "try again"),
        (404, GpuwatchError, "is it an agent of gpuwatch"),
    ],
)
def test_a_refusal_is_reported_with_what_to_do(serve, status, kind, step):
    with pytest.raises(kind) as refused:
        AgentClient(f"http://127.0.0.1:{serve(b'why not', status).port}").view()
    assert "why not" in refused.value.why
    assert step in refused.value.next_step


def test_credentials_go_along_and_are_never_reported():
    seen = []
    server = HttpServer(
        {"/api/v1/view": lambda request: seen.append(request) or Response(status=401)}, listen="127.0.0.1:0"
    )
    server.start()
    try:
        client = AgentClient(f"http://me:p%40ss@127.0.0.1:{server.port}")
        with pytest.raises(PermissionMissing) as refused:
            client.view()
    finally:
        server.stop()
    assert seen[0].headers["authorization"] == "Basic bWU6cEBzcw=="
    assert "p@ss" not in str(refused.value)
    assert "me:" not in str(refused.value)


def test_nobody_there_is_reported_with_the_address(tmp_path):
    with pytest.raises(GpuwatchError, match=r"cannot reach the agent at .*none\.sock; No such file or directory"):
        AgentClient(str(tmp_path / "none.sock")).view()
    with pytest.raises(GpuwatchError, match="Connection refused"):
        AgentClient(f"http://127.0.0.1:{free_port()}").view()


def test_an_agent_that_hangs_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(GpuwatchError, match="timed out"):
        AgentClient(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.2).view()


def test_a_stranger_that_answers_nonsense_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as stranger:

        def answer() -> None:
            connection, _ = stranger.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(b"220 mail.example ESMTP\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(GpuwatchError, match="cannot reach the agent"):
            AgentClient(f"http://127.0.0.1:{stranger.getsockname()[1]}").view()
        thread.join()


@pytest.mark.parametrize(
    "url",
    [
        "http://",
        "http://:9400",
        "http://host:port",
        "http://[::1",
        "http://a b",
        "http://a..b",
        "https:a",
        "http://\udcff",
    ],
)
def test_a_wrong_address_is_a_usage_error(url):
    with pytest.raises(UsageError, match="no agent's address"):
        AgentClient(url)


def test_a_wrong_address_is_quoted_without_its_password():
    with pytest.raises(UsageError, match="no agent's address") as refused:
        AgentClient("http://user:s3cret@host:99999")
    assert "s3cret" not in str(refused.value)


def test_a_path_may_look_like_half_a_url():
    assert AgentClient("//[a").name == "//[a"


def test_the_agent_of_this_node_is_found_by_its_socket(serve, tmp_path, monkeypatch):
    serve()
    monkeypatch.setenv("GPUWATCH_AGENT_SOCKET", str(tmp_path / "0.sock"))
    found = find_agent(AgentConfig()).client
    assert found is not None
    assert found.view() == VIEW


def test_a_socket_whose_owner_died_is_nobody(tmp_path, monkeypatch):
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(tmp_path / "dead.sock"))
    dead.close()
    assert os.path.exists(tmp_path / "dead.sock")
    monkeypatch.setenv("GPUWATCH_AGENT_SOCKET", str(tmp_path / "dead.sock"))
    found = find_agent(AgentConfig()).client
    assert found is None or found.name != str(tmp_path / "dead.sock"), "this machine may have an agent of its own"
