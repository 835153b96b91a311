"""The kernel log is followed through whatever way is open, at once, without a gap that is not counted."""

import contextlib
import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwatch.collect.kernel_log.follower import BOOT_ID, KernelLog
from gpuwatch.collect.kernel_log.ring import DEVICE, KmsgRecords, SyslogRing, read_newest
from gpuwatch.model.xid import KernelEvent
from tests.waiting import BOUND_SECONDS, until

SECONDS = BOUND_SECONDS
"""Patience with a busy machine; what is measured is far below."""


def xid_record(sequence: int, xid: int = 79, *, priority: int = 4, usec: int = 1_000_000) -> str:
    return f"{priority},{sequence},{usec},-;NVRM: Xid (PCI:0000:3b:00): {xid}, pid=7, name=x, text\n"


class FixedClock:
    """Unix time 1000 at 100 seconds after boot; waiting is real."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def time(self) -> float:
        return 1_000.0

    def monotonic(self) -> float:
        return 100.0 + time.monotonic() - self._start


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "kmsg"
    os.mkfifo(path, 0o600)
    return path


@pytest.fixture
def follow() -> Iterator[Callable[..., KernelLog]]:
    opened: list[KernelLog] = []

    def start(path: Path, **options: object) -> KernelLog:
        opened.append(KernelLog.open(path, fall_back=False, **options))  # type: ignore[arg-type]
        return opened[-1]

    yield start
    for log in opened:
        log.close()


def numbers(events: list[KernelEvent]) -> list[int | None]:
    return [event.sequence for event in events]


def test_a_record_arrives_in_milliseconds(fifo: Path, follow: Callable[..., KernelLog]) -> None:
    """A busy machine is late now and then, not every time."""
    log = follow(fifo)
    written: list[float] = []

    def latency(sequence: int) -> float:
        def write() -> None:
            written.append(time.monotonic())
            fifo.write_text(xid_record(sequence))

        timer = threading.Timer(0.05, write)
        timer.start()
        (event,) = log.read(SECONDS)
        arrived = time.monotonic()
        timer.join()
        assert (event.line.xid, event.line.pci, event.sequence) == (79, "0000:3b:00", sequence)
        assert not event.historical
        return arrived - written[-1]

    assert any(latency(sequence) < 0.1 for sequence in range(5, 10))


def test_what_was_there_before_is_history_and_comes_once(tmp_path: Path, follow: Callable[..., KernelLog]) -> None:
    path = tmp_path / "kmsg"
    path.write_text(xid_record(1, usec=40_000_000) + "6,2,41000000,-;usb 1-1: new device\n SUBSYSTEM=usb\n")
    boot = tmp_path / "boot_id"
    boot.write_text("0c3f-boot\n")
    log = follow(path, clock=FixedClock(), boot_id_path=boot)
    with path.open("a") as file:
        file.write(xid_record(3, 31, usec=41_000_000))
    (old,) = log.read(SECONDS)
    assert (old.line.xid, old.historical, old.boot_id) == (79, True, "0c3f-boot")
    assert old.at == pytest.approx(940.0, abs=1.0)
    (new,) = log.read(SECONDS)
    assert (new.line.xid, new.historical, new.at, round(new.uptime or 0.0)) == (31, False, 1_000.0, 100)


def test_user_space_cannot_forge_a_fault(fifo: Path, follow: Callable[..., KernelLog]) -> None:
    log = follow(fifo)
    fifo.write_text(xid_record(1, priority=12) + xid_record(2, 48))
    assert [event.line.xid for event in log.read(SECONDS)] == [48]


def test_the_switch_for_tests_lets_user_space_in(fifo: Path, follow: Callable[..., KernelLog]) -> None:
    log = follow(fifo, accept_userspace=True)
    fifo.write_text(xid_record(1, priority=12))
    assert [event.line.xid for event in log.read(SECONDS)] == [79]


def test_a_gap_in_the_numbers_is_counted_and_a_new_writer_is_none(fifo: Path, follow: Callable[..., KernelLog]) -> None:
    log = follow(fifo)
    fifo.write_text(xid_record(10) + xid_record(15) + xid_record(1) + xid_record(2))
    assert numbers(log.read(SECONDS)) == [10, 15, 1, 2]
    assert log.lost == 4


def test_bad_records_are_counted_and_passed_over(fifo: Path, follow: Callable[..., KernelLog]) -> None:
    log = follow(fifo)
    noise = b"NVRM: Xid (PCI:0000:3b:00): 48, bare\n\xff\xfe\n;;;\n4,x,1,-;NVRM: Xid (PCI:0000:3b:00): 48\n"
    fifo.write_bytes(noise + xid_record(1).encode())
    assert [event.line.xid for event in log.read(SECONDS)] == [79]
    assert log.malformed == 4


def test_a_record_in_two_writes_is_one(fifo: Path, follow: Callable[..., KernelLog]) -> None:
    log = follow(fifo)
    record = xid_record(1)
    fifo.write_text(record[:30])
    assert log.read(0.02) == []
    fifo.write_text(record[30:])
    assert numbers(log.read(SECONDS)) == [1]


def test_an_overrun_ring_is_counted_and_reading_continues(fifo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = KmsgRecords(fifo)
    real_read, failures = os.read, [errno.EPIPE, errno.EINVAL]

    def read(fd: int, size: int) -> bytes:
        if failures:
            raise OSError(failures.pop(0), "as the kernel does")
        return real_read(fd, size)

    monkeypatch.setattr(os, "read", read)
    fifo.write_text(xid_record(7))
    assert [frame.sequence for frame in records.read()] == [7]
    assert (records.lost, records.malformed) == (1, 1)
    records.close()


def test_a_file_that_fails_turns_the_source_off_with_its_reason(
    fifo: Path, follow: Callable[..., KernelLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = follow(fifo)
    fifo.write_text(xid_record(3) + xid_record(9))
    assert len(log.read(SECONDS)) == 2

    def read(fd: int, size: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    fifo.write_text(xid_record(10))
    monkeypatch.setattr(os, "read", read)
    assert log.read(0.01) == []
    assert log.mode == "off"
    assert "Input/output error" in (log.reason or "")
    assert log.lost == 5


def test_stop_ends_a_waiting_read_at_once(fifo: Path, follow: Callable[..., KernelLog]) -> None:
    """A busy machine is late now and then, not every time."""

    def took() -> float:
        log = follow(fifo)
        answers: list[list[KernelEvent]] = []
        thread = threading.Thread(target=lambda: answers.append(log.read(600.0)))
        thread.start()
        started = time.monotonic()
        log.stop()
        thread.join(SECONDS)
        ended = time.monotonic()
        assert answers == [[]]
        assert log.read(600.0) == []
        return ended - started

    assert any(took() < 1.0 for _ in range(5))


def test_without_any_way_in_it_says_what_to_grant(tmp_path: Path, follow: Callable[..., KernelLog]) -> None:
    log = follow(tmp_path / "absent", boot_id_path=tmp_path / "absent")
    assert (log.mode, log.read(0.01), log.lost, log.malformed) == ("off", [], 0, 0)
    assert "No such file" in (log.reason or "")
    assert "CAP_SYSLOG" in (log.reason or "")


def test_a_flood_is_read_whole(tmp_path: Path, follow: Callable[..., KernelLog]) -> None:
    path = tmp_path / "kmsg"
    count = 20_000
    path.write_text("".join(xid_record(n) for n in range(count)))
    events = follow(path).read(SECONDS)
    assert numbers(events) == list(range(count))


class Ring:
    """The kernel's answer to SYSLOG_ACTION_READ_ALL: the newest whole lines that fit."""

    size = 20_000

    def __init__(self) -> None:
        self.lines: list[str] = []

    def newest(self, size: int) -> bytes:
        text = ""
        for line in reversed(self.lines):
            if len(text) + len(line) > min(size, self.size):
                break
            text = line + text
        return text.encode()


