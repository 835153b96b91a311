"""The reader process by itself: what it says on its pipe, and how it ends."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from gpuwatch.collect.reader.messages import (
    REFRESH,
    AnyMessage,
    DriverEventMessage,
    DriverOpened,
    FrameBuffer,
    GpuFound,
    GpuRefused,
    GpuSample,
    GpuTrouble,
    Message,
    ReaderFailed,
    ReaderHeartbeat,
    Settings,
)
from tests.fakes.libnvml import FakeDriver
from tests.waiting import BOUND_SECONDS

M = TypeVar("M", bound=Message)
FACTORY = "gpuwatch.collect.nvml.library:open_library"


class Reader:
    """A reader on a fake driver; `next(Kind)` gives the next message of a kind, and drops others."""

    def __init__(self, driver: FakeDriver, **settings: Any) -> None:
        argument = msgspec.json.encode(Settings(**{"factory": FACTORY, "interval": 0.2, **settings})).decode()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gpuwatch.collect.reader", argument],
            env={**os.environ, **driver.env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self._frames = FrameBuffer()
        self._messages: list[AnyMessage] = []

    def next(self, kind: type[M], holds: Callable[[M], bool] = lambda message: True) -> M:
        assert self.process.stdout
        deadline = time.monotonic() + BOUND_SECONDS
        while time.monotonic() < deadline:
            while self._messages:
                message = self._messages.pop(0)
                if isinstance(message, kind) and holds(message):
                    return message
            readable, _, _ = select.select([self.process.stdout], [], [], 0.2)
            if readable:
                data = os.read(self.process.stdout.fileno(), 1 << 16)
                assert data, f"the reader ended without {kind.__name__}"
                self._messages += self._frames.feed(data)
        raise AssertionError(f"no {kind.__name__} within {BOUND_SECONDS} s")

    def command(self, byte: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(byte)

    def close(self) -> None:
        """The agent's end of both pipes; nothing happens to those that are closed."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            pipe.close()

    def ended(self, seconds: float = BOUND_SECONDS) -> int:
        return self.process.wait(seconds)


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[FakeDriver]:
    with FakeDriver(tmp_path / "driver", gpus=2) as driver:
        yield driver


Begin = Callable[..., Reader]


@pytest.fixture
def begin(driver: FakeDriver) -> Iterator[Begin]:
    """`begin(**settings)` starts a reader, which has ended when the test has."""
    with contextlib.ExitStack() as readers:

        def started(**settings: Any) -> Reader:
            reader = Reader(driver, **settings)
            readers.callback(reader.ended)
            readers.callback(reader.close)
            readers.callback(driver.clear)
            return reader

        yield started


@pytest.fixture
def reader(begin: Begin) -> Reader:
    return begin()


def test_it_introduces_driver_and_gpus_and_samples_them(driver: FakeDriver, reader: Reader) -> None:
    registered = reader.next(DriverOpened)
    assert (registered.driver.version, registered.driver.cuda, registered.count) == ("580.95.05", "13.0", 2)
    found = {reader.next(GpuFound).identity.uuid for _ in range(2)}
    assert found == {driver.get(0, "uuid"), driver.get(1, "uuid")}
    sample = reader.next(GpuSample)
    assert sample.gpu.temperature.gpu == 41
    assert sample.gpu.read_seconds is not None


def test_events_come_at_once_and_bring_a_full_sample(driver: FakeDriver, reader: Reader) -> None:
    reader.next(GpuSample, lambda sample: sample.gpu.identity.index == 1)
    driver.set(1, remap_pending=1)
    driver.xid(1, 63)
    assert reader.next(DriverEventMessage).event.data == 63
    full = reader.next(GpuSample, lambda sample: sample.gpu.identity.index == 1)
    assert full.gpu.row_remap.pending is True


def test_a_gpu_that_is_closed_is_not_opened_and_the_others_are_read(driver: FakeDriver, begin: Begin) -> None:
    reader = begin(closed=(0,))
    refused = reader.next(GpuRefused)
    assert (refused.index, refused.lost, refused.reason) == (0, False, "closed while it is being reset")
    assert refused.hidden, "else the agent finds a GPU missing"
    assert reader.next(GpuFound).identity.uuid == driver.get(1, "uuid")
    assert {reader.next(GpuSample).gpu.identity.index for _ in range(3)} == {1}


def test_refresh_reads_rarely_read_values(driver: FakeDriver, begin: Begin) -> None:
    reader = begin(interval=30.0)
    for _ in range(2):
        reader.next(GpuSample)
    driver.set(None, persistence_mode=0)
    reader.command(REFRESH)
    assert reader.next(GpuSample).gpu.persistence_mode is False
    reader.close()
    assert reader.ended() == 0


def test_a_hung_read_is_reported_by_its_part_and_the_other_gpu_continues(driver: FakeDriver, reader: Reader) -> None:
    reader.next(GpuSample, lambda sample: sample.gpu.identity.index == 0)
    driver.hang("nvmlDeviceGetSamples", gpu=0)
    uuid = driver.get(0, "uuid")
    beat = reader.next(ReaderHeartbeat, lambda beat: uuid in beat.reads and beat.reads[uuid].call_seconds >= 0.5)
    read = beat.reads[uuid]
    assert read.part == "sample buffers"
    assert read.seconds >= read.call_seconds >= 0.5 > read.slowest_call
    reader.next(GpuSample, lambda sample: sample.gpu.identity.index == 1)


