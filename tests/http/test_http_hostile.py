"""Hostile clients cost little and shut out nobody: each of `ServerLimits` is driven to its edge over real sockets."""

import contextlib
import gc
import socket
import ssl
import struct
import subprocess
import sys
import time

import pytest
import trustme
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuwatch.http.exchange import Exchange
from gpuwatch.http.server import HttpServer, Response, ServerLimits
from tests.waiting import BOUND_SECONDS, until

BODY = b"gpuwatch_up 1\n"
REQUEST = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def connect(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=BOUND_SECONDS)


def read_all(client):
    """Everything the server says; a reset after it is no matter."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while data := client.recv(65536):
            received += data
    return received


def ask(server, request=REQUEST, wrap=None):
    with connect(server) as client, wrap(client) if wrap else client as channel:
        channel.sendall(request)
        return read_all(channel)


def test_200_idle_sockets_and_slow_and_huge_requests_delay_no_scrape(serve):
    server, quiet = serve(limits=ServerLimits(connections=300)), serve()
    with contextlib.ExitStack() as stack:
        for number in range(250):
            client = stack.enter_context(connect(server))
            if number >= 200:
                client.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: ")
        flood = stack.enter_context(connect(server))
        flood.setblocking(False)
        times = [(_timed_scrape(server, flood), _timed_scrape(quiet)) for _ in range(50)]
    _assert_undelayed(times)


def test_50_silent_tls_clients_delay_no_scrape(serve, tmp_path):
    authority = trustme.CA()
    server, quiet = (serve(web_config=_tls(tmp_path, authority)) for _ in range(2))
    context = _client_context(authority)
    with contextlib.ExitStack() as stack:
        for number in range(50):
            client = stack.enter_context(connect(server))
            if number >= 25:
                client.sendall(b"\x16\x03\x01\x02\x00")  # the first bytes of a ClientHello, and no more
        flood = stack.enter_context(connect(server))
        flood.setblocking(False)

        def wrap(client):
            return context.wrap_socket(client, server_hostname="localhost")

        times = [(_timed_scrape(server, flood, wrap), _timed_scrape(quiet, wrap=wrap)) for _ in range(20)]
    _assert_undelayed(times)


def test_idle_sockets_beyond_the_bound_make_room(serve):
    server = serve(limits=ServerLimits(connections=20))
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connect(server)) for _ in range(60)]
        assert ask(server).endswith(BODY)
        assert server.stats().rejected["evicted"] >= 40
        assert server.stats().open_connections <= 20
        assert clients[0].recv(1) == b"", "the longest idle goes first"


def test_tls_has_a_bound_of_its_own(serve, tmp_path):
    server = serve(web_config=_tls(tmp_path, trustme.CA()), limits=ServerLimits(tls_connections=5))
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(connect(server)).sendall(b"\x16\x03\x01\x02\x00")
        until(lambda: server.stats().rejected["evicted"] == 15)
        assert server.stats().open_connections == 5


def test_tls_clients_that_do_not_say_goodbye_make_room(serve, tmp_path):
    authority = trustme.CA()
    server = serve(web_config=_tls(tmp_path, authority), limits=ServerLimits(tls_connections=2))
    context = _client_context(authority)
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            client = stack.enter_context(context.wrap_socket(connect(server), server_hostname="localhost"))
            client.sendall(REQUEST)
            assert client.recv(12) == b"HTTP/1.1 200"


def test_when_all_are_being_answered_a_newcomer_gets_503(serve):
    server = serve({"/metrics": lambda request: Response(body=bytes(20_000_000))}, limits=ServerLimits(connections=3))
    with contextlib.ExitStack() as stack:
        _slow_readers(stack, server, 3)
        assert ask(server, b"").startswith(b"HTTP/1.1 503 ")
        assert server.stats().rejected["connections"] == 1


def test_slow_readers_keep_nobody_from_their_page_or_another(serve):
    page = bytes(20_000_000)
    server = serve(
        {"/metrics": lambda request: Response(body=page), "/-/healthy": lambda request: Response()},
        limits=ServerLimits(scrapes=4),
    )
    with contextlib.ExitStack() as stack:
        _slow_readers(stack, server, 4)
        assert ask(server).endswith(page)
        assert server.stats().rejected["slow_reader"] == 1
        until(lambda: server.stats().open_connections == 3)
        assert ask(server, REQUEST.replace(b"metrics", b"-/healthy")).startswith(b"HTTP/1.1 200 ")
    until(lambda: server.stats().open_connections == 0)
    assert ask(server, REQUEST.replace(b"GET", b"HEAD")).startswith(b"HTTP/1.1 200 ")


def test_a_client_that_reads_on_is_not_cut_off_for_a_later_one(serve):
    page, limits = bytes(20_000_000), ServerLimits(scrapes=2, write_seconds=BOUND_SECONDS)
    server = serve({"/metrics": lambda request: Response(body=page)}, limits=limits)
    with contextlib.ExitStack() as stack:
        first, second = _slow_readers(stack, server, 2)
        first.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        received = 0
        while received < 10_000_000:  # more than the kernel keeps of the second's, which then takes nothing more
            received += len(first.recv(65536))
        assert ask(server).endswith(page)
        assert received + len(read_all(first)) > len(page)
        assert not read_all(second).endswith(page)


def test_tcp_clients_leave_the_unix_socket_alone(serve, tmp_path):
    path = tmp_path / "agent.sock"
    server = serve(
        {"/metrics": lambda request: Response(body=bytes(20_000_000))},
        socket_path=path,
        limits=ServerLimits(connections=3, scrapes=3),
    )
    with contextlib.ExitStack() as stack:
        _slow_readers(stack, server, 3)
        client = stack.enter_context(socket.socket(socket.AF_UNIX))
        client.settimeout(BOUND_SECONDS)
        client.connect(str(path))
        client.sendall(REQUEST)
        assert client.recv(12) == b"HTTP/1.1 200"


CHILD = """
import resource, sys
from gpuwatch.http.server import HttpServer, Response
server = HttpServer({"/metrics": lambda request: Response(body=b"gpuwatch_up 1\\n")}, listen="127.0.0.1:0")
server.start()
resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))
print(server.port, flush=True)
sys.stdin.read()
print(server.stats().rejected["connections"], flush=True)
"""


def test_without_file_descriptors_the_longest_idle_make_room():
    command = [sys.executable, "-c", CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        address = ("127.0.0.1", int(child.stdout.readline()))
        with contextlib.ExitStack() as stack:
            for _ in range(40):
                stack.enter_context(socket.create_connection(address, timeout=BOUND_SECONDS))
            client = stack.enter_context(socket.create_connection(address, timeout=BOUND_SECONDS))
            client.sendall(REQUEST)
            assert read_all(client).endswith(BODY)
        refused, _ = child.communicate(timeout=BOUND_SECONDS)
    assert int(refused) > 0


def test_a_slow_reader_is_cut_off(serve):
    server = serve(
        {"/metrics": lambda request: Response(body=bytes(20_000_000))}, limits=ServerLimits(write_seconds=0.2)
    )
    with contextlib.ExitStack() as stack:
        _slow_readers(stack, server, 1)
        until(lambda: server.stats().rejected["slow_reader"] == 1)
        until(lambda: server.stats().open_connections == 0)


def test_little_of_what_a_client_sends_ahead_is_kept(serve):
    """Asyncio takes 256 KiB of a connection if the kernel has them: 128 MB for 500 clients."""
    server = serve({"/metrics": lambda request: Response(body=bytes(20_000_000))})
    with connect(server) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        client.settimeout(0.5)
        sent = 0
        with contextlib.suppress(TimeoutError):
            while sent < 10_000_000:
                sent += client.send(REQUEST.replace(b"close", b"keep-alive") * 10)
        assert sent < 100_000


def test_the_buffers_of_a_connection_that_was_reset_are_freed_at_once(serve):
    """A collector that looks for cycles comes after thousands of them."""
    server = serve()
    gc.collect()
    gc.disable()
    try:
        with connect(server) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.sendall(REQUEST.replace(b"close", b"keep-alive") * 800)  # more than is read: a write meets the reset
            assert client.recv(12) == b"HTTP/1.1 200"
        until(lambda: server.stats().open_connections == 0)
        until(lambda: not any(type(each) is Exchange for each in gc.get_objects()))
    finally:
        gc.enable()


def test_a_slow_head_gets_408(serve):
    server = serve(limits=ServerLimits(head_seconds=0.2))
    assert ask(server, b"GET /metrics HTTP/1.1\r\nHost:").startswith(b"HTTP/1.1 408 ")
    assert server.stats().rejected["slow_request"] == 1


def test_a_dripping_head_gets_408_however_steady(serve):
    server = serve(limits=ServerLimits(head_seconds=0.3))
    with connect(server) as client:
        sent = 0
        with contextlib.suppress(ConnectionError):
            for sent, byte in enumerate(b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 1000):  # noqa: B007 used below
                client.sendall(bytes([byte]))
                client.settimeout(0.02)
                with contextlib.suppress(TimeoutError):
                    if client.recv(12):
                        break
        assert sent < 200
    assert server.stats().rejected["slow_request"] == 1


@pytest.mark.parametrize("first", [b"", REQUEST.replace(b"close", b"keep-alive")])
def test_an_idle_connection_is_closed(serve, first):
    server = serve(limits=ServerLimits(head_seconds=BOUND_SECONDS if first else 0.2, idle_seconds=0.2))
    received = ask(server, first)
    assert received.endswith(BODY) == bool(first)
    assert server.stats().rejected["slow_request"] == 0


def test_an_oversized_head_gets_431(serve):
    server = serve()
    received = ask(server, b"GET /metrics HTTP/1.1\r\nX-Large: " + b"a" * 20_000)
    assert received.startswith(b"HTTP/1.1 431 ")
    assert server.stats().rejected["oversized_request"] == 1


@pytest.mark.parametrize(
    "framing",
    [b"Content-Length: 10000000", b"Transfer-Encoding: chunked", b"Content-Length: 5\r\nExpect: 100-continue"],
)
@pytest.mark.parametrize("method", [b"GET", b"POST", b"HEAD"])
def test_a_body_gets_413_and_is_not_awaited(serve, framing, method):
    server = serve()
    received = ask(server, method + b" /metrics HTTP/1.1\r\nHost: localhost\r\n" + framing + b"\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 413 ")
    assert b"Connection: close" in received
    assert server.stats().rejected["body"] == 1


def test_ten_megabytes_are_not_read(serve):
    server = serve()
    head = b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n"
    with connect(server) as client:
        client.sendall(head)
        assert client.recv(12) == b"HTTP/1.1 413"
        with pytest.raises(ConnectionError):
            client.sendall(bytes(100_000_000))
    until(lambda: server.stats().open_connections == 0)


def test_a_request_with_two_lengths_ends_its_connection(serve):
    """A proxy before us may believe the other one, and take the rest for the next request."""
    twice = b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    received = ask(serve(), b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n" + twice + REQUEST)
    assert received.startswith(b"HTTP/1.1 400 ")
    assert received.count(b"HTTP/1.1") == 1


def test_an_empty_body_is_none(serve):
    request = REQUEST.replace(b"Connection", b"Content-Length: 0\r\nConnection")
    assert ask(serve(), request).endswith(BODY)


@pytest.mark.parametrize(
    "junk",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n folded: 1\r\nA\x00B: 1\r\n\r\n",
    ],
)
def test_what_is_no_http_gets_an_error(serve, junk):
    server = serve(limits=ServerLimits(head_seconds=0.2))
    assert ask(server, junk)[9:10] in (b"4", b"5")
    until(lambda: ask(server).endswith(BODY))  # this thread may be too slow for it


@pytest.fixture(scope="module")
def tough():
    server = HttpServer(
        {"/metrics": lambda request: Response(body=BODY)}, listen="127.0.0.1:0", limits=ServerLimits(head_seconds=0.05)
    )
    server.start()
    yield server
    server.stop()


PIECES = st.one_of(
    st.binary(max_size=200),
    st.sampled_from(
        [b"GET /metrics HTTP/1.1\r\n", b"Host: localhost\r\n", b"\r\n", b"Content-Length: 3\r\n", b"HEAD ", b"/%zz?"]
    ),
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(PIECES, max_size=8))
def test_random_bytes_never_end_the_server(tough, pieces):
    with connect(tough) as client, contextlib.suppress(ConnectionError):
        for piece in pieces:
            client.sendall(piece)
        client.shutdown(socket.SHUT_WR)
        read_all(client)
    until(lambda: ask(tough).endswith(BODY))  # this thread may be too slow for it
    assert tough.stats().handler_errors == 0


def _slow_readers(stack, server, count):
    clients = [stack.enter_context(socket.socket()) for _ in range(count)]
    for number, client in enumerate(clients, 1):
        client.settimeout(BOUND_SECONDS)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.port))
        client.sendall(REQUEST)
        until(lambda number=number: server.stats().requests.get(200) == number)
    return clients


def _timed_scrape(server, flood=None, wrap=None):
    """Seconds one scrape takes, while `flood` pushes what it can of a request of 10 MB."""
    if flood is not None:
        with contextlib.suppress(OSError):
            flood.send(b"GET /" + b"a" * 10_000_000)
    began = time.perf_counter()
    assert ask(server, wrap=wrap).endswith(BODY)
    return time.perf_counter() - began


def _tls(folder, authority):
    certificate = authority.issue_cert("localhost")
    certificate.private_key_and_cert_chain_pem.write_to_path(folder / "server.pem")
    path = folder / "web.yml"
    path.write_text("tls_server_config: {cert_file: server.pem, key_file: server.pem}\n")
    return path


def _client_context(authority):
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


def _assert_undelayed(times):
    """Of pairs of scrapes, one of the beset server and one of a quiet one, which a busy machine slows as well."""
    beset, quiet = (_nine_of_ten(each) for each in zip(*times, strict=True))
    assert beset < 0.1 + 5 * quiet


def _nine_of_ten(times):
    """What nine scrapes of ten stay below: one alone may meet a stall of the machine that runs the tests."""
    return sorted(times)[len(times) * 9 // 10 - 1]
