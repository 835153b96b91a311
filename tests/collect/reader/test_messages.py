"""The pipe protocol: every cut of the stream gives the same messages, and garbage is refused."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.collect.reader.messages import (
    LENGTH,
    MAX_FRAME,
    DriverEventMessage,
    DriverOpened,
    FrameBuffer,
    GpuFound,
    GpuRefused,
    GpuSample,
    GpuTrouble,
    ProtocolError,
    ReaderFailed,
    ReaderHeartbeat,
    ReadUnderWay,
    encode,
)
from gpuwatch.model.snapshot import Driver, Gpu, Identity, Power
from gpuwatch.model.xid import DriverEvent

IDENTITY = Identity(index=3, uuid="GPU-3", pci_bus_id="00000000:3B:00.0")
MESSAGES: tuple[Any, ...] = (
    DriverOpened(driver=Driver(version="580.95.05", cuda="13.0"), count=8),
    GpuFound(identity=IDENTITY),
    GpuFound(identity=IDENTITY, events_refused="Not Supported"),
    GpuRefused(index=4, reason="GPU is lost", lost=True),
    GpuSample(gpu=Gpu(identity=IDENTITY, at=1e9, power=Power(average=70.5), errors={"a": "b"})),
    GpuTrouble(uuid="GPU-3", lost=False, reason="Unknown Error"),
    DriverEventMessage(event=DriverEvent(kind="xid", at=1e9, data=79, uuid="GPU-3")),
    ReaderHeartbeat(),
    ReaderHeartbeat(
        reads={"GPU-3": ReadUnderWay("fields", 2.5, 2.0, 0.1), "index 4": ReadUnderWay("registration", 9.0, 9.0)},
        starting="nvmlInit",
    ),
    ReaderFailed(reason="no GPU in NVML", kind="failed", retry=False),
)


@given(st.lists(st.sampled_from(MESSAGES), max_size=6), st.data())
def test_any_cut_gives_the_same_messages(messages: list[Any], data: st.DataObject) -> None:
    stream = b"".join(map(encode, messages))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    buffer, received = FrameBuffer(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += buffer.feed(stream[start:end])
    assert received == messages


@given(st.binary(max_size=200))
def test_garbage_is_refused_or_waited_for(data: bytes) -> None:
    """Nothing but ProtocolError comes out, and no message of it that was not encoded."""
    buffer = FrameBuffer()
    with contextlib.suppress(ProtocolError):
        for message in buffer.feed(data):
            assert encode(message)


def test_a_frame_that_is_no_message() -> None:
    with pytest.raises(ProtocolError):
        FrameBuffer().feed(LENGTH.pack(4) + b"\xff\xfe\xfd\xfc")


def test_a_length_beyond_all_reason_is_refused_at_once() -> None:
    with pytest.raises(ProtocolError, match="frame of"):
        FrameBuffer().feed(LENGTH.pack(MAX_FRAME + 1))


def test_text_on_the_pipe_is_refused() -> None:
    with pytest.raises(ProtocolError):
        FrameBuffer().feed(b"NVIDIA says hello\n" * 10)


def test_half_a_message_is_waited_for() -> None:
    frame = encode(MESSAGES[0])
    buffer = FrameBuffer()
    assert buffer.feed(frame[:-1]) == []
    assert buffer.feed(frame[-1:]) == [MESSAGES[0]]