def test_a_hung_registration_is_reported_by_its_index(driver: FakeDriver, begin: Begin) -> None:
    driver.hang("nvmlDeviceGetUUID", gpu=1)
    reader = begin()
    assert reader.next(ReaderHeartbeat, lambda beat: bool(beat.reads)).reads["index 1"].part == "registration"
    driver.clear()
    reader.next(GpuFound, lambda found: found.identity.index == 1)


def test_a_hung_start_is_reported(driver: FakeDriver, begin: Begin) -> None:
    driver.hang("nvmlInit")
    reader = begin()
    assert reader.next(ReaderHeartbeat).starting == "nvmlInit"
    driver.clear()
    reader.next(GpuSample)
    assert reader.next(ReaderHeartbeat).starting is None


def test_trouble_with_one_gpu(driver: FakeDriver, reader: Reader) -> None:
    reader.next(GpuSample, lambda sample: sample.gpu.identity.index == 0)
    driver.lose(0)
    trouble = reader.next(GpuTrouble)
    assert (trouble.uuid, trouble.lost) == (driver.get(0, "uuid"), True)
    driver.restore(0)
    reader.next(GpuSample, lambda sample: sample.gpu.identity.index == 0)
    driver.error(999, "*", gpu=0)
    assert reader.next(GpuTrouble).lost is False


def test_a_lost_gpu_is_asked_less_and_less_often_but_at_once_when_there_is_news(
    driver: FakeDriver, reader: Reader
) -> None:
    lost, well = driver.get(0, "uuid"), driver.get(1, "uuid")
    reader.next(GpuSample, lambda sample: sample.gpu.identity.index == 0)
    driver.lose(0)
    reader.next(GpuTrouble)
    told: list[str] = []
    while told.count(well) < 12:
        message = reader.next(Message, lambda message: isinstance(message, GpuSample | GpuTrouble))
        told.append(message.gpu.identity.uuid if isinstance(message, GpuSample) else lost)
    assert told.count(lost) <= 4
    driver.restore(0)
    reader.command(REFRESH)
    assert reader.next(GpuSample, lambda sample: sample.gpu.identity.index == 0)


@pytest.mark.parametrize(("code", "lost"), [(15, True), (4, False), (999, False)])
def test_a_refused_registration_says_whether_the_gpu_is_lost(
    driver: FakeDriver, begin: Begin, code: int, lost: bool
) -> None:
    driver.error(code, "nvmlDeviceGetHandleByIndex", gpu=1)
    reader = begin()
    refused = reader.next(GpuRefused)
    assert (refused.index, refused.lost, refused.hidden) == (1, lost, code == 4)
    driver.clear()
    reader.next(GpuFound, lambda found: found.identity.index == 1)


def test_a_driver_that_goes_is_reported_and_the_reader_ends_when_let_go(driver: FakeDriver, begin: Begin) -> None:
    reader = begin()
    reader.next(GpuSample)
    driver.reload()
    failed = reader.next(ReaderFailed)
    assert (failed.kind, failed.retry) == ("driver is gone", True)
    reader.close()
    assert reader.ended() == 0


@pytest.mark.parametrize(("code", "retry"), [(9, True), (12, False), (18, True)])
def test_whether_a_new_process_may_help(driver: FakeDriver, begin: Begin, code: int, retry: bool) -> None:
    """A library that is not there will not come; a driver may."""
    driver.error(code, "nvmlInit")
    reader = begin()
    failed = reader.next(ReaderFailed)
    assert (failed.retry, failed.code) == (retry, code)
    reader.close()
    assert reader.ended() == 0


def test_an_odd_factory_is_reported(driver: FakeDriver, begin: Begin) -> None:
    reader = begin(factory="gpuwatch.nowhere:open_library")
    assert "ModuleNotFoundError" in reader.next(ReaderFailed).reason
    reader.close()
    assert reader.ended() == 0


def test_it_ends_when_its_pipe_is_closed(begin: Begin) -> None:
    """And does not wait for its next round."""
    reader = begin(interval=2 * BOUND_SECONDS)
    reader.next(GpuSample)
    reader.close()
    assert reader.ended() == 0


def test_it_stays_inside_a_call_and_ends_when_that_returns(driver: FakeDriver, begin: Begin) -> None:
    reader = begin()
    reader.next(GpuSample, lambda sample: sample.gpu.identity.index == 0)
    driver.hang("nvmlDeviceGetUtilizationRates", gpu=0)
    reader.next(ReaderHeartbeat, lambda beat: any(read.seconds > 0.5 for read in beat.reads.values()))
    reader.close()
    with pytest.raises(subprocess.TimeoutExpired):
        reader.ended(1.0)
    driver.clear()
    assert reader.ended() == 0


def test_it_lets_ctrl_c_to_the_agent(driver: FakeDriver, reader: Reader) -> None:
    reader.next(GpuSample)
    reader.process.send_signal(signal.SIGINT)
    for _ in range(4):
        reader.next(GpuSample)
    assert reader.process.poll() is None
