"""The HTTP server of every role: a table of pages, a daemon thread for each listener, hard bounds on clients' cost.

It is independent of metrics. TCP and the unix socket have threads, connections and budgets of their own, so that
no client on the network can shut out the command line, the remediator or the tuner.
"""

import asyncio
import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from gpuwatch.http.connection import Acceptor
from gpuwatch.http.listen import listen_tcp, listen_unix
from gpuwatch.http.message import Handler, Request, Response, text
from gpuwatch.http.service import RequestCounts, ServerLimits, Service

if TYPE_CHECKING:
    from gpuwatch.http.web_guard import WebGuard

__all__ = ["Handler", "HttpServer", "HttpStats", "Request", "Response", "ServerLimits", "text"]

_STOP_SECONDS = 0.5

Key = TypeVar("Key", int, str)


class HttpStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the start, for the agent's own metrics."""

    requests: Mapping[int, int]
    """Responses by status code."""
    rejected: Mapping[str, int]
    """Refusals by reason; every reason is present from the start, at 0."""
    handler_errors: int
    """Pages that raised; each is logged with its traceback."""
    open_connections: int
    reload_failures: int
    """Changes of the web configuration or its certificates that could not be applied."""


class _ListenerThread(threading.Thread):
    """Serves what connects to one listener on an event loop of its own, until `close`."""

    def __init__(self, name: str, listener: socket.socket, service: Service) -> None:
        super().__init__(name=name, daemon=True)
        self.service, self.acceptor = service, Acceptor(listener, service)
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()

    def run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    def close(self) -> None:
        """Request that every connection be closed; returns at once."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: already stopped
            self._loop.call_soon_threadsafe(self._closing.set)

    async def _serve(self) -> None:
        accepting = asyncio.create_task(self.acceptor.run())
        await self._closing.wait()
        accepting.cancel()
        await asyncio.wait((accepting,))


class HttpServer:
    """Serve `routes` (path -> handler) on `listen` (`ADDR:PORT`) and on a unix socket, either or both.

    `web_config` (Prometheus exporter-toolkit file), `without_users` and `hosts` (see `Service`) guard TCP only; the
    unix socket is guarded by its mode.
    """

    def __init__(
        self,
        routes: Mapping[str, Handler],
        *,
        listen: str | None = None,
        socket_path: Path | None = None,
        web_config: Path | None = None,
        without_users: Mapping[str, Response] = MappingProxyType({}),
        hosts: tuple[str, ...] = (),
        limits: ServerLimits | None = None,
    ) -> None:
        self._routes, self._limits = routes, limits or ServerLimits()
        self._without_users, self._hosts = without_users, hosts
        self._listen, self._socket_path, self._web_config = listen, socket_path, web_config
        self._guard: WebGuard | None = None
        self._listeners: list[_ListenerThread] = []
        self._socket_inode: tuple[int, int] | None = None
        self.port: int | None = None
        """The TCP port in use, known once started; None without TCP."""

    def start(self) -> None:
        """Bind, then serve from daemon threads.

        Raises UsageError when an address, the socket path or the web configuration cannot be used.
        """
        made: list[tuple[str, socket.socket, Service]] = []
        with contextlib.ExitStack() as bound:
            if self._web_config is not None:
                from gpuwatch.http.web_guard import WebGuard

                self._guard = WebGuard(self._web_config)
            if self._listen is not None:
                listener = bound.enter_context(listen_tcp(self._listen))
                self.port = listener.getsockname()[1]
                service = self._service(guard=self._guard, without_users=self._without_users, hosts=self._hosts)
                made.append(("http", listener, service))
            if self._socket_path is not None:
                listener = bound.enter_context(listen_unix(self._socket_path))
                self._socket_inode = _inode(self._socket_path)
                made.append(("http-unix", listener, self._service()))
            bound.pop_all()
        self._listeners = [_ListenerThread(*each) for each in made]
        for thread in self._listeners:
            thread.start()

    def stop(self) -> None:
        """Close every connection and remove the unix socket; returns within half a second."""
        until = time.monotonic() + _STOP_SECONDS
        for thread in self._listeners:
            thread.close()
        for thread in self._listeners:
            if thread.is_alive():  # False if Ctrl-C came before its start
                thread.join(max(0.0, until - time.monotonic()))
        if self._listeners and self._socket_path is not None and _inode(self._socket_path) == self._socket_inode:
            self._socket_path.unlink(missing_ok=True)

    def stats(self) -> HttpStats:
        """Return the counts so far; any thread may ask."""
        tallies = [thread.service.tally for thread in self._listeners] or [RequestCounts()]
        return HttpStats(
            requests=_summed(tally.requests for tally in tallies),
            rejected=_summed(tally.rejected for tally in tallies),
            handler_errors=sum(tally.handler_errors for tally in tallies),
            open_connections=sum(thread.acceptor.open_connections for thread in self._listeners),
            reload_failures=self._guard.reload_failures if self._guard else 0,
        )

    def _service(self, **protection: Any) -> Service:
        return Service(routes=self._routes, limits=self._limits, tally=RequestCounts(), **protection)


def _summed(counts: Iterable[Counter[Key]]) -> dict[Key, int]:
    """The sum of several counts; zeros stay, so that each series exists before its first event."""
    total: Counter[Key] = Counter()
    for count in counts:
        total.update(count.copy())
    return dict(total)


def _inode(path: Path) -> tuple[int, int] | None:
    """Return device and inode, which differ for a file that has replaced our socket; None: it cannot be read."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
