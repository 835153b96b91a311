"""Requests and responses over one open connection: h11 implements the grammar, this file the limits."""

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Coroutine, Generator
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote

import h11

from gpuwatch.http.message import RETRY_AFTER, Request, Response, text
from gpuwatch.http.service import REJECTIONS, Service, is_own_host

logger = logging.getLogger(__name__)

_READ_BYTES = 16 * 1024
_WRITE_BYTES = 64 * 1024
_AHEAD_SECONDS = 0.01
"""Pause before the answer to a pipelined request: a client that pipelines gets 100 answers a second."""
_FOREIGN_HOST = (
    "this host name is none of this machine's; use an IP address or localhost, or add the name to `agent.hosts`"
)
_LINGER_SECONDS = 0.5
_LINGER_READS = 16
_MAX_QUERY_FIELDS = 100
_METHODS = ("GET", "HEAD")
_ORIGIN = re.compile(r"^https?://[^/?]*/?", re.IGNORECASE)


class Exchange:
    """Answer the requests of one connection until the client leaves, breaks the protocol or exceeds a limit.

    `serve()` raises OSError or TimeoutError when the connection cannot be used any more; the caller closes it.
    """

    def __init__(
        self, service: Service, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, on_loopback: bool = False
    ) -> None:
        self.waiting_since: float | None = time.monotonic()
        """When it began to wait for its client (monotonic seconds); None while it answers."""
        self._service, self._limits, self._tally = service, service.limits, service.tally
        self._reader, self._writer, self._on_loopback = reader, writer, on_loopback
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=service.limits.head_bytes)
        self._bodiless = False

    async def serve(self) -> None:
        """Answer one request after the other."""
        wait = self._limits.head_seconds
        while (request := await self._receive(wait)) is not None:
            self.waiting_since = None
            await self._answer(request)
            self.waiting_since = time.monotonic()
            if self._http.their_state in (h11.SEND_BODY, h11.ERROR):
                await self._linger()
            if {self._http.our_state, self._http.their_state} != {h11.DONE}:
                return
            self._http.start_next_cycle()
            wait = self._limits.idle_seconds
            # without it a client that pipelines occupies the event loop while its requests are buffered
            await asyncio.sleep(_AHEAD_SECONDS if self._http.trailing_data[0] else 0)

    async def _receive(self, wait: float) -> Request | Response | None:
        """Return the next request, the refusal of a bad one, or None when the client has left."""
        self._bodiless = False
        try:
            if not self._http.trailing_data[0]:
                async with asyncio.timeout(wait):
                    self._http.receive_data(await self._reader.read(_READ_BYTES))
            async with asyncio.timeout(self._limits.head_seconds):
                while (event := self._http.next_event()) is h11.NEED_DATA:
                    self._http.receive_data(await self._reader.read(_READ_BYTES))
            if not isinstance(event, h11.Request):
                return None
            self._bodiless = event.method == b"HEAD"
            if {b"content-length", b"transfer-encoding"} <= {name for name, _ in event.headers}:  # RFC 9112, 6.1
                raise ValueError("a request has Content-Length or Transfer-Encoding, not both")
            if not isinstance(self._http.next_event(), h11.EndOfMessage):
                return text(413, "no page here takes a request body")
            return _parse(event)
        except TimeoutError:
            begun = self._http.trailing_data[0]
            return text(408, "the request took too long to arrive") if begun else None
        except h11.RemoteProtocolError as error:
            return text(error.error_status_hint, str(error))
        except ValueError as error:
            return text(400, str(error))

    async def _answer(self, request: Request | Response) -> None:
        if isinstance(request, Response):
            await self._reject(request)
        elif (refusal := await self._refuse(request)) is not None:
            await self._reject(refusal)
        elif (page := await self._page(request)) is not None:
            if not self._make_room(request.path, page.body):
                await self._reject(text(503, "too many such answers are being made at once", RETRY_AFTER))
                return
            self._service.sending[self._writer] = request.path, page.body
            try:
                await self._send(page)
            finally:
                self._service.sending.pop(self._writer, None)

    def _make_room(self, path: str, body: bytes | Generator[bytes]) -> bool:
        """Whether one more body may be sent; those that have taken nothing for longest are cut off for it.

        A refusal instead would let a few clients that read nothing keep all others from a page.
        """
        sending, limits = self._service.sending, self._limits
        if not isinstance(body, bytes):
            return sum(not isinstance(each, bytes) for _, each in sending.values()) < limits.streams
        while True:
            of_page = [writer for writer, (page, _) in sending.items() if page == path]
            bodies = {writer: each for writer, (_, each) in sending.items() if isinstance(each, bytes)}
            large = {writer: each for writer, each in bodies.items() if len(each) > _WRITE_BYTES}
            held = {id(each): len(each) for each in large.values()}
            if len(of_page) >= limits.scrapes:
                slowest = of_page[0]
            elif len(body) > _WRITE_BYTES and sum(held.values()) >= limits.sending_bytes:
                slowest = next(iter(large))
            else:
                return True
            self._tally.rejected["slow_reader"] += 1
            del sending[slowest]
            slowest.transport.abort()

    async def _refuse(self, request: Request) -> Response | None:
        """Return the refusal of `request`, or None; credentials are checked before a status shows which pages exist."""
        guard, routes = self._service.guard, self._service.routes
        if self._on_loopback and not is_own_host(request.headers.get("host", ""), self._service.hosts):
            return text(421, _FOREIGN_HOST)
        if guard is not None:
            refusal = await guard.refresh().refuse(request.headers.get("authorization"))
            if refusal is not None:
                return refusal
        if request.method not in _METHODS:
            return text(405, "only GET and HEAD are served", (("Allow", ", ".join(_METHODS)),))
        if request.path not in routes:
            return text(404, "no such page; / lists what is here")
        is_open = request.path not in self._service.without_users or (guard is not None and guard.identifies)
        return None if is_open else self._service.without_users[request.path]

    async def _page(self, request: Request) -> Response | None:
        """The route's response, awaited where it is a coroutine; None when the client has left meanwhile."""
        try:
            page = self._service.routes[request.path](request)
            return page if isinstance(page, Response) else await self._wait_for(page, request.path)
        except Exception:
            self._tally.handler_errors += 1
            logger.exception("the page %s failed; other pages are served on", request.path)
            return text(500, "this page failed; the log says why")

    async def _wait_for(self, page: Coroutine[Any, Any, Response], path: str) -> Response | None:
        if self._service.waiting[path] >= self._limits.waiting:
            page.close()
            self._tally.rejected["busy"] += 1
            return text(503, "too many requests wait for this page", RETRY_AFTER)
        self._service.waiting[path] += 1
        making, client = asyncio.create_task(page), asyncio.create_task(self._await_client())
        try:
            await asyncio.wait((making, client), return_when=asyncio.FIRST_COMPLETED)
            if client.done() and client.exception() is not None:
                return None
            if client.done() and not client.result():
                done, _ = await asyncio.wait((making,), timeout=self._limits.half_closed_seconds)
                return await making if done else None
            return await making
        finally:
            self._service.waiting[path] -= 1
            for task in (making, client):
                task.cancel()
            await asyncio.wait((making, client))

    async def _await_client(self) -> bool:
        """Wait, while the page is made, until the client sends a further request (True) or ends its side (False)."""
        data = await self._reader.read(_READ_BYTES)
        if data:
            self._http.receive_data(data)
        return bool(data)

    async def _reject(self, refusal: Response) -> None:
        if refusal.status in REJECTIONS:
            self._tally.rejected[REJECTIONS[refusal.status]] += 1
        await self._send(refusal)

    async def _send(self, response: Response) -> None:
        self._tally.requests[response.status] += 1
        body = b"" if self._bodiless else response.body
        reason = HTTPStatus(response.status).phrase
        headers = [
            ("Content-Type", response.content_type),
            ("Date", time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())),
            *response.headers,
        ]
        if isinstance(response.body, bytes):
            headers.append(("Content-Length", str(len(response.body))))
        if self._http.their_state is not h11.DONE:
            headers.append(("Connection", "close"))
        if self._service.guard is not None:
            headers.extend(self._service.guard.headers)
        head = self._http.send(h11.Response(status_code=response.status, reason=reason, headers=headers))
        if not isinstance(body, bytes):
            await self._stream(head or b"", body)
            return
        if body:
            self._http.send_with_data_passthrough(h11.Data(data=body))
        end = self._http.send(h11.EndOfMessage())
        await self._write(
            (head or b"") + body[:_WRITE_BYTES] + (b"" if body else end or b""), memoryview(body)[_WRITE_BYTES:]
        )

    async def _write(self, first: bytes, rest: memoryview) -> None:
        """Write one piece at a time, so that a slow reader costs a buffer of one piece, not a second body."""
        sending = self._service.sending
        try:
            async with asyncio.timeout(self._limits.write_seconds):
                self._writer.write(first)
                await self._writer.drain()
                for start in range(0, len(rest), _WRITE_BYTES):
                    if self._writer in sending:  # the client has taken a piece: it is the last to be cut off
                        sending[self._writer] = sending.pop(self._writer)
                    self._writer.write(rest[start : start + _WRITE_BYTES])
                    await self._writer.drain()
        except TimeoutError:
            self._tally.rejected["slow_reader"] += 1
            raise

    async def _stream(self, head: bytes, pieces: Generator[bytes]) -> None:
        """Send a body piece by piece; another thread makes the pieces, as they may have to wait for a disk."""
        try:
            async with asyncio.timeout(self._limits.stream_seconds):
                self._writer.write(head)
                while piece := await asyncio.to_thread(next, pieces, b""):
                    self._writer.write(self._http.send(h11.Data(data=piece)) or b"")
                    await self._writer.drain()
                self._writer.write(self._http.send(h11.EndOfMessage()) or b"")
                await self._writer.drain()
        except TimeoutError:
            self._tally.rejected["slow_reader"] += 1
            raise
        finally:
            with contextlib.suppress(ValueError):  # another thread is still making a piece: it is the last
                pieces.close()

    async def _linger(self) -> None:
        """Read a little more before closing: with bytes unread the kernel resets, and the client may lose the reply."""
        if self._writer.can_write_eof():
            self._writer.write_eof()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_SECONDS):
                for _ in range(_LINGER_READS):
                    if not await self._reader.read(_READ_BYTES):
                        return


def _parse(event: h11.Request) -> Request:
    """Return the request for a route; raises ValueError on a query with too many fields."""
    target = event.target.decode("ascii", "replace")
    # the absolute form, as sent to proxies (RFC 9112, 3.2.2); any other that is no path, such as *, is no page
    path, _, query_string = _ORIGIN.sub("/", target).partition("?")
    query: dict[str, tuple[str, ...]] = {}
    for name, value in parse_qsl(query_string, keep_blank_values=True, max_num_fields=_MAX_QUERY_FIELDS):
        query[name] = (*query.get(name, ()), value)
    headers: dict[str, str] = {}
    for raw_name, raw_value in event.headers:
        header, field = raw_name.decode("ascii"), raw_value.decode("latin-1")
        headers[header] = f"{headers[header]}, {field}" if header in headers else field
    return Request(method=event.method.decode("ascii"), path=unquote(path), query=query, headers=headers)
