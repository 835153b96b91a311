"""The server over real sockets: pages, methods, headers, keep-alive, the unix socket, stopping."""

import contextlib
import http.client
import logging
import os
import socket

import pytest

from gpuwatch.http.server import HttpServer, Request, Response, ServerLimits
from gpuwatch.model.errors import UsageError
from tests.cpu_clock import unhindered
from tests.waiting import BOUND_SECONDS

BODY = b"gpuwatch_up 1\n"


def metrics(request: Request) -> Response:
    return Response(body=BODY, content_type="text/plain; version=0.0.4; charset=utf-8", headers=(("Vary", "Accept"),))


def get(server, path="/metrics", method="GET", headers=None):
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=BOUND_SECONDS)
    try:
        client.request(method, path, headers=headers or {})
        response = client.getresponse()
        return response.status, response.headers, response.read()
    finally:
        client.close()


def unix_get(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(BOUND_SECONDS)
        client.connect(str(path))
        client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return b"".join(iter(lambda: client.recv(65536), b""))


def test_a_page_comes_with_its_headers(serve):
    status, headers, body = get(serve({"/metrics": metrics}))
    assert (status, body) == (200, BODY)
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert (headers["Content-Length"], headers["Vary"]) == (str(len(BODY)), "Accept")
    assert headers["Date"].endswith("GMT")


def test_the_route_sees_path_query_and_headers(serve):
    seen = []

    def page(request):
        seen.append(request)
        return Response()

    server = serve({"/a b": page})
    get(server, "/a%20b?profile=native&profile=dcgm-4.8&x=", headers={"Accept-Encoding": "gzip", "X-Twice": "1"})
    (request,) = seen
    assert (request.method, request.path) == ("GET", "/a b")
    assert request.query == {"profile": ("native", "dcgm-4.8"), "x": ("",)}
    assert (request.headers["accept-encoding"], request.headers["x-twice"]) == ("gzip", "1")


def test_head_has_the_length_and_no_body(serve):
    status, headers, body = get(serve(), method="HEAD")
    assert (status, headers["Content-Length"], body) == (200, str(len(BODY)), b"")


@pytest.mark.parametrize(
    ("target", "page"),
    [
        ("http://localhost/metrics?a=1", "/metrics a"),
        ("HTTPS://[::1]:9?a=//2", "/ a"),
        ("http://localhost", "/ "),
        ("//h/", "//h/ "),
    ],
)
def test_absolute_form_reaches_the_page(serve, target, page):
    def shown(request):
        return Response(body=f"{request.path} {' '.join(request.query)}".encode())

    assert get(serve(dict.fromkeys(("/", "/metrics", "//h/"), shown)), target)[2].decode() == page


@pytest.mark.parametrize("target", ["*", "metrics", "localhost:80", "ftp://localhost/"])
def test_what_is_neither_a_path_nor_a_url_is_no_page(serve, target):
    server = serve({"/": metrics})
    assert get(server, target)[0] == 404
    assert get(server, target, method="OPTIONS")[0] == 405


def test_unknown_page_names_the_one_that_lists_them(serve):
    status, _, body = get(serve(), "/nope")
    assert (status, body) == (404, b"no such page; / lists what is here\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"])
def test_other_methods_are_refused(serve, method):
    server = serve()
    status, headers, _ = get(server, method=method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")
    assert server.stats().rejected["method"] == 1


def test_too_many_query_fields_are_refused(serve):
    assert get(serve(), "/metrics?" + "&".join(f"a{i}=1" for i in range(101)))[0] == 400


def test_one_connection_serves_many_requests(serve):
    server = serve()
    client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=BOUND_SECONDS)
    for _ in range(20):
        client.request("GET", "/metrics")
        assert client.getresponse().read() == BODY
    assert server.stats().open_connections == 1
    assert server.stats().requests == {200: 20}
    client.close()


def test_pipelined_requests_are_answered_in_order(serve):
    server = serve({f"/{name}": lambda request: Response(body=request.path.encode()) for name in "abc"})
    with socket.create_connection(("127.0.0.1", server.port), timeout=BOUND_SECONDS) as client:
        client.sendall(b"".join(b"GET /%c HTTP/1.1\r\nHost: localhost\r\n\r\n" % name for name in b"abc"))
        received = b""
        while received.count(b"HTTP/1.1 200") < 3 or not received.endswith(b"/c"):
            received += client.recv(65536)
    assert received.index(b"/a") < received.index(b"/b") < received.index(b"/c")


def test_http_1_0_closes(serve):
    with socket.create_connection(("127.0.0.1", serve().port), timeout=BOUND_SECONDS) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert b"".join(iter(lambda: client.recv(65536), b"")).endswith(BODY)


def test_a_large_body_arrives_whole(serve):
    large = os.urandom(5_000_000)
    assert get(serve({"/metrics": lambda request: Response(body=large)}))[2] == large


