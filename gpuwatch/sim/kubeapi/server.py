"""The cluster on a TCP port: one event loop on one thread, any number of keep-alive connections, HTTP/1.1."""

import asyncio
import contextlib
import json
import socket
import ssl
import struct
import tempfile
import threading
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Self
from urllib.parse import parse_qsl, unquote

import h11

from gpuwatch.sim.kubeapi.cluster import ADMIN, SimulatedCluster
from gpuwatch.sim.kubeapi.messages import ApiError, ApiRequest, ApiResponse, reply

_TICK_SECONDS = 0.1
_SWITCH_SECONDS = 10.0
_BACKLOG = 1024
_BODY_BYTES = 3 * 1024 * 1024  # as the real server's limit
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class ApiConnection(asyncio.Protocol):
    """Requests one after the other, on the event loop's thread."""

    def __init__(self, handle: Callable[[ApiRequest], ApiResponse], open_connections: "set[ApiConnection]") -> None:
        self._handle, self._open_connections = handle, open_connections
        self._http = h11.Connection(h11.SERVER)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._head: h11.Request | None = None
        self._body = bytearray()
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101
        self._transport = transport
        self._open_connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        """End whatever was under way."""
        self._open_connections.discard(self)
        if self._late is not None:
            self._late.cancel()

    def cut(self) -> None:
        """Break the connection as a crashed or unreachable server does: with a reset."""
        plain = self._transport.get_extra_info("socket")
        if plain is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take bytes in, answer what is complete."""
        self._http.receive_data(data)
        self._advance()

    def eof_received(self) -> bool:
        """Close: no client waits for an answer after it has closed its side."""
        return False

    def _advance(self) -> None:
        try:
            while not self._transport.is_closing():
                event = self._http.next_event()
                if event is h11.NEED_DATA and self._http.they_are_waiting_for_100_continue:
                    self._send(h11.InformationalResponse(status_code=100, headers=[]))
                if event in (h11.NEED_DATA, h11.PAUSED) or isinstance(event, h11.ConnectionClosed):
                    return
                self._take(event)
        except h11.RemoteProtocolError:
            self._transport.close()

    def _take(self, event: object) -> None:
        if isinstance(event, h11.Request):
            self._head = event
            self._body.clear()
        elif isinstance(event, h11.Data):
            self._body += event.data
            if len(self._body) > _BODY_BYTES:
                error = ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {_BODY_BYTES}")
                self._answer(reply(error.status, error.code))
                self._transport.close()
        elif isinstance(event, h11.EndOfMessage) and self._head is not None:
            path, _, query = self._head.target.decode("ascii", "replace").partition("?")
            request = ApiRequest(
                method=self._head.method.decode(),
                path=unquote(path),
                query=dict(parse_qsl(query, keep_blank_values=True)),
                headers={name.decode(): value.decode("latin-1") for name, value in self._head.headers},
                body=bytes(self._body),
            )
            response = self._handle(request)
            if response.fate == "reset":
                self.cut()
            elif response.fate == "answered" and response.delay:
                self._late = self._loop.call_later(response.delay, self._answer, response)
            elif response.fate == "answered":
                self._answer(response)

    def _answer(self, response: ApiResponse) -> None:
        headers = [
            ("Content-Type", "application/json"),
            ("Cache-Control", "no-cache, private"),
            *response.headers,
            ("Content-Length", str(len(response.body))),
        ]
        reason = HTTPStatus(response.status).phrase
        head = self._http.send(h11.Response(status_code=response.status, headers=headers, reason=reason)) or b""
        body = self._http.send(h11.Data(data=response.body)) or b""
        self._transport.write(head + body)
        self._send(h11.EndOfMessage())
        if self._http.our_state is h11.MUST_CLOSE:
            self._transport.close()
        elif self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            if self._late is not None:  # requests that came meanwhile have waited
                self._late = None
                self._advance()

    def _send(self, event: h11.Event) -> None:
        self._transport.write(self._http.send(event) or b"")


class SimulatedApiServer:
    """Serve `cluster` on 127.0.0.1 between `start()` and `stop()`, or as a context manager.

    Plain HTTP, but with `tls`, whose certificate must be good for 127.0.0.1; `ca_file` then goes into kubeconfigs.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        *,
        folder: Path | None = None,
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        ca_file: Path | None = None,
    ) -> None:
        self.cluster, self.port, self.ca_file = cluster, port, ca_file
        self._tls, self._folder = tls, folder
        self._undo = contextlib.ExitStack()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping = asyncio.Event()
        self._started = threading.Event()
        self._server: asyncio.Server | None = None
        self._connections: set[ApiConnection] = set()

    @property
    def url(self) -> str:
        """Where it is, once started."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def open_connections(self) -> int:
        """Clients connected now."""
        return len(self._connections)

    def start(self) -> Self:
        """Bind and serve from a daemon thread. Raises OSError when the port cannot be had."""
        listener = _listen(self.port)
        self.port = listener.getsockname()[1]
        self._stopping, self._started = asyncio.Event(), threading.Event()  # an event belongs to one loop
        self._thread = threading.Thread(target=self._run, args=(listener,), name="sim-kubeapi", daemon=True)
        self._thread.start()
        self._started.wait()
        self.cluster.on_gone.append(self._switch)
        return self

    def stop(self) -> None:
        """Cut every connection and free the port; the cluster keeps its state."""
        if self._loop is None or self._thread is None:
            return
        self.cluster.on_gone.remove(self._switch)
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._loop = self._thread = None
        self._undo.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """Write the kubeconfig of a user and return its path; a new user has no rights yet.

        It goes into `folder`, or else into a folder of its own that is gone with `stop()`.
        """
        token = self.cluster.access.token_of(user) or self.cluster.add_user(user, ())
        trust = {} if self.ca_file is None else {"certificate-authority": str(self.ca_file)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sim", "cluster": {"server": self.url, **trust}}],
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

    def _run(self, listener: socket.socket) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            runner.run(self._serve(listener))

    async def _serve(self, listener: socket.socket) -> None:
        await self._open(listener)
        self._started.set()
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _TICK_SECONDS)
            self.cluster.tick()
        self._shut()
        await asyncio.sleep(0)

    async def _open(self, listener: socket.socket) -> None:
        loop, cluster = asyncio.get_running_loop(), self.cluster
        self._server = await loop.create_server(
            lambda: ApiConnection(cluster.handle, self._connections), sock=listener, ssl=self._tls, backlog=_BACKLOG
        )

    def _shut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in tuple(self._connections):
            connection.cut()

    def _switch(self, gone: bool) -> None:
        if self._loop is None:
            return
        done = asyncio.run_coroutine_threadsafe(self._come_or_go(gone=gone), self._loop)
        if threading.current_thread() is not self._thread:
            done.result(_SWITCH_SECONDS)

    async def _come_or_go(self, *, gone: bool) -> None:
        if gone:
            self._shut()
        elif self._server is None:
            await self._open(_listen(self.port))


def _listen(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError:
        listener.close()
        raise
    return listener
