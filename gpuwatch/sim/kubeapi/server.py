"""The cluster on a TCP port: HTTP/1.1 with connections that stay open, a thread for each."""

import contextlib
import json
import socket
import socketserver
import struct
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, unquote

from gpuwatch.sim.kubeapi.cluster import ADMIN, SimulatedCluster
from gpuwatch.sim.kubeapi.messages import ApiError, ApiRequest, bad_request, reply

_TICK_SECONDS = 0.1
_BODY_BYTES = 3 * 1024 * 1024  # as the real server's limit
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class _Handler(BaseHTTPRequestHandler):
    """The requests of one connection, one after the other."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: "_HttpServer"

    def handle(self) -> None:
        """Until the client or the server cuts the connection."""
        with contextlib.suppress(OSError):
            super().handle()

    def _answer(self) -> None:
        try:
            length = self.headers.get("Content-Length", "0")
            if not (length.isascii() and length.isdecimal()):
                raise bad_request("the length of the body is not a number")
            body = self.rfile.read(min(int(length), 2 * _BODY_BYTES))  # a client reads no answer before it has sent all
            if int(length) > _BODY_BYTES:
                raise ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {_BODY_BYTES}")
            path, _, query = self.path.partition("?")
            response = self.server.cluster.handle(
                ApiRequest(
                    method=self.command,
                    path=unquote(path),
                    query=dict(parse_qsl(query, keep_blank_values=True)),
                    headers={name.lower(): value for name, value in self.headers.items()},
                    body=body,
                )
            )
        except ApiError as error:
            self.close_connection = True
            response = reply(error.status, error.code)
        if response.delivery == "hang":
            self.rfile.read(1)  # ends when the connection does
        elif response.delay:
            time.sleep(response.delay)
        if response.delivery != "answered":
            self.server.cut(self.connection)
        if self.connection not in self.server.connections:
            self.close_connection = True
            return
        self.send_response(response.status)
        headers = (("Content-Type", "application/json"), ("Cache-Control", "no-cache, private"), *response.headers)
        for name, value in (*headers, ("Content-Length", str(len(response.body)))):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(response.body)

    do_DELETE = do_GET = do_PATCH = do_POST = do_PUT = _answer

    def log_message(self, *_: Any) -> None:
        """Log nothing: the cluster counts the requests."""


class _HttpServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(self, cluster: SimulatedCluster, port: int) -> None:
        self.cluster, self.connections = cluster, set[socket.socket]()
        super().__init__(("127.0.0.1", port), _Handler)

    def service_actions(self) -> None:
        """Called between requests, at least every _TICK_SECONDS."""
        self.cluster.tick()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection."""
        connection, address = super().get_request()
        self.connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        """Close a connection; one that was cut ends with a reset, not with a FIN."""
        self.connections.discard(request)
        self.close_request(request)

    def cut(self, connection: socket.socket) -> None:
        """Break a connection as a crashed or unreachable server does: with a reset."""
        self.connections.discard(connection)
        with contextlib.suppress(OSError):
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            connection.shutdown(socket.SHUT_RD)  # its thread wakes and closes it


class SimulatedApiServer:
    """Serve `cluster` on 127.0.0.1 between `start()` and `stop()`, or as a context manager."""

    def __init__(self, cluster: SimulatedCluster, *, folder: Path | None = None) -> None:
        self.cluster, self.port = cluster, 0
        self._folder = folder
        self._undo = contextlib.ExitStack()
        self._http: _HttpServer | None = None
        self._is_started = False

    @property
    def url(self) -> str:
        """Its address, once started."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def open_connections(self) -> int:
        """Clients connected now."""
        return len(self._http.connections) if self._http else 0

    def start(self) -> Self:
        """Bind and serve from daemon threads. Raises OSError when the port cannot be had."""
        self._switch(gone=False)
        self.cluster.on_gone.append(self._switch)
        self._is_started = True
        return self

    def stop(self) -> None:
        """Cut every connection and free the port; the cluster keeps its state."""
        if self._is_started:
            self._is_started = False
            self.cluster.on_gone.remove(self._switch)
            self._switch(gone=True)
            self._undo.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """Write the kubeconfig of a user and return its path; a new user has no rights yet.

        It goes into `folder`, or else into a folder of its own that `stop()` removes.
        """
        token = self.cluster.access.token_of(user) or self.cluster.add_user(user, ())
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sim", "cluster": {"server": self.url}}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "sim", "context": {"cluster": "sim", "user": user}}],
            "current-context": "sim",
        }
        if self._folder is None:
            self._folder = Path(self._undo.enter_context(tempfile.TemporaryDirectory(prefix="gpuwatch-kubeapi-")))
            self._undo.callback(setattr, self, "_folder", None)
        path = self._folder / f"kubeconfig-{user.replace(':', '-')}"
        path.touch(mode=0o600)
        path.write_text(json.dumps(config, indent=2))
        return path

    def _switch(self, gone: bool) -> None:
        if not gone and self._http is None:
            self._http = _HttpServer(self.cluster, self.port)
            self.port = self._http.server_address[1]
            threading.Thread(
                target=self._http.serve_forever, args=(_TICK_SECONDS,), name="sim-kubeapi", daemon=True
            ).start()
        elif gone and self._http is not None:
            http, self._http = self._http, None
            http.shutdown()
            http.server_close()
            for connection in tuple(http.connections):
                http.cut(connection)