def test_a_page_that_fails_is_logged_counted_and_survived(serve, caplog):
    def broken(request):
        raise LookupError("no such GPU")

    server = serve({"/metrics": metrics, "/broken": broken})
    with caplog.at_level(logging.ERROR):
        assert get(server, "/broken")[0] == 500
    assert "no such GPU" in caplog.text
    assert server.stats().handler_errors == 1
    assert get(server)[0] == 200


def test_a_pages_own_error_is_no_rejection(serve):
    server = serve({"/-/ready": lambda request: Response(status=503)})
    assert get(server, "/-/ready")[0] == 503
    assert server.stats().requests == {503: 1}
    assert set(server.stats().rejected.values()) == {0}


def test_a_response_that_is_no_http_is_survived(serve, caplog):
    server = serve({"/metrics": metrics, "/broken": lambda request: Response(content_type="a\r\nb: c")})
    with pytest.raises(http.client.RemoteDisconnected):
        get(server, "/broken")
    assert server.stats().handler_errors == 1
    assert get(server)[0] == 200


def test_unix_socket_and_tcp_serve_the_same(serve, tmp_path):
    path = tmp_path / "agent.sock"
    server = serve(socket_path=path)
    assert path.stat().st_mode & 0o777 == 0o660
    assert unix_get(path).endswith(BODY)
    assert get(server)[2] == BODY
    server.stop()
    assert not path.exists()


def test_a_dead_owners_socket_is_replaced(serve, tmp_path):
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()
    serve(socket_path=path, listen=None)
    assert unix_get(path).endswith(BODY)
    assert list(tmp_path.iterdir()) == [path]


def test_a_live_owner_is_left_alone(serve, tmp_path):
    path = tmp_path / "agent.sock"
    serve(socket_path=path)
    with pytest.raises(UsageError, match="answers there"):
        HttpServer({}, socket_path=path).start()
    assert unix_get(path).endswith(BODY)


def test_a_file_that_is_no_socket_is_left_alone(tmp_path):
    path = tmp_path / "agent.sock"
    path.write_text("precious")
    with pytest.raises(UsageError, match="no socket"):
        HttpServer({}, socket_path=path).start()
    assert path.read_text() == "precious"


@pytest.mark.parametrize("name", ["missing/agent.sock", "x" * 120])
def test_an_impossible_socket_path_is_explained(tmp_path, name):
    with pytest.raises(UsageError, match="--socket"):
        HttpServer({}, socket_path=tmp_path / name).start()


def test_a_successors_socket_is_not_removed(serve, tmp_path):
    path = tmp_path / "agent.sock"
    server = serve(socket_path=path)
    path.unlink()
    successor = serve(socket_path=path, listen=None)
    server.stop()
    assert unix_get(path).endswith(BODY)
    successor.stop()
    assert not path.exists()


def test_a_port_in_use_is_explained_and_nothing_stays_bound(serve, tmp_path):
    taken = serve().port
    path = tmp_path / "agent.sock"
    with pytest.raises(UsageError, match=rf"127.0.0.1:{taken}; .*--listen"):
        HttpServer({}, listen=f"127.0.0.1:{taken}", socket_path=path).start()
    assert not path.exists()


@pytest.mark.parametrize("address", ["9400", "host:port", ":65536", "::1:9400", "[::1]", "1.2.3.4:-1", "", ":٣"])
def test_a_wrong_address_is_explained(address):
    with pytest.raises(UsageError, match="cannot listen on"):
        HttpServer({}, listen=address).start()


def test_a_foreign_address_is_explained():
    with pytest.raises(UsageError, match=r"192.0.2.1:0; .*address of this machine"):
        HttpServer({}, listen="192.0.2.1:0").start()


@pytest.mark.parametrize("listen", [":0", "127.0.0.1:0", "localhost:0", "0.0.0.0:0"])
def test_every_form_of_address_answers_on_ipv4(serve, listen):
    assert get(serve(listen=listen))[0] == 200


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
@pytest.mark.parametrize("listen", [":0", "[::1]:0"])
def test_ipv6(serve, listen):
    with socket.create_connection(("::1", serve(listen=listen).port), timeout=BOUND_SECONDS) as client:
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert client.recv(65536).startswith(b"HTTP/1.1 200")


def test_stop_is_quick_with_open_connections(serve):
    server = serve(limits=ServerLimits(write_seconds=60))
    clients = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(50)]
    for client in clients[:25]:
        client.sendall(b"GET /metrics HTT")
    before = unhindered()
    server.stop()
    assert unhindered() - before < 0.5
    for client in clients:
        client.settimeout(BOUND_SECONDS)
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
        client.close()
    server.stop()


def test_stop_before_start_does_nothing():
    HttpServer({}).stop()


def test_every_reason_for_a_refusal_is_counted_from_zero():
    rejected = HttpServer({}).stats().rejected
    assert set(rejected.values()) == {0}
    assert {"busy", "connections", "tls_handshake"} <= set(rejected)
