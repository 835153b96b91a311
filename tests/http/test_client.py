"""Every HTTP client of gpuwatch against servers that never come to an end: each gives up in the time it was given."""

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from gpuwatch.agent.client import AgentClient
from gpuwatch.http.client import TimedResponse, without_login
from gpuwatch.kube import transport
from gpuwatch.kube.errors import ApiCall, Unavailable
from gpuwatch.kube.transport import Transport
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.text import visible
from gpuwatch.rightsizing.prometheus.http import PrometheusHttp
from tests.waiting import BOUND_SECONDS

SECONDS = 0.3
"""What each client is given."""
DRIP_SECONDS = 0.05
DRIPS = 1_000
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


class Server:
    """Answers each connection with `answer`, in a thread of its own, until it is closed."""

    def __init__(self, listener: socket.socket, answer: Callable[[socket.socket], None]) -> None:
        self._listener, self._answer = listener, answer
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            self._answer(client)


def drip(what: bytes) -> Callable[[socket.socket], None]:
    """Sends `what`, then a byte now and then: each read of it succeeds in time."""

    def answer(client: socket.socket) -> None:
        client.recv(65536)
        client.sendall(what)
        for _ in range(DRIPS):
            client.sendall(b"1")
            time.sleep(DRIP_SECONDS)

    return answer


def endless(client: socket.socket) -> None:
    client.recv(65536)
    client.sendall(HEAD + b"\r\n")
    while True:
        client.sendall(bytes(1 << 20))


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[socket.socket], None]], str]]:
    """`serve(answer)`: the URL of a server of raw bytes."""
    with contextlib.ExitStack() as stack:

        def start(answer: Callable[[socket.socket], None]) -> str:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            Server(listener, answer)
            return f"http://127.0.0.1:{listener.getsockname()[1]}"

        yield start


def api_server(url: str, place: Path) -> Transport:
    config = place / "kubeconfig"
    config.write_text(
        json.dumps(
            {
                "apiVersion": "v1", "kind": "Config", "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }
        )
    )  # fmt: skip
    return Transport(str(config), read_seconds=SECONDS)


def ask_agent(url: str, _: Path) -> None:
    AgentClient(url, timeout=SECONDS).view()


def ask_prometheus(url: str, _: Path) -> None:
    PrometheusHttp(url, timeout=SECONDS, sleep=lambda _: None).ask("/api/v1/query", b"query=up")


def ask_api_server(url: str, place: Path) -> None:
    api_server(url, place).request(ApiCall("get", "nodes", "n"), "/api/v1/nodes/n")


CLIENTS = [ask_agent, ask_prometheus, ask_api_server]


@pytest.mark.parametrize("ask", CLIENTS)
@pytest.mark.parametrize(
    "begun",
    [b"", HEAD + b"X-Slow: ", HEAD + b"Content-Length: 1000000\r\n\r\n", HEAD + b"Transfer-Encoding: chunked\r\n\r\n0"],
    ids=["status", "header", "body", "chunk"],
)
def test_a_server_that_drips_is_given_up(serve, ask, begun, tmp_path):
    url, start = serve(drip(begun)), time.monotonic()
    with pytest.raises(GpuwatchError, match=r"timed out|in time"):
        ask(url, tmp_path)
    assert time.monotonic() - start < DRIPS * DRIP_SECONDS / 2


def test_an_agent_that_never_ends_is_read_to_a_bound(serve):
    with pytest.raises(GpuwatchError, match="larger than 16 MiB"):
        AgentClient(serve(endless), timeout=BOUND_SECONDS).view()


def test_an_api_server_that_never_ends_is_read_to_a_bound(serve, tmp_path, monkeypatch):
    monkeypatch.setattr(transport, "MAX_BODY", 2 << 20)
    with pytest.raises(Unavailable, match="larger than 2 MiB"):
        ask_api_server(serve(endless), tmp_path)


def test_a_packed_answer_of_an_api_server_is_not_unpacked(serve, tmp_path):
    packed = HEAD + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nbomb"
    api = api_server(serve(lambda client: client.recv(65536) and client.sendall(packed)), tmp_path)
    assert api.request(ApiCall("get", "nodes", "n"), "/api/v1/nodes/n") == b"bomb"


def test_each_answer_of_a_kept_connection_has_the_whole_time(serve):
    """And over TLS, as to a Prometheus."""
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(context)

    def answer(client: socket.socket) -> None:
        with context.wrap_socket(client, server_side=True) as channel:
            while channel.recv(65536):
                for byte in HEAD + b"Content-Length: 2\r\n\r\nok":
                    channel.sendall(bytes([byte]))

    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    port = int(serve(answer).rpartition(":")[2])
    connection = http.client.HTTPSConnection("localhost", port, timeout=BOUND_SECONDS, context=trusting)
    connection.response_class = TimedResponse
    for _ in range(3):
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"ok"
        assert connection.sock.gettimeout() == BOUND_SECONDS
    connection.close()


def test_to_remove_the_login_of_a_long_url_costs_no_more_than_to_print_it() -> None:
    """A regular expression looked for its end from each `:`: 6 s for 128 KiB."""
    url = "http://" * (1 << 13)

    def seconds(read: Callable[[str], object]) -> float:
        began = time.process_time()
        read(url)
        return time.process_time() - began

    assert without_login(url) == url
    assert min(seconds(without_login) for _ in range(3)) < 10 * min(seconds(visible) for _ in range(3))
