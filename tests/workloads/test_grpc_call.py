"""What servers answer is read from the bytes that real ones sent, and from ones that go wrong in each place."""

import itertools
import socket
import struct
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from gpuwatch.workloads.grpc_call import GrpcError, answer, call
from gpuwatch.workloads.wire import MOST_FIELDS, decode, varint
from tests.cpu_clock import unhindered
from tests.fuzz.targets import CORPUS

RESET, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 3, 4, 5, 6, 7, 8, 9
LIMIT = 100


def answered(sent: bytes, *, seconds: float = 5.0, ends: bool = True) -> bytes:
    """What the client makes of it."""
    ours, server = socket.socketpair()
    with ours, server:
        server.sendall(sent)
        if ends:
            server.shutdown(socket.SHUT_WR)
        return answer(ours, "/v1.Lister/List", until=time.monotonic() + seconds, max_bytes=LIMIT)


def frame(kind: int, flags: int, payload: bytes = b"", stream: int = 1) -> bytes:
    return len(payload).to_bytes(3) + struct.pack(">BBI", kind, flags, stream) + payload


def field(name: bytes, value: bytes) -> bytes:
    return b"\0" + b"".join(bytes((len(text),)) + text for text in (name, value))


OPENED = frame(1, 4, b"\x88" + field(b"content-type", b"application/grpc"))
"""The first headers of an answer, `:status: 200`."""


def trailers(status: bytes, flags: int = 5) -> bytes:
    return frame(1, flags, field(b"grpc-status", status))


def data(message: bytes, *, length: int | None = None, coded: int = 0) -> bytes:
    return frame(0, 0, bytes((coded,)) + (len(message) if length is None else length).to_bytes(4) + message)


def recorded(name: str) -> bytes:
    return (CORPUS / "grpc" / name).read_bytes()


def test_an_answer_of_grpcs_c_core_is_its_message() -> None:
    assert b"train-0" in answered(recorded("list"))


def test_a_refusal_of_grpc_go_is_read_though_its_headers_are_huffman_coded() -> None:
    with pytest.raises(GrpcError) as caught:
        answered(recorded("gated-by-grpc-go"))
    assert caught.value.status == "UNKNOWN"
    assert caught.value.details.startswith(
        'PodResources API GetAllocatableResources method disabled: 100% {of} [it] "é" '
    )


def test_an_answer_comes_in_pieces_and_headers_continue_in_a_second_frame() -> None:
    message, end = data(b"ab" * 20), trailers(b"0")[9:]
    pieces = frame(0, 0, message[9:20]) + frame(PING, 0, b"pingpong", stream=0) + frame(0, 0, message[20:])
    assert answered(OPENED + pieces + frame(1, 1, end[:5]) + frame(CONTINUATION, 4, end[5:])) == b"ab" * 20


@pytest.mark.parametrize(
    "after",
    [
        frame(RESET, 0, bytes(4)),
        frame(WINDOW_UPDATE, 0, b"\0\0\0\5"),
        frame(GOAWAY, 0, bytes(8), 0),
        frame(PING, 0, bytes(8), 0),
    ],
)
def test_what_a_server_sends_after_an_answer_does_not_matter(after: bytes) -> None:
    assert answered(OPENED + data(b"ab") + trailers(b"0") + after) == b"ab"


def test_an_answer_may_be_padded() -> None:
    padded = data(b"ab")[9:] + bytes(3)
    assert answered(OPENED + frame(0, 8, b"\3" + padded) + trailers(b"0")) == b"ab"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", "closed"),
        (frame(SETTINGS, 0, b"", 0), "closed"),
        (OPENED + data(b"ab")[:-1], "closed"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "closed"),
        (bytes(range(256)) * 10, "UNAVAILABLE: this is not HTTP/2"),
        (frame(PUSH, 4, b"\0\0\0\2\x82"), "UNAVAILABLE: this is not HTTP/2"),
        (frame(GOAWAY, 0, bytes(7) + b"\x0b", 0), "UNAVAILABLE: the server gave the call up with HTTP/2 error 11"),
        (frame(RESET, 0, bytes(3) + b"\x08"), "UNAVAILABLE: the server gave the call up with HTTP/2 error 8"),
        (frame(1, 5, b"\x88\0\x0bgrpc-st"), "UNAVAILABLE"),
        (frame(1, 5, b"\0"), "UNAVAILABLE"),
        (data(b"ab") + trailers(b"0"), "UNAVAILABLE"),
        (OPENED + data(b"", length=LIMIT + 1), "RESOURCE_EXHAUSTED"),
        (OPENED + data(b"a" * (LIMIT + 1), length=1), "RESOURCE_EXHAUSTED"),
        (OPENED + data(b"ab", length=3) + trailers(b"0"), "INTERNAL"),
        (OPENED + data(b"ab", coded=1) + trailers(b"0"), "INTERNAL"),
        (OPENED + data(b"ab") + trailers(b"13"), "INTERNAL"),
        (OPENED + data(b"ab") + trailers(b"99"), "UNKNOWN"),
        (OPENED + data(b"ab") + frame(1, 5), "UNKNOWN"),
        (OPENED + trailers(b"0"), "INTERNAL"),
        (frame(1, 5, b"\x88" + field(b"grpc-status", b"12") + field(b"grpc-message", b"no%20such")), "no such"),
    ],
)
def test_what_is_no_whole_answer_is_an_error(sent: bytes, status: str) -> None:
    with pytest.raises((GrpcError, ConnectionError)) as caught:
        answered(sent)
    assert status in str(caught.value)


