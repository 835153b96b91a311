"""One client's connection: HTTP/1.1 in, the cluster's answers out, and the ways in which they fail to arrive."""

import asyncio
import socket
import struct
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote

import h11

from gpuwatch.sim.kubeapi.message import Request, Response, reply
from gpuwatch.sim.kubeapi.status import ApiError
from gpuwatch.sim.kubeapi.watch import Watch

_BODY_BYTES = 3 * 1024 * 1024  # as the real server's limit
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Connection(asyncio.Protocol):
    """Requests one after the other, on the event loop's thread."""

    def __init__(
        self, handle: Callable[[Request], Response], drop: Callable[[Watch], None], open_ones: "set[Connection]"
    ) -> None:
        self._handle, self._drop, self._open_ones = handle, drop, open_ones
        self._http = h11.Connection(h11.SERVER)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._head: h11.Request | None = None
        self._body = bytearray()
        self._watch: Watch | None = None
        self._pumping = False
        self._full = False
        self._late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101
        self._transport = transport
        self._open_ones.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        """End whatever was under way."""
        self._open_ones.discard(self)
        if self._late is not None:
            self._late.cancel()
        if self._watch is not None:
            self._watch.wake = None
            self._drop(self._watch)

    def cut(self) -> None:
        """Break the connection as a crashed or unreachable server does: with a reset."""
        plain = self._transport.get_extra_info("socket")
        if plain is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._transport.abort()

    def pause_writing(self) -> None:
        """Let events pile up in the watch, which has a bound, instead of in the socket."""
        self._full = True

    def resume_writing(self) -> None:
        """Go on."""
        self._full = False
        self._pump()

    def data_received(self, data: bytes) -> None:
        """Take bytes in, answer what is complete."""
        self._http.receive_data(data)
        self._advance()

    def eof_received(self) -> bool:
        """Close: no client waits for an answer after it has said that it is done."""
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
            self._respond(self._handle(_request(self._head, bytes(self._body))))

    def _respond(self, response: Response) -> None:
        self._watch = response.watch
        if response.fate == "reset":
            self.cut()
        elif response.fate == "answered" and response.delay:
            self._late = self._loop.call_later(response.delay, self._answer_late, response)
        elif response.fate == "answered":
            self._answer(response)

    def _answer_late(self, response: Response) -> None:
        self._answer(response)
        self._advance()

    def _answer(self, response: Response) -> None:
        headers = [("Content-Type", response.content_type), ("Cache-Control", "no-cache, private"), *response.headers]
        if response.watch is not None:
            self._send(_head(200, [*headers, ("Transfer-Encoding", "chunked")]))
            response.watch.wake = self._wake
            self._pump()
            return
        headers.append(("Content-Length", str(len(response.body))))
        head = self._http.send(_head(response.status, headers)) or b""
        body = self._http.send(h11.Data(data=response.body)) or b""
        self._transport.write(head + body)
        self._finish()

    def _wake(self) -> None:
        """Called by whichever thread writes to the store."""
        if not self._pumping:
            self._pumping = True
            self._loop.call_soon_threadsafe(self._pump)

    def _pump(self) -> None:
        self._pumping = False
        watch = self._watch
        if watch is None or self._full or self._transport.is_closing():
            return
        over = watch.closed  # read before taking: nothing is let in after it
        if lines := watch.take():
            self._send(h11.Data(data=lines))
        if over:
            self._watch = None
            self._finish()
            self._advance()

    def _finish(self) -> None:
        self._send(h11.EndOfMessage())
        if self._http.our_state is h11.MUST_CLOSE:
            self._transport.close()
        elif self._http.their_state is h11.DONE:
            self._http.start_next_cycle()

    def _send(self, event: h11.Event) -> None:
        self._transport.write(self._http.send(event) or b"")


def _head(status: int, headers: list[tuple[str, str]]) -> h11.Response:
    return h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase)


def _request(head: h11.Request, body: bytes) -> Request:
    path, _, query = head.target.decode("ascii", "replace").partition("?")
    return Request(
        method=head.method.decode(),
        path=unquote(path),
        query=dict(parse_qsl(query, keep_blank_values=True)),
        headers={name.decode(): value.decode("latin-1") for name, value in head.headers},
        body=body,
    )
