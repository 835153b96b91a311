"""Pages that wait: long polls cost nobody else a page, are bounded, and end with their client or the server."""

import asyncio
import http.client
import socket
import threading

import pytest

from gpuwatch.http.server import HttpServer, Request, Response, ServerLimits
from tests.waiting import BOUND_SECONDS, until


class Gate:
    """A page that waits until it is let go."""

    def __init__(self) -> None:
        self.waiting = 0
        self.ended = 0
        self._open = threading.Event()

    async def page(self, _: Request) -> Response:
        self.waiting += 1
        try:
            while not self._open.is_set():
                await asyncio.sleep(0.005)
            return Response(body=b"at last")
        finally:
            self.ended += 1

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def gate():
    return Gate()


@pytest.fixture
def server(serve, gate) -> HttpServer:
    routes = {"/slow": gate.page, "/quick": lambda _: Response(body=b"now")}
    return serve(routes, limits=ServerLimits(scrapes=1, waiting=3, half_closed_seconds=0.1))


def ask(server: HttpServer, path: str = "/slow") -> http.client.HTTPConnection:
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=BOUND_SECONDS)
    client.request("GET", path)
    return client


def answer(client: http.client.HTTPConnection) -> tuple[int, bytes]:
    response = client.getresponse()
    body = response.read()
    client.close()
    return response.status, body


def test_who_waits_keeps_nobody_from_what_is_ready(server, gate):
    waiting = [ask(server) for _ in range(3)]
    until(lambda: gate.waiting == 3)
    assert answer(ask(server, "/quick")) == (200, b"now")
    gate.open()
    assert [answer(client) for client in waiting] == [(200, b"at last")] * 3


def test_more_than_the_bound_are_turned_away(server, gate):
    waiting = [ask(server) for _ in range(3)]
    until(lambda: gate.waiting == 3)
    status, body = answer(ask(server))
    assert (status, b"too many" in body) == (503, True)
    assert server.stats().rejected["busy"] == 1
    gate.open()
    assert [answer(client)[0] for client in waiting] == [200] * 3


def test_a_client_that_leaves_makes_room(server, gate):
    for client in [ask(server) for _ in range(3)]:
        until(lambda: gate.waiting == 3)
        client.close()
    until(lambda: gate.ended == 3)
    late = ask(server)
    until(lambda: gate.waiting == 4)
    gate.open()
    assert answer(late) == (200, b"at last")
    assert server.stats().handler_errors == 0


def test_a_client_that_can_only_read_any_more_gets_its_answer(serve, gate):
    server = serve({"/slow": gate.page})
    with socket.create_connection(("127.0.0.1", server.port), timeout=BOUND_SECONDS) as client:
        client.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        until(lambda: gate.waiting == 1)
        gate.open()
        assert b"".join(iter(lambda: client.recv(65536), b"")).endswith(b"at last")


def test_who_does_not_read_either_is_not_waited_for(server, gate):
    with socket.create_connection(("127.0.0.1", server.port), timeout=BOUND_SECONDS) as client:
        client.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
    assert gate.ended == 1


def test_the_next_request_may_be_sent_ahead(server, gate):
    with socket.create_connection(("127.0.0.1", server.port), timeout=BOUND_SECONDS) as client:
        client.sendall(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: gate.waiting == 1)
        client.sendall(b"GET /quick HTTP/1.1\r\nHost: localhost\r\n\r\n")
        gate.open()
        received = b""
        while not received.endswith(b"now"):
            received += client.recv(65536)
    assert received.index(b"at last") < received.index(b"now")


def test_it_ends_when_the_server_stops(server, gate):
    client = ask(server)
    until(lambda: gate.waiting == 1)
    server.stop()
    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        client.getresponse()
    client.close()
    until(lambda: gate.ended == 1)


def test_a_page_that_fails_after_a_while_is_an_error_of_that_page(serve):
    async def broken(_: Request) -> Response:
        await asyncio.sleep(0)
        raise LookupError("no such GPU")

    server = serve({"/slow": broken, "/quick": lambda _: Response(body=b"now")})
    assert answer(ask(server))[0] == 500
    assert server.stats().handler_errors == 1
    assert answer(ask(server, "/quick"))[0] == 200
