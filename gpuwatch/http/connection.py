"""Accepted sockets, from their first byte to their close.

A socket that sends nothing costs a file descriptor and an entry in a table: the task, the parser, the buffers and the
TLS layer (256 KiB in asyncio) are made when its first byte arrives. A flood of connections costs an accept and a close
each.
"""

import asyncio
import contextlib
import ipaddress
import logging
import socket
import time

from gpuwatch.http.exchange import Exchange
from gpuwatch.http.service import Service

logger = logging.getLogger(__name__)

_BUFFER_BYTES = 16 * 1024


class Connection:
    """Serve one non-blocking socket that has something to read; the caller closes it when `run()` is over."""

    def __init__(self, sock: socket.socket, service: Service) -> None:
        self._socket, self._service = sock, service
        self._began = time.monotonic()
        self._exchange: Exchange | None = None

    @property
    def waiting_since(self) -> float | None:
        """When it began to wait for its client (monotonic seconds); None while it answers."""
        return self._exchange.waiting_since if self._exchange else self._began

    async def run(self) -> None:
        """Serve until either side ends the connection; a failure ends this connection alone."""
        try:
            reader, writer = await self._open()
            try:
                # a loopback address of ours: the client runs on this machine. A unix socket has no address
                name = self._socket.getsockname()
                address = name[0].removeprefix("::ffff:").partition("%")[0] if isinstance(name, tuple) else ""
                on_loopback = bool(address) and ipaddress.ip_address(address).is_loopback
                self._exchange = Exchange(self._service, reader, writer, on_loopback=on_loopback)
                await self._exchange.serve()
                writer.close()
                async with asyncio.timeout(self._service.limits.write_seconds):
                    await writer.wait_closed()
            finally:
                writer.transport.abort()
                # frames of an error refer to the streams that keep it: until a collection this cycle keeps the buffers
                try:
                    if reader.exception() is not None:
                        await writer.wait_closed()
                except OSError as lost:
                    lost.with_traceback(None)
        except (OSError, TimeoutError) as error:
            logger.debug("connection closed: %r", error)
            error.with_traceback(None)
        except Exception:
            self._service.tally.handler_errors += 1
            logger.exception("a connection failed; others are served on")

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
        if guard is not None and not guard.allows(transport.get_extra_info("peercert")):
            self._service.tally.rejected["tls_handshake"] += 1
            transport.abort()
            raise ConnectionAbortedError("the client's certificate bears no allowed name")
        transport.set_write_buffer_limits(high=1)  # drain() means sent; 0 would make asyncio's TLS wait for ever
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


_PAUSE_SECONDS = 0.05
_ACCEPTS = 16
"""Connections accepted in a row; then the event loop serves the open ones."""
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


class Acceptor:
    """Serve every client of `listener`, which it owns, until `run()` is cancelled."""

    def __init__(self, listener: socket.socket, service: Service) -> None:
        listener.setblocking(False)
        self._listener, self._service = listener, service
        self._silent: dict[socket.socket, float] = {}
        """Accepted sockets without a byte yet, with the time of the accept (monotonic seconds); the oldest first."""
        self._connections: dict[asyncio.Task[None], Connection] = {}

    @property
    def open_connections(self) -> int:
        """Connections accepted and not yet closed."""
        return len(self._silent) + len(self._connections)

    async def run(self) -> None:
        """Accept until cancelled; then close every connection at once."""
        loop, waiting = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._listener, waiting.set)
        sweeper = asyncio.create_task(self._close_silent())
        try:
            while True:
                await waiting.wait()
                waiting.clear()
                try:
                    await self._accept()
                except Exception:
                    self._service.tally.handler_errors += 1
                    logger.exception("connections could not be accepted; trying again")
                    await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            loop.remove_reader(self._listener)
            self._listener.close()
            tasks = [sweeper, *self._connections]
            for client in tuple(self._silent):
                self._drop(client).close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self) -> None:
        limits, guard = self._service.limits, self._service.guard
        is_encrypted = guard is not None and guard.context is not None
        most = min(limits.connections, limits.tls_connections) if is_encrypted else limits.connections
        for _ in range(_ACCEPTS):
            try:
                client, _ = self._listener.accept()
            except (BlockingIOError, ConnectionAbortedError):  # the client has left already
                return
            except OSError as error:  # no file descriptor is left: close a connection, and wait a little
                logger.debug("cannot accept a connection: %s", error)
                self._service.tally.rejected["connections"] += 1
                self._evict()
                await asyncio.sleep(_PAUSE_SECONDS)
                return
            client.setblocking(False)
            if self.open_connections < most or self._evict():
                self._silent[client] = time.monotonic()
                asyncio.get_running_loop().add_reader(client, self._admit, client)
                continue
            self._service.tally.rejected["connections"] += 1
            with client:
                try:
                    if not is_encrypted:
                        client.send(_FULL)
                except OSError as error:
                    logger.debug("a client left before it was turned away: %s", error)

    def _admit(self, client: socket.socket) -> None:
        """Serve a client that has sent its first byte, or has left without one."""
        self._drop(client)
        with contextlib.suppress(OSError):
            if client.recv(1, socket.MSG_PEEK):
                connection = Connection(client, self._service)
                task = asyncio.create_task(connection.run())
                self._connections[task] = connection

                def close(task: asyncio.Task[None]) -> None:
                    self._connections.pop(task, None)
                    client.close()  # here and not in the task: one cancelled before its first step never runs

                task.add_done_callback(close)
                return
        client.close()

    def _drop(self, client: socket.socket) -> socket.socket:
        asyncio.get_running_loop().remove_reader(client)
        del self._silent[client]
        return client

    async def _close_silent(self) -> None:
        """Close clients that have been silent for too long."""
        timeout = self._service.limits.head_seconds
        while True:
            now = time.monotonic()
            for client, since in tuple(self._silent.items()):
                if now - since < timeout:
                    break
                self._drop(client).close()
            oldest = next(iter(self._silent.values()), now)
            await asyncio.sleep(max(0.01, oldest + timeout - now))

    def _evict(self) -> bool:
        """Close the connection that has waited longest for its client; False when all are being answered."""
        silent, silent_since = next(iter(self._silent.items()), (None, float("inf")))
        waiting = (
            (since, task) for task, each in self._connections.items() if (since := each.waiting_since) is not None
        )
        since, task = min(waiting, key=lambda pair: pair[0], default=(float("inf"), None))
        if silent is not None and silent_since <= since:
            self._drop(silent).close()
        elif task is not None:
            del self._connections[task]
            task.cancel()
        else:
            return False
        self._service.tally.rejected["evicted"] += 1
        return True