def test_a_server_that_says_nothing_more_costs_the_deadline() -> None:
    with pytest.raises(TimeoutError):
        answered(OPENED + data(b"ab"), seconds=0.05, ends=False)


def test_a_status_of_thousands_of_digits_is_unknown() -> None:
    digits = b"\x7f\x81\x3e" + b"1" * 8064  # a length of 127 + 7937
    with pytest.raises(GrpcError, match="UNKNOWN"):
        answered(frame(1, 5, b"\x88\0\x0bgrpc-status" + digits))


def test_what_a_server_says_of_its_refusal_is_cut() -> None:
    long = b"\x7f\x81\x3e" + b"a" * 8064  # a length of 127 + 7937
    with pytest.raises(GrpcError) as caught:
        answered(frame(1, 5, b"\x88" + field(b"grpc-status", b"2") + b"\0\x0cgrpc-message" + long))
    assert caught.value.details == "a" * 4096


class Server:
    """Accepts one connection and sends these pieces for as long as the client takes them."""

    def __init__(self, path: Path, pieces: Iterable[bytes]) -> None:
        self.path, self._pieces, self.sent = path, pieces, 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> "Server":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(timeout=20)
        self._listener.close()
        assert not self._thread.is_alive(), "the client let the connection go"

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        with client:
            try:
                for piece in self._pieces:
                    client.sendall(piece)
                    self.sent += len(piece)
                while client.recv(1 << 16):
                    pass
            except OSError:
                return


BLOCK = b"a" * 16000
ENDLESS = {
    "nothing": ([], "DEADLINE_EXCEEDED"),
    "half a frame": ([OPENED[:12]], "DEADLINE_EXCEEDED"),
    "data": (itertools.chain([OPENED, data(b"", length=LIMIT)], itertools.repeat(frame(0, 0, BLOCK))), "RESOURCE_EXH"),
    "empty data": (itertools.chain([OPENED], itertools.repeat(frame(0, 0))), "DEADLINE_EXCEEDED"),
    "headers in one block": (
        itertools.chain([frame(1, 0, b"\x88")], itertools.repeat(frame(CONTINUATION, 0, BLOCK))),
        "UNAVAILABLE",
    ),
    "a frame that is larger than HTTP/2 allows": (
        itertools.repeat(b"\xff" * 16000),
        ("UNAVAILABLE", "DEADLINE_EXCEEDED"),
    ),
    "interim responses": (itertools.repeat(frame(1, 4, b"\x08\x03103")), "DEADLINE_EXCEEDED"),
    "pings": (itertools.repeat(frame(PING, 0, bytes(8), 0)), "DEADLINE_EXCEEDED"),
    "settings": (itertools.repeat(frame(SETTINGS, 0, b"", 0)), "DEADLINE_EXCEEDED"),
    "a header larger than its code": (
        [frame(1, 4, b"\x88" + b"\x40\x01a\x7f\x81\x7c" + b"b" * 16000 + b"\xbe" * 300)],
        "UNAVAILABLE",
    ),
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_a_server_without_an_end_costs_neither_more_time_nor_more_memory(tmp_path: Path, kind: str) -> None:
    pieces, status = ENDLESS[kind]
    started = unhindered()
    with Server(tmp_path / "server.sock", pieces) as server, pytest.raises(GrpcError) as caught:
        call(server.path, "/v1.Lister/List", deadline=0.5, max_bytes=LIMIT)
    assert caught.value.status.startswith(status), caught.value
    assert unhindered() - started < 3
    if status != "DEADLINE_EXCEEDED":
        assert server.sent < 17 << 20, "h2 takes a frame, 16 MiB at most, before it refuses it"


def test_a_path_without_a_server_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(GrpcError, match="UNAVAILABLE: No such file"):
        call(tmp_path / "none", "/v1.Lister/List", deadline=1, max_bytes=LIMIT)


@pytest.mark.parametrize(("written", "number"), [(b"\x00", 0), (b"\x7f", 127), (b"\x80\x01", 128), (b"\xac\x02", 300)])
def test_varints(written: bytes, number: int) -> None:
    assert varint(written + b"\xff", 0) == (number, len(written))
    with pytest.raises(ValueError, match="cut short, or too long"):
        varint(written[:-1], 0)


def test_a_number_of_more_than_64_bits_is_none_and_costs_nothing() -> None:
    assert varint(b"\xff" * 9 + b"\x01", 0) == (2**64 - 1, 10)
    with pytest.raises(ValueError, match="too long"):
        varint(b"\xff" * (16 << 20), 0)


@pytest.mark.parametrize("field", [b"\x0a\x00", b"\x08\x00", b"\x0a\x02\x0a\x00"], ids=["empty", "skipped", "inner"])
def test_a_message_of_countless_fields_is_refused(field: bytes) -> None:
    schema = {"All": [(1, "one", "One*")], "One": [(1, "text", "string")]}
    assert len(decode(schema, "All", field * 1000).one) in (0, 1000)
    with pytest.raises(ValueError, match=f"more than {MOST_FIELDS} fields"):
        decode(schema, "All", field * MOST_FIELDS + b"\x0a\x00")