def line(number: int, facility_and_level: int = 4) -> str:
    return f"<{facility_and_level}>[{number:5d}.000000] NVRM: Xid (PCI:0000:3b:00): {number}, text\n"


def codes(ring: SyslogRing) -> list[str]:
    return [frame.message.split(": ")[2].split(",")[0] for frame in ring.read()]


def test_klogctl_gives_each_line_once() -> None:
    kernel = Ring()
    kernel.lines = [line(1), line(2)]
    ring = SyslogRing(kernel.newest, kernel.size)
    assert codes(ring) == ["1", "2"]
    assert codes(ring) == []
    kernel.lines += [line(3), line(4)]
    assert codes(ring) == ["3", "4"]
    kernel.lines = []  # dmesg --clear
    assert codes(ring) == []
    kernel.lines = [line(5)]
    assert codes(ring) == ["5"]
    assert ring.lost == 0


def test_klogctl_notices_a_ring_that_ran_over() -> None:
    kernel = Ring()
    kernel.lines = [line(1)]
    ring = SyslogRing(kernel.newest, kernel.size)
    assert codes(ring) == ["1"]
    kernel.lines += [line(n) for n in range(2, 3_000)]
    assert codes(ring)[-1] == "2999"
    assert ring.lost == 1
    assert codes(ring) == []


