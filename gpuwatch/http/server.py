"""The HTTP server of every role: a table of pages, one daemon thread, hard bounds on what clients can cost.

It knows nothing of metrics. TCP and the unix socket have connections and budgets of their own, so that
nobody on the network can shut out the command line, the remediator or the tuner.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from gpuwatch.http.connection import Acceptor
from gpuwatch.http.exchange import RequestCounts, ServerLimits, Service
from gpuwatch.http.listen import listen_tcp, listen_unix
from gpuwatch.http.message import Handler, Request, Response, text

if TYPE_CHECKING:
    from gpuwatch.http.web_guard import WebGuard

__all__ = ["Handler", "HttpServer", "HttpStats", "Request", "Response", "ServerLimits", "text"]

_STOP_SECONDS = 0.5


class HttpStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the start, for the agent's own metrics."""

    requests: Mapping[int, int]
    """Responses by status code."""
    rejected: Mapping[str, int]
    """Refusals by reason; every reason is there from the start, at 0."""
    handler_errors: int
    """Pages that raised; each is logged with its traceback."""
    open_connections: int
    reload_failures: int
    """Changes of the web configuration or its certificates that could not be taken over."""


class HttpServer:
    """Serve `routes` (path -> handler) on `listen` (`ADDR:PORT`) and on a unix socket, either or both.

    `web_config` (Prometheus exporter-toolkit file) guards TCP only; the unix socket is guarded by its mode.
    """

    def __init__(
        self,
        routes: Mapping[str, Handler],
        *,
        listen: str | None = None,
        socket_path: Path | None = None,
        web_config: Path | None = None,
        limits: ServerLimits | None = None,
    ) -> None:
        self._routes, self._limits, self._tally = routes, limits or ServerLimits(), RequestCounts()
        self._listen, self._socket_path, self._web_config = listen, socket_path, web_config
        self._guard: WebGuard | None = None
        self._acceptors: list[Acceptor] = []
        self._socket_inode: tuple[int, int] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._thread: threading.Thread | None = None
        self.port: int | None = None
        """The TCP port in use, known once started; None without TCP."""

    def start(self) -> None:
        """Bind, then serve from a daemon thread.

        Raises UsageError when an address, the socket path or the web configuration cannot be used.
        """
        with contextlib.ExitStack() as bound:
            if self._web_config is not None:
                from gpuwatch.http.web_guard import WebGuard

                self._guard = WebGuard(self._web_config)
            if self._listen is not None:
                listener = bound.enter_context(listen_tcp(self._listen))
                self.port = listener.getsockname()[1]
                self._accept_on(listener, self._guard)
            if self._socket_path is not None:
                self._accept_on(bound.enter_context(listen_unix(self._socket_path)), None)
                self._socket_inode = _inode(self._socket_path)
            bound.pop_all()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(self._loop,), name="http", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close every connection and remove the unix socket; returns within half a second."""
        if self._loop is None or self._thread is None:
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: stopped before
            self._loop.call_soon_threadsafe(self._stopping.set)
        if self._thread.is_alive():  # not if Ctrl-C came before it was started
            self._thread.join(_STOP_SECONDS)
        if self._socket_path is not None and _inode(self._socket_path) == self._socket_inode:
            self._socket_path.unlink(missing_ok=True)

    def stats(self) -> HttpStats:
        """Return the counts so far; any thread may ask."""
        return HttpStats(
            requests=dict(self._tally.requests),
            rejected=dict(self._tally.rejected),
            handler_errors=self._tally.handler_errors,
            open_connections=sum(acceptor.open_connections for acceptor in self._acceptors),
            reload_failures=self._guard.reload_failures if self._guard else 0,
        )

    def _accept_on(self, listener: socket.socket, guard: "WebGuard | None") -> None:
        service = Service(routes=self._routes, limits=self._limits, tally=self._tally, guard=guard)
        self._acceptors.append(Acceptor(listener, service))

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        tasks = [asyncio.create_task(acceptor.run()) for acceptor in self._acceptors]
        await self._stopping.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _inode(path: Path) -> tuple[int, int] | None:
    """Return what tells our socket file from one that took its place."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
