"""The pipe protocol: length-prefixed msgpack messages from the reader to the agent, one-byte commands back."""

import os
import sys
import threading
from collections.abc import Callable
from struct import Struct as Layout
from typing import NamedTuple

import msgspec

from gpuwatch.model.decoding import prepared
from gpuwatch.model.errors import GpuwatchError, NoGpuStack, UsageError
from gpuwatch.model.snapshot import Driver, Gpu, Identity
from gpuwatch.model.xid import DriverEvent


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The reader's only argument, as JSON."""

    factory: str
    target: str = ""
    interval: float = 2.0
    with_gpm: bool = True
    buffers: bool = True
    closed: tuple[int, ...] = ()  # NVML indexes that are not opened, because they are being reset


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="t"):
    """Base of all messages of the reader."""


class DriverOpened(Message, frozen=True, kw_only=True, tag="registered"):
    """The driver answered; `count` GPUs are in NVML."""

    driver: Driver
    count: int


class GpuFound(Message, frozen=True, kw_only=True, tag="found"):
    """One GPU answered its identity; `events_refused`: why it has no driver events, None when it has."""

    identity: Identity
    events_refused: str | None = None


class GpuRefused(Message, frozen=True, kw_only=True, tag="refused"):
    """The GPU at an NVML index does not answer its identity; it is asked again later. `lost` as in GpuTrouble;
    `hidden`: NVML counts it, but it is not missing: this container has no access, or it is closed for a reset.
    """

    index: int
    lost: bool = False
    hidden: bool = False
    reason: str


class GpuSample(Message, frozen=True, kw_only=True, tag="sample"):
    """One sample of one GPU."""

    gpu: Gpu


class GpuTrouble(Message, frozen=True, kw_only=True, tag="trouble"):
    """A GPU could not be read. `lost` False: this read failed, the next may not."""

    uuid: str
    lost: bool
    reason: str


class DriverEventMessage(Message, frozen=True, kw_only=True, tag="event"):
    """An event of the driver's event set."""

    event: DriverEvent


class ReadUnderWay(NamedTuple):
    """A read that has not ended: the part it is in, its seconds, those of the driver call under way, and those of the
    slowest call that returned within the last minutes.
    """

    part: str
    seconds: float
    call_seconds: float
    slowest_call: float = 0.0


class ReaderHeartbeat(Message, frozen=True, kw_only=True, tag="beat"):
    """The reader lives. `reads` maps uuid, or `index N` of a GPU whose registration takes longer than an interval, to
    the read under way; `starting` names what the start is waiting for.
    """

    reads: dict[str, ReadUnderWay] = {}
    starting: str | None = None


USAGE = "usage"
"""Kind of a failure caused by the request, such as a file that is no capture."""


class ReaderFailed(Message, frozen=True, kw_only=True, tag="failed"):
    """The reader ends. `retry`: whether a new process may help (driver reloaded, GPU came or went); `code`: the
    nvmlReturn, where it was NVML that failed.
    """

    reason: str
    kind: str
    retry: bool = True
    code: int | None = None

    def as_error(self) -> GpuwatchError:
        """The error of a command that needs a GPU."""
        if self.kind == USAGE:
            return UsageError(self.reason)
        return NoGpuStack("no NVIDIA GPU found", self.reason, "gpuwatch diagnose tells what to do; or try --source sim")


AnyMessage = (
    DriverOpened | GpuFound | GpuRefused | GpuSample | GpuTrouble | DriverEventMessage | ReaderHeartbeat | ReaderFailed
)

LENGTH = Layout(">I")
MAX_FRAME = 16 << 20

REFRESH = b"R"  # command: read rarely-read values at the next sample
"""The only command; closing the pipe means stop."""

_encoder = msgspec.msgpack.Encoder()


def encode(message: AnyMessage) -> bytes:
    """One frame."""
    return framed(_encoder.encode(message))


def framed(body: bytes) -> bytes:
    """A frame for the pipe: `body` with its length in front."""
    return LENGTH.pack(len(body)) + body


class ProtocolError(Exception):
    """The other side does not follow this protocol; only a new process helps."""


class FrameBuffer:
    """Cuts a byte stream into messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._decode: Callable[[bytes], AnyMessage] = msgspec.msgpack.Decoder(prepared(AnyMessage)).decode

    def feed(self, data: bytes) -> list[AnyMessage]:
        """Messages completed by `data`.

        Raises:
            ProtocolError: a frame is too long or is no message.
        """
        self._bytes += data
        messages = []
        while len(self._bytes) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._bytes)
            if length > MAX_FRAME:
                raise ProtocolError(f"frame of {length} bytes")
            end = LENGTH.size + length
            if len(self._bytes) < end:
                break
            try:
                messages.append(self._decode(bytes(self._bytes[LENGTH.size : end])))
            except msgspec.MsgspecError as error:
                raise ProtocolError(str(error)) from None
            del self._bytes[:end]
        return messages


class Outbox:
    """Writes frames one after another; `closed` once the agent has closed the pipe."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self.closed = False

    def send(self, message: AnyMessage) -> None:
        """Write one message; nothing more once the pipe is closed."""
        self.write(encode(message))

    def write(self, frame: bytes) -> None:
        """As `send`, a frame that is made already."""
        rest = memoryview(frame)
        with self._lock:
            try:
                while rest and not self.closed:
                    rest = rest[os.write(self._fd, rest) :]
            except BrokenPipeError:
                self.closed = True


def private_stdout() -> int:
    """The pipe to the parent, out of reach of the output of libraries."""
    pipe = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return pipe


def release_streams() -> None:
    """Close stdout and stderr for good. They are also the parent's: a process that reads that output to the end would
    wait for this process too, which may be inside the driver.
    """
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nothing, stream.fileno())