def test_klogctl_shows_who_wrote() -> None:
    kernel = Ring()
    kernel.lines = [line(79, 12), line(48, 4)]
    assert [frame.facility for frame in SyslogRing(kernel.newest, kernel.size).read()] == [1, 0]


def test_an_empty_ring_is_no_trouble() -> None:
    kernel = Ring()
    ring = SyslogRing(kernel.newest, kernel.size)
    assert codes(ring) == []
    kernel.lines = [line(1)]
    assert codes(ring) == ["1"]


def write_to_kernel(text: str) -> None:
    try:
        DEVICE.write_text(text)
    except OSError as error:
        pytest.skip(f"may not write to {DEVICE}: {error.strerror}")


def named(log: KernelLog, marker: str) -> KernelEvent:
    """The first record with the marker: other tests and the kernel write at the same time."""

    def find() -> KernelEvent | None:
        return next((event for event in log.read(0.5) if marker in (event.line.message or "")), None)

    return until(find, f"{log.mode}: a record with {marker}")


def fresh_marker() -> str:
    return f"test {os.getpid()} {time.monotonic_ns()}"


@pytest.mark.root
def test_the_real_device_returns_what_was_written() -> None:
    with contextlib.closing(KernelLog.open(accept_userspace=True)) as log:
        if log.mode != "kmsg":
            pytest.skip(f"{DEVICE} does not open: {log.reason}")
        for _ in range(5):  # a busy machine is late now and then, not every time
            marker = fresh_marker()
            started = time.monotonic()
            write_to_kernel(f"NVRM: Xid (PCI:0000:1a:00): 79, {marker}\n")
            event = named(log, marker)
            took = time.monotonic() - started
            if took < 0.1:
                break
    assert took < 0.1
    assert (event.line.xid, event.historical) == (79, False)
    assert event.boot_id == BOOT_ID.read_text().strip()
    assert event.sequence is not None
    with contextlib.closing(KernelLog.open(accept_userspace=True)) as again:
        old = named(again, marker)
    assert (old.historical, old.sequence, old.boot_id) == (True, event.sequence, event.boot_id)
    assert old.at == pytest.approx(event.at, abs=2.0)
    with contextlib.closing(KernelLog.open()) as strict:
        assert not [e for e in strict.read(0.05) if marker in (e.line.message or "")]


@pytest.mark.root
def test_the_device_that_a_service_manager_opened_is_read_on() -> None:
    """As standard input; a process that opened the device anew would read all of it once more."""
    script = "from gpuwatch.collect.kernel_log.ring import *; print(len(KmsgRecords(DEVICE).read()))"
    try:
        device = os.open(DEVICE, os.O_RDONLY)
    except OSError as error:
        pytest.skip(f"{DEVICE} does not open: {error.strerror}")
    with open(device, "rb", buffering=0) as stdin:
        os.lseek(device, 0, os.SEEK_SET)
        whole = subprocess.run([sys.executable, "-c", script], stdin=stdin, capture_output=True, text=True, check=True)
        os.lseek(device, 0, os.SEEK_END)
        rest = subprocess.run([sys.executable, "-c", script], stdin=stdin, capture_output=True, text=True, check=True)
    assert int(whole.stdout) > int(rest.stdout)


@pytest.mark.root
def test_the_real_klogctl_returns_what_was_written() -> None:
    try:
        read_newest(1)
    except OSError as error:
        pytest.skip(f"klogctl is not permitted: {error.strerror}")
    with contextlib.closing(KernelLog(SyslogRing(), mode="klogctl", accept_userspace=True)) as log:
        marker = fresh_marker()
        write_to_kernel(f"NVRM: Xid (PCI:0000:1b:00): 48, {marker}\n")
        event = named(log, marker)
    assert (event.line.xid, event.line.pci, event.sequence) == (48, "0000:1b:00", None)
