"""Many clients and large answers: what each may cost, so that a probe, a scrape and the unix socket go on."""

import contextlib
import http.client
import selectors
import socket
import threading
import time
from pathlib import Path

import pytest

from gpuwatch.http.server import Response, ServerLimits
from tests.cpu_clock import unhindered
from tests.waiting import BOUND_SECONDS, until

REQUEST = b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n"
PIPELINED = 1_000
PAGE_SECONDS = 0.01
CONNECTING = 500
MEGABYTE = 1 << 20


def connect(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=BOUND_SECONDS)


def ask(server, path):
    """Status and body over a connection of its own."""
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=BOUND_SECONDS)
    try:
        client.request("GET", path)
        response = client.getresponse()
        return response.status, response.read()
    finally:
        client.close()


def unix_ask(path, page):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(BOUND_SECONDS)
        client.connect(str(path))
        client.sendall(b"GET %s HTTP/1.0\r\n\r\n" % page)
        return b"".join(iter(lambda: client.recv(65536), b""))


def slow_reader(stack, server, page):
    """A client that has asked and takes nothing."""
    client = stack.enter_context(socket.socket())
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", server.port))
    client.sendall(REQUEST % page)
    return client


@pytest.fixture
def blocked(serve, tmp_path):
    """A server whose TCP side is kept by a page that does not return, with its socket; the page returns at the end."""
    entered, release = threading.Event(), threading.Event()

    def page(_):
        entered.set()
        release.wait(3 * BOUND_SECONDS)  # longer than any client
        return Response()

    path = tmp_path / "agent.sock"
    server = serve({"/stuck": page, "/quick": lambda _: Response(body=b"now")}, socket_path=path)
    with connect(server) as client:
        client.sendall(REQUEST % b"stuck")
        assert entered.wait(BOUND_SECONDS)
        yield server, path
        release.set()


def test_four_clients_that_pipeline_delay_no_probe(serve):
    """Each has asked for ten seconds of work; another client waits for a few pages and not for all of them."""

    def costly(_):
        time.sleep(PAGE_SECONDS)
        return Response()

    server = serve({"/costly": costly, "/-/healthy": lambda _: Response(body=b"ok")})
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(connect(server)).sendall((REQUEST % b"costly") * PIPELINED)
        until(lambda: server.stats().requests.get(200, 0) >= 4)
        before = unhindered()
        assert ask(server, "/-/healthy") == (200, b"ok")
        assert unhindered() - before < 100 * PAGE_SECONDS


def test_a_client_that_pipelines_gets_a_hundred_answers_a_second(serve):
    server = serve({"/": lambda _: Response(body=b"x")})
    with connect(server) as client:
        before = time.monotonic()
        client.sendall((REQUEST % b"") * 20)
        received = b""
        while received.count(b"HTTP/1.1 200") < 20:
            received += client.recv(65536)
        assert time.monotonic() - before >= 0.19


def test_the_unix_socket_answers_while_tcp_does_not(blocked):
    _, path = blocked
    assert unix_ask(path, b"/quick").endswith(b"now")


@pytest.mark.skipif(
    int(Path("/proc/sys/net/core/somaxconn").read_text()) < CONNECTING, reason="this kernel lets fewer connections wait"
)
def test_clients_that_connect_at_once_wait_in_line_and_not_for_the_kernel_to_try_again(blocked):
    """A connection that finds the line full is dropped, and its client tries again after a second, then after three."""
    server, _ = blocked
    with contextlib.ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        for _ in range(CONNECTING):
            client = stack.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", server.port))
            selector.register(client, selectors.EVENT_WRITE)
        connected = set()

        def connect_more():
            connected.update(key.fd for key, _ in selector.select(0))
            return len(connected) == CONNECTING

        until(connect_more, f"{CONNECTING} connections", seconds=10)


def test_connections_that_end_without_a_byte_leave_nothing(serve):
    server = serve({"/": lambda _: Response(body=b"x")})
    for _ in range(100):
        connect(server).close()
    assert ask(server, "/") == (200, b"x")
    until(lambda: server.stats().open_connections == 0)
    assert (server.stats().handler_errors, server.stats().requests) == (0, {200: 1})


def pieces(count, ended=None):
    """`count` pieces of a megabyte; `ended` is set when no more are asked for."""
    try:
        for number in range(count):
            yield bytes([number % 256]) * MEGABYTE
    finally:
        if ended is not None:
            ended.set()


@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_body_made_in_pieces_arrives_whole(serve, count):
    server = serve({"/large": lambda _: Response(body=pieces(count))})
    with connect(server) as client:
        for _ in range(2):  # the connection is kept
            client.sendall(REQUEST % b"large")
            response = http.client.HTTPResponse(client)
            response.begin()
            assert response.headers["Transfer-Encoding"] == "chunked"
            assert response.read() == b"".join(pieces(count))
        client.sendall(b"HEAD /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert client.recv(65536).endswith(b"\r\n\r\n")
    with connect(server) as client:
        client.sendall(b"GET /large HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(MEGABYTE), b""))
    assert answer.partition(b"\r\n\r\n")[2] == b"".join(pieces(count))


def test_pieces_are_made_for_few_clients_at_once_and_no_more_when_one_leaves(serve):
    ended = [threading.Event() for _ in range(2)]
    waiting = iter(ended)
    server = serve(
        {"/large": lambda _: Response(body=pieces(10_000, next(waiting, None)))}, limits=ServerLimits(streams=2)
    )
    with contextlib.ExitStack() as stack:
        for number in range(2):
            slow_reader(stack, server, b"large")
            until(lambda wanted=number + 1: server.stats().requests.get(200) == wanted)
        assert ask(server, "/large")[0] == 503
        assert not any(each.is_set() for each in ended)
    assert all(each.wait(BOUND_SECONDS) for each in ended)
    assert server.stats().rejected["busy"] == 1


def test_pieces_that_cannot_be_made_end_the_connection(serve):
    def broken():
        yield b"x" * MEGABYTE
        raise LookupError("no such row")

    server = serve({"/large": lambda _: Response(body=broken()), "/": lambda _: Response(body=b"x")})
    with pytest.raises(http.client.IncompleteRead):
        ask(server, "/large")
    until(lambda: server.stats().handler_errors == 1)
    assert ask(server, "/") == (200, b"x")


@pytest.mark.parametrize("shared", [True, False])
def test_what_slow_clients_have_yet_to_take_is_bounded(serve, shared):
    """One page costs its size once; of three that have a page of their own, the first is cut off."""
    page = bytes(20 * MEGABYTE)
    server = serve(
        {"/metrics": lambda _: Response(body=page if shared else bytes(20 * MEGABYTE)), "/": lambda _: Response()},
        limits=ServerLimits(sending_bytes=30 * MEGABYTE),
    )
    with contextlib.ExitStack() as stack:
        for number in range(2):
            slow_reader(stack, server, b"metrics")
            until(lambda wanted=number + 1: server.stats().requests.get(200) == wanted)
        assert ask(server, "/metrics") == (200, page)
        assert server.stats().rejected["slow_reader"] == (0 if shared else 1)
        assert ask(server, "/")[0] == 200
