"""What servers answer is read from the bytes that real ones sent, and from ones that go wrong in each place."""

import socket
import struct
import time

import pytest

from gpuwatch.workloads.grpc_call import GrpcError, answer
from gpuwatch.workloads.wire import varint
from tests.fuzz.targets import CORPUS

SETTINGS, GOAWAY, RESET = 4, 7, 3
LIMIT = 100


def answered(sent: bytes, *, seconds: float = 5.0, ends: bool = True) -> bytes:
    """What the client makes of it."""
    ours, server = socket.socketpair()
    with ours, server:
        server.sendall(sent)
        if ends:
            server.shutdown(socket.SHUT_WR)
        return answer(ours, time.monotonic() + seconds, LIMIT)


def frame(kind: int, flags: int, payload: bytes = b"", stream: int = 1) -> bytes:
    return len(payload).to_bytes(3) + struct.pack(">BBI", kind, flags, stream) + payload


def trailers(status: bytes, flags: int = 5) -> bytes:
    return frame(1, flags, b"\0\x0bgrpc-status" + bytes((len(status),)) + status)


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


def test_an_answer_comes_in_pieces_and_headers_go_on_in_a_second_frame() -> None:
    message, end = data(b"ab" * 20), trailers(b"0")[9:]
    pieces = frame(0, 0, message[9:20]) + frame(6, 0, b"pingpong", stream=0) + frame(0, 0, message[20:])
    assert answered(pieces + frame(1, 1, end[:5]) + frame(9, 4, end[5:])) == b"ab" * 20


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", "closed"),
        (frame(SETTINGS, 0, b"", 0), "closed"),
        (data(b"ab")[:-1], "closed"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "UNAVAILABLE"),
        (frame(GOAWAY, 0, bytes(8), 0), "UNAVAILABLE"),
        (frame(RESET, 0, bytes(4)), "UNAVAILABLE"),
        (frame(1, 5, b"\0\x0bgrpc-st"), "UNAVAILABLE"),
        (frame(1, 5, b"\0"), "UNAVAILABLE"),
        (data(b"", length=LIMIT + 1), "RESOURCE_EXHAUSTED"),
        (data(b"a" * (LIMIT + 1), length=1), "RESOURCE_EXHAUSTED"),
        (data(b"ab", length=3) + trailers(b"0"), "INTERNAL"),
        (data(b"ab", coded=1) + trailers(b"0"), "INTERNAL"),
        (data(b"ab") + trailers(b"13"), "INTERNAL"),
        (data(b"ab") + trailers(b"99"), "UNKNOWN"),
        (data(b"ab") + frame(1, 5), "UNKNOWN"),
        (trailers(b"0"), "INTERNAL"),
    ],
)
def test_what_is_no_whole_answer_is_an_error(sent: bytes, status: str) -> None:
    with pytest.raises((GrpcError, ConnectionError)) as caught:
        answered(sent)
    assert status in str(caught.value)


def test_a_server_that_says_nothing_more_costs_the_deadline() -> None:
    with pytest.raises(TimeoutError):
        answered(data(b"ab"), seconds=0.05, ends=False)


@pytest.mark.parametrize(("written", "number"), [(b"\x00", 0), (b"\x7f", 127), (b"\x80\x01", 128), (b"\xac\x02", 300)])
def test_varints(written: bytes, number: int) -> None:
    assert varint(written + b"\xff", 0) == (number, len(written))
    with pytest.raises(ValueError, match="cut short"):
        varint(written[:-1], 0)
