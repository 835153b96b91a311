"""One gRPC call with an empty request, on a connection of its own to a unix socket: HTTP/2 as far as that needs it.

The kubelet is asked every few seconds and nothing else speaks gRPC; the package grpc would take 13 MiB of an agent for
it. A connection for each call has no state that a kubelet's restart could make stale.
"""

import socket
import struct
import time
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from urllib.parse import unquote

from gpuwatch.workloads.wire import varint

STATUS_NAMES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
TOO_LARGE = "the answer is larger than max"

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED_OR_PRIORITY = 0x1, 0x1, 0x4, 0x28
STREAM, FRAME_HEAD = 1, struct.Struct(">HBBBI")
MAX_FRAME, MAX_WINDOW, FIRST_WINDOW = 1 << 14, (1 << 31) - 1, (1 << 16) - 1
EMPTY_REQUEST = bytes(5)  # not compressed, no bytes
SETTINGS_SENT = {1: 0, 2: 0, 4: MAX_WINDOW}
"""No dynamic table, so that a header is read without those before it; no push; answers are never held back."""

HUFFMAN_BY_LENGTH = {
    5: "012aceiost",
    6: " %-./3456789=A_bdfghlmnpru",
    7: ":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: "&*,;XZ",
    10: '!"()?',
    11: "'+|",
    12: "#>",
    13: "\0$@[]~",
    14: "^}",
    15: "<`{",
}
"""Characters of HPACK's code (RFC 7541, appendix B) in its order: the code is canonical. A status has no others."""


class GrpcError(Exception):
    """The call failed: the status by its name, and what the server or the connection said."""

    def __init__(self, status: str, details: str) -> None:
        super().__init__(f"{status}: {details or 'no details'}")
        self.status, self.details = status, details


def call(path: Path, method: str, *, deadline: float, max_bytes: int) -> bytes:
    """What `/SERVICE/METHOD` answers to an empty message within `deadline` seconds.

    Raises:
        GrpcError: it does not, or with more than `max_bytes`.
    """
    until = time.monotonic() + deadline
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(deadline)
            connection.connect(str(path))
            connection.sendall(_request(method, deadline))
            return answer(connection, until, max_bytes)
    except TimeoutError as error:
        raise GrpcError("DEADLINE_EXCEEDED", f"no answer within {deadline:g} s") from error
    except OSError as error:
        raise GrpcError("UNAVAILABLE", error.strerror or str(error)) from error


def answer(connection: socket.socket, until: float, max_bytes: int) -> bytes:
    """The message that a server sends on the first stream, before this monotonic time. Raises OSError besides."""
    try:
        with connection.makefile("rb") as received:
            return _Exchange(connection, received, until, max_bytes).run()
    except ValueError as error:
        raise GrpcError("UNAVAILABLE", f"this is not HTTP/2: {error}") from error


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return FRAME_HEAD.pack(len(payload) >> 8, len(payload) & 0xFF, kind, flags, stream) + payload


