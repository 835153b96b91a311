"""A running HTTP server for the tests of this folder, stopped when they are over."""

import pytest

from gpuwatch.http.server import HttpServer, Response

BODY = b"gpuwatch_up 1\n"


@pytest.fixture
def serve():
    """Return `serve(routes, **options) -> HttpServer`, started on a free port of 127.0.0.1."""
    servers = []

    def start(routes=None, **options):
        options.setdefault("listen", "127.0.0.1:0")
        server = HttpServer(routes or {"/metrics": lambda request: Response(body=BODY)}, **options)
        servers.append(server)
        server.start()
        return server

    yield start
    for server in servers:
        server.stop()
