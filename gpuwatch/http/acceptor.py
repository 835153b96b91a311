"""Accept connections on one listening socket, and keep their number within its bound."""

import asyncio
import logging
import socket

from gpuwatch.http.connection import Connection, readable
from gpuwatch.http.service import Service

logger = logging.getLogger(__name__)

_PAUSE_SECONDS = 0.05
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Acceptor:
    """Serve everybody who connects to `listener`, which it owns, until `run()` is cancelled."""

    def __init__(self, listener: socket.socket, service: Service) -> None:
        listener.setblocking(False)
        self._listener, self._service = listener, service
        self._connections: dict[asyncio.Task[None], Connection] = {}

    @property
    def open_connections(self) -> int:
        """Connections accepted and not yet closed."""
        return len(self._connections)

    @property
    def _encrypted(self) -> bool:
        return self._service.guard is not None and self._service.guard.context is not None

    @property
    def _bound(self) -> int:
        limits = self._service.limits
        return min(limits.connections, limits.tls_connections) if self._encrypted else limits.connections

    async def run(self) -> None:
        """Accept until cancelled; then close every connection at once."""
        try:
            while True:
                await self._accept()
        finally:
            self._listener.close()
            tasks = list(self._connections)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self) -> None:
        await readable(self._listener)
        try:
            client, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):  # the client has left already
            return
        except OSError as error:  # no file descriptor is left: room has to be made, and time given to it
            logger.debug("cannot accept a connection: %s", error)
            self._service.tally.rejected["connections"] += 1
            self._evict()
            await asyncio.sleep(_PAUSE_SECONDS)
            return
        client.setblocking(False)
        if len(self._connections) < self._bound or self._evict():
            self._admit(client)
        else:
            self._turn_away(client)

    def _admit(self, client: socket.socket) -> None:
        connection = Connection(client, self._service)
        task = asyncio.create_task(connection.run())
        self._connections[task] = connection

        def close(task: asyncio.Task[None]) -> None:
            self._connections.pop(task, None)
            client.close()  # here and not in the task: one cancelled before its first step never runs

        task.add_done_callback(close)

    def _evict(self) -> bool:
        """Close the connection that has kept us waiting longest; False when all are being answered."""
        waiting = [
            (since, task) for task, each in self._connections.items() if (since := each.waiting_since) is not None
        ]
        if not waiting:
            return False
        _, task = min(waiting, key=lambda pair: pair[0])
        del self._connections[task]
        task.cancel()
        self._service.tally.rejected["evicted"] += 1
        return True

    def _turn_away(self, client: socket.socket) -> None:
        self._service.tally.rejected["connections"] += 1
        with client:
            if not self._encrypted:
                try:
                    client.send(_FULL)
                except OSError as error:
                    logger.debug("a client left before it was turned away: %s", error)
