"""One gRPC call with an empty request, on a connection of its own to a unix socket.

gpuwatch queries the kubelet every few seconds and uses gRPC for nothing else; the package grpc would cost the agent
13 MiB. h2 implements HTTP/2 and bounds headers and frames; this file implements gRPC's few rules, the deadline and the
size. A connection for each call has no state that a kubelet's restart could make stale.
"""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote_to_bytes

from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

STATUS_NAMES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS"),
    *("PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED"),
    *("INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED"),
)
TOO_LARGE = "the answer is larger than max"

STREAM, RECEIVE_BYTES = 1, 1 << 16
MESSAGE_HEAD = 5  # whether the message is compressed, and its length
MAX_DETAILS = 4096


class GrpcError(Exception):
    """The call failed: the status by its name, and the text from the server or the connection."""

    def __init__(self, status: str, details: str) -> None:
        super().__init__(f"{status}: {details or 'no details'}")
        self.status, self.details = status, details


def call(path: Path, method: str, *, deadline: float, max_bytes: int) -> bytes:
    """What `/SERVICE/METHOD` answers to an empty message within `deadline` seconds.

    Raises:
        GrpcError: no valid answer came in time, or one of more than `max_bytes`.
    """
    until = time.monotonic() + deadline
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(deadline)
            connection.connect(str(path))
            return answer(connection, method, until=until, max_bytes=max_bytes)
    except TimeoutError as error:
        raise GrpcError("DEADLINE_EXCEEDED", f"no answer within {deadline:g} s") from error
    except OSError as error:
        raise GrpcError("UNAVAILABLE", error.strerror or str(error)) from error


def answer(connection: socket.socket, method: str, *, until: float, max_bytes: int) -> bytes:
    """What the server of an open connection answers before this monotonic time. Raises GrpcError and OSError."""
    http = H2Connection()
    http.local_settings = Settings(
        initial_values={
            SettingCodes.ENABLE_PUSH: 0,
            SettingCodes.MAX_HEADER_LIST_SIZE: http.DEFAULT_MAX_HEADER_LIST_SIZE,
        }
    )
    headers = (
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("grpc-timeout", f"{_left(until) * 1000:.0f}m"),
    )
    try:
        http.initiate_connection()
        http.send_headers(STREAM, headers)
        http.send_data(STREAM, bytes(MESSAGE_HEAD), end_stream=True)  # not compressed, no bytes
        return _response(http, _events(http, connection, until), max_bytes)
    except ProtocolError as error:
        raise GrpcError("UNAVAILABLE", f"this is not HTTP/2: {type(error).__name__}: {error}") from error


def _events(http: H2Connection, connection: socket.socket, until: float) -> Iterator[Event]:
    while True:
        connection.settimeout(_left(until))
        connection.sendall(http.data_to_send())
        connection.settimeout(_left(until))
        received = connection.recv(RECEIVE_BYTES)
        if not received:
            raise ConnectionError("the connection was closed")
        yield from http.receive_data(received)


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _response(http: H2Connection, events: Iterator[Event], max_bytes: int) -> bytes:
    """The message, once the server has ended the stream."""
    headers: dict[bytes, bytes] = {}
    message = bytearray()
    for event in events:
        if isinstance(event, ResponseReceived | TrailersReceived):
            headers.update(event.headers)
        elif isinstance(event, DataReceived):
            message += event.data
            if max(int.from_bytes(message[1:MESSAGE_HEAD]), len(message) - MESSAGE_HEAD) > max_bytes:
                raise GrpcError("RESOURCE_EXHAUSTED", f"{TOO_LARGE}, {max_bytes} bytes")
            http.acknowledge_received_data(event.flow_controlled_length, STREAM)
        elif isinstance(event, StreamReset | ConnectionTerminated):
            raise GrpcError("UNAVAILABLE", f"the server gave the call up with HTTP/2 error {event.error_code}")
        elif isinstance(event, StreamEnded):
            break
    status = headers.get(b"grpc-status", b"").decode("latin-1")
    if status != "0":
        name = next((each for number, each in enumerate(STATUS_NAMES) if status == str(number)), "UNKNOWN")
        details = unquote_to_bytes(headers.get(b"grpc-message", b""))
        raise GrpcError(name, details[:MAX_DETAILS].decode(errors="replace"))
    if message[:1] != b"\0" or int.from_bytes(message[1:MESSAGE_HEAD]) != len(message) - MESSAGE_HEAD:
        raise GrpcError("INTERNAL", "the answer is not one message, or compressed")
    return bytes(message[MESSAGE_HEAD:])