def _request(method: str, deadline: float) -> bytes:
    """All that is sent before an answer."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": "localhost",
        "te": "trailers",
        "content-type": "application/grpc",
        "grpc-timeout": f"{deadline * 1000:.0f}m",
    }
    texts = (text.encode() for header in headers.items() for text in header)
    plain = [bytes((len(text),)) + text for text in texts]
    block = b"".join(b"\0" + name + value for name, value in zip(plain[::2], plain[1::2], strict=True))
    settings = b"".join(name.to_bytes(2) + value.to_bytes(4) for name, value in SETTINGS_SENT.items())
    return b"".join(
        (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            _frame(SETTINGS, 0, 0, settings),
            _frame(WINDOW_UPDATE, 0, 0, (MAX_WINDOW - FIRST_WINDOW).to_bytes(4)),
            _frame(HEADERS, END_HEADERS, STREAM, block),
            _frame(DATA, END_STREAM, STREAM, EMPTY_REQUEST),
        )
    )


class _Exchange:
    """The server's side of the one stream, as it comes in."""

    def __init__(self, connection: socket.socket, received: BufferedReader, until: float, max_bytes: int) -> None:
        self._connection, self._received, self._until, self._max = connection, received, until, max_bytes
        self._block = b""
        self._headers: dict[str, str] = {}
        self._message = bytearray()

    def run(self) -> bytes:
        """The message. Raises GrpcError, OSError, or ValueError for what is no HTTP/2."""
        ended = complete = False
        while not (ended and complete):
            kind, flags, stream, payload = self._next()
            if kind in (SETTINGS, PING) and not flags & ACK:
                self._connection.sendall(_frame(kind, ACK, 0, payload if kind == PING else b""))
            if kind == GOAWAY or (kind == RST_STREAM and stream == STREAM):
                raise GrpcError("UNAVAILABLE", "the server gave the call up")
            if stream != STREAM or kind not in (DATA, HEADERS, CONTINUATION):
                continue
            ended |= kind != CONTINUATION and bool(flags & END_STREAM)
            if kind == DATA:
                self._take(payload)
                continue
            self._block += payload
            complete = bool(flags & END_HEADERS)
            if complete:
                self._headers |= dict(_headers(self._block))
                self._block = b""
        return self._result()

    def _next(self) -> tuple[int, int, int, bytes]:
        """Kind, flags, stream and payload of the next frame."""
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        head = self._received.read(FRAME_HEAD.size)
        if len(head) < FRAME_HEAD.size:
            raise ConnectionError("the connection was closed")
        high, low, kind, flags, stream = FRAME_HEAD.unpack(head)
        length = high << 8 | low
        if length > MAX_FRAME or (kind in (DATA, HEADERS) and flags & PADDED_OR_PRIORITY):
            raise ValueError("a frame that was not asked for")
        payload = self._received.read(length)
        if len(payload) < length:
            raise ConnectionError("the connection was closed")
        return kind, flags, stream & MAX_WINDOW, payload

    def _take(self, payload: bytes) -> None:
        self._message += payload
        if int.from_bytes(self._message[1:5]) > self._max or len(self._message) > self._max + len(EMPTY_REQUEST):
            raise GrpcError("RESOURCE_EXHAUSTED", f"{TOO_LARGE}, {self._max} bytes")

    def _result(self) -> bytes:
        status = self._headers.get("grpc-status", "")
        if status != "0":
            name = STATUS_NAMES[int(status)] if status.isdecimal() and int(status) < len(STATUS_NAMES) else "UNKNOWN"
            raise GrpcError(name, unquote(self._headers.get("grpc-message", "")))
        if self._message[:1] != b"\0" or int.from_bytes(self._message[1:5]) != len(self._message) - 5:
            raise GrpcError("INTERNAL", "the answer is not one message")
        return bytes(self._message[5:])


def _headers(block: bytes) -> Iterator[tuple[str, str]]:
    """Names and values of a header block (RFC 7541) that names its headers itself: all of gRPC's own."""
    at = 0
    while at < len(block):
        first = block[at]
        if first & 0x80:  # one of the static table, with its value
            _, at = _integer(block, at, 7)
        elif first & 0xE0 == 0x20:  # the size of the dynamic table
            _, at = _integer(block, at, 5)
        else:
            index, at = _integer(block, at, 6 if first & 0x40 else 4)
            name, at = ("", at) if index else _string(block, at)
            value, at = _string(block, at)
            yield name, value


def _integer(block: bytes, at: int, bits: int) -> tuple[int, int]:
    most = (1 << bits) - 1
    value = block[at] & most
    if value < most:
        return value, at + 1
    rest, at = varint(block, at + 1)
    return most + rest, at


def _string(block: bytes, at: int) -> tuple[str, int]:
    if at >= len(block):
        raise ValueError("a header is cut short")
    coded = block[at] & 0x80
    length, at = _integer(block, at, 7)
    data = block[at : at + length]
    if len(data) < length:
        raise ValueError("a header is cut short")
    return (_huffman(data) if coded else data.decode("latin-1")), at + length


def _huffman(data: bytes) -> str:
    """The text; what is left at the end is padding."""
    codes, code, before = dict[str, str](), 0, 0
    for length, characters in HUFFMAN_BY_LENGTH.items():
        code <<= length - before
        before = length
        for character in characters:
            codes[f"{code:0{length}b}"] = character
            code += 1
    text, prefix = "", ""
    for byte in data:
        for bit in f"{byte:08b}":
            prefix += bit
            if prefix in codes:
                text, prefix = text + codes[prefix], ""
    return text
