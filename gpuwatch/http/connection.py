"""One accepted socket, from its first byte to its close.

A socket that says nothing costs a file descriptor and a small task: the parser, the buffers and the TLS
layer (256 KiB in asyncio) are made when its first byte arrives.
"""

import asyncio
import logging
import socket
import time

from gpuwatch.http.exchange import Exchange, Service

logger = logging.getLogger(__name__)

_BUFFER_BYTES = 16 * 1024


class Connection:
    """Serve one non-blocking socket, which the caller closes when `run()` is over."""

    def __init__(self, sock: socket.socket, service: Service) -> None:
        self._socket, self._service = sock, service
        self._accepted = time.monotonic()
        self._exchange: Exchange | None = None

    @property
    def waiting_since(self) -> float | None:
        """When it began to wait for its client (monotonic seconds); None while it answers."""
        return self._exchange.waiting_since if self._exchange else self._accepted

    async def run(self) -> None:
        """Serve until either side has had enough; a failure here is this connection's alone."""
        try:
            async with asyncio.timeout(self._service.limits.head_seconds):
                await readable(self._socket)
            await self._serve()
        except (OSError, TimeoutError) as error:
            logger.debug("connection closed: %r", error)
        except Exception:
            self._service.tally.handler_errors += 1
            logger.exception("a connection failed; others are served on")

    async def _serve(self) -> None:
        limits = self._service.limits
        reader, writer = await self._open()
        try:
            self._exchange = Exchange(self._service, reader, writer)
            await self._exchange.serve()
            writer.close()
            async with asyncio.timeout(limits.write_seconds):
                await writer.wait_closed()
        finally:
            writer.transport.abort()

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Put the streams, and TLS where it is configured, on the socket."""
        guard, loop = self._service.guard, asyncio.get_running_loop()
        context = guard.refresh().context if guard else None
        deadline = self._service.limits.handshake_seconds if context else None
        reader = asyncio.StreamReader(limit=_BUFFER_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                self._socket,
                ssl=context,
                ssl_handshake_timeout=deadline,
                ssl_shutdown_timeout=deadline,
            )
        except OSError:
            self._service.tally.rejected["tls_handshake"] += 1
            raise
        if guard is not None and not guard.knows(transport.get_extra_info("peercert")):
            self._service.tally.rejected["tls_handshake"] += 1
            transport.abort()
            raise ConnectionAbortedError("the client's certificate bears no allowed name")
        transport.set_write_buffer_limits(high=1)  # drain() means sent; 0 would make asyncio's TLS wait for ever
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def readable(sock: socket.socket) -> None:
    """Wait until `sock` can be read without blocking; nothing is read, so nothing is lost when it is cancelled."""
    loop, event = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sock, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_reader(sock)


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
