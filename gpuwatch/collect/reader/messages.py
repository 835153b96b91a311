"""The pipe protocol: length-prefixed msgpack messages from the reader to the agent, one-byte commands back."""

from collections.abc import Callable
from struct import Struct as Layout

import msgspec

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


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="t"):
    """Base of everything the reader says."""


class Registered(Message, frozen=True, kw_only=True, tag="registered"):
    """The driver answered; `count` GPUs are in NVML."""

    driver: Driver
    count: int


class Found(Message, frozen=True, kw_only=True, tag="found"):
    """One GPU answered its identity; `events` says why it tells no driver events, None when it does."""

    identity: Identity
    events_refused: str | None = None


class Refused(Message, frozen=True, kw_only=True, tag="refused"):
    """The GPU at an NVML index does not answer its identity; asked again by and by. `lost` as in Trouble;
    `hidden`: NVML counts it, but this container may not see it.
    """

    index: int
    lost: bool = False
    hidden: bool = False
    reason: str


class Sample(Message, frozen=True, kw_only=True, tag="sample"):
    """One look at one GPU."""

    gpu: Gpu


class Trouble(Message, frozen=True, kw_only=True, tag="trouble"):
    """A GPU could not be read. `lost` False: this read failed, ask again."""

    uuid: str
    lost: bool
    reason: str


class Happened(Message, frozen=True, kw_only=True, tag="event"):
    """The event set told something."""

    event: DriverEvent


class Beat(Message, frozen=True, kw_only=True, tag="beat"):
    """The reader lives. `stuck` maps uuid, or `index N` while a GPU is registered, to the part of the read it is in and
    seconds so far, for reads longer than an interval; `starting` says what the start is waiting for.
    """

    stuck: dict[str, tuple[str, float]] = {}
    starting: str | None = None


USAGE = "usage"
"""Kind of a failure that lies in what was asked for, such as a capture file that is none."""


class Failed(Message, frozen=True, kw_only=True, tag="failed"):
    """The reader ends. `retry` says whether a new process may help (driver reloaded, GPU came or went); `code`: the
    nvmlReturn, where it was NVML that failed.
    """

    reason: str
    kind: str
    retry: bool = True
    code: int | None = None

    def as_error(self) -> GpuwatchError:
        """What a person is told who asked for GPUs and got this."""
        if self.kind == USAGE:
            return UsageError(self.reason)
        return NoGpuStack("no NVIDIA GPU found", self.reason, "gpuwatch diagnose tells what to do; or try --source sim")


AnyMessage = Registered | Found | Refused | Sample | Trouble | Happened | Beat | Failed

LENGTH = Layout(">I")
MAX_FRAME = 16 << 20

REFRESH = b"R"  # command: read rarely-read values at the next sample
"""The only command; closing the pipe means stop."""

_encoder = msgspec.msgpack.Encoder()


def encode(message: AnyMessage) -> bytes:
    """One frame."""
    return framed(_encoder.encode(message))


def framed(body: bytes) -> bytes:
    """What goes over a pipe as a whole: its length in front."""
    return LENGTH.pack(len(body)) + body


class ProtocolError(Exception):
    """The other side does not speak this protocol; only a new process helps."""


class FrameBuffer:
    """Cuts a byte stream into messages."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._decode: Callable[[bytes], AnyMessage] = msgspec.msgpack.Decoder(AnyMessage).decode

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
