"""One accepted socket, from its first byte to its close.

A socket that says nothing costs a file descriptor and a small task: the parser, the buffers and the TLS
layer (256 KiB in asyncio) are made when its first byte arrives.
"""

import asyncio
import logging
import socket
import time

from gpuwatch.http.exchange import Exchange
from gpuwatch.http.service import Service

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
