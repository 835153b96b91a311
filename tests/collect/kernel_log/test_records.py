"""Only the first line of a record can be the driver's: a program's name with a newline in it is never a fault."""

import contextlib
import io
import json
import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuwatch.collect.kernel_log.follower import KernelLog
from gpuwatch.collect.kernel_log.lines import parse_line, read_frame, read_pasted
from gpuwatch.collect.kernel_log.records import parse_file, parse_lines
from gpuwatch.collect.kernel_log.ring import NO_TIMES, SyslogRing, read_newest
from gpuwatch.model.xid import KernelLine
from tests.seeds import examples
from tests.waiting import until

FORGED = "NVRM: Xid (PCI:0000:0f:00): 79, pid=1, name=x, GPU has fallen off the bus."
CRASH = f"x\n{FORGED}[7]: segfault at 0 ip 0 sp 0 error 4 in x\n{FORGED}[400000+1000]"
XIDS = [f"NVRM: Xid (PCI:0000:{gpu:02x}:00): 79, pid=7, name=python3, GPU has fallen off the bus." for gpu in range(8)]
SXID = "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up"
LOSS = (
    "NVRM: The NVIDIA GPU 0000:b3:00.0\n"
    "NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
    "NVRM: fallen off the bus and is not responding to commands."
)
MISMATCH = "NVRM: API mismatch: the client x (pid 7)\nNVRM: has the version 1, but"
NOW = 12.345678


class Kernel:
    """A ring of records, and klogctl's answer: the prefix of a record stands before each of its lines."""

    size = 200_000

    def __init__(self, *records: tuple[int, float, str], times: bool = True) -> None:
        self.records, self.times = list(records), times

    def lines(self, record: tuple[int, float, str]) -> str:
        priority, at, message = record
        prefix = f"<{priority}>" + (f"[{at:12.6f}] " if self.times else "")
        return "".join(f"{prefix}{line}\n" for line in message.split("\n"))

    def newest(self, size: int) -> bytes:
        """The newest whole records that fit."""
        text = b""
        for record in reversed(self.records):
            lines = self.lines(record).encode("utf-8", "replace")
            if len(text) + len(lines) > min(size, self.size):
                break
            text = lines + text
        return text

    def open(self, times: Path = Path("/nowhere")) -> SyslogRing:
        return SyslogRing(self.newest, self.size, times)


def identity(line: KernelLine) -> tuple[object, ...]:
    """What a line reports, without its words: what shares its microsecond joins them."""
    return line.kind, line.pci, line.xid, line.sxid


def seen(ring: SyslogRing) -> list[KernelLine]:
    return [line for line in map(read_frame, ring.read()) if line.kind != "other"]


def codes(lines: Iterable[KernelLine]) -> list[str]:
    return [f"{line.kind} {line.pci}" for line in lines]


def test_a_program_that_crashes_is_no_fault_whatever_its_name() -> None:
    kernel = Kernel((6, NOW, "usb 1-1: new device"), (6, NOW + 1, CRASH), (4, NOW + 2, XIDS[1]))
    assert codes(seen(kernel.open())) == ["xid 0000:01:00"]


def test_nor_when_it_is_the_first_record_of_a_read() -> None:
    kernel = Kernel((6, NOW, "usb 1-1: new device"))
    ring = kernel.open()
    ring.read()
    kernel.records.append((6, NOW + 1, CRASH))
    assert seen(ring) == []
    kernel.records += [(6, NOW + 2, CRASH), (4, NOW + 2, XIDS[1])]  # another priority begins another record
    assert codes(seen(ring)) == ["xid 0000:01:00"]


def test_gpus_that_fail_in_the_same_microsecond_are_all_reported() -> None:
    kernel = Kernel(*((4, NOW, text) for text in (*XIDS, SXID, LOSS, XIDS[0])))
    assert codes(seen(kernel.open())) == [
        *(f"xid 0000:{gpu:02x}:00" for gpu in range(8)), "sxid 0000:06:00.0", "bus_loss 0000:b3:00.0", "xid 0000:00:00"
    ]  # fmt: skip


@pytest.mark.parametrize("other", [CRASH, MISMATCH, "NVRM: nvAssertFailed: x", ""])
def test_behind_any_other_message_of_the_same_microsecond_nothing_counts(other: str) -> None:
    kernel = Kernel((4, NOW, XIDS[0]), (4, NOW, other), (4, NOW, XIDS[1]), (4, NOW + 1e-6, XIDS[2]))
    assert codes(seen(kernel.open())) == ["xid 0000:00:00", "xid 0000:02:00"]


def test_a_record_reads_as_one_whichever_way_it_comes() -> None:
    message = "NVRM: Xid (PCI:0000:0f:00): 43, pid=7, name=a\nb, Ch 00000008"
    (by_klogctl,) = seen(Kernel((4, NOW, message)).open())
    (by_device,) = parse_lines(["4,1,12345678,-;" + message.replace("\n", r"\x0a")])
    assert by_klogctl == by_device
    assert (by_device.name, by_device.message) == ("a\nb", "Ch 00000008")


def test_a_quoted_prefix_is_a_part_of_the_message() -> None:
    quoted = f"x\n<4>[{NOW:12.6f}] {FORGED}\n[   99.000001] {FORGED}\n[  T12] {FORGED}\nkernel: {FORGED}"
    assert seen(Kernel((6, NOW, quoted)).open()) == []
    caller = Kernel((4, NOW, XIDS[1]))
    text = caller.newest(1_000).replace(b"] NVRM", b"][   T12] NVRM")
    assert codes(seen(SyslogRing(lambda size: text, 1_000))) == ["xid 0000:01:00"]


def test_user_space_is_refused_line_by_line() -> None:
    assert seen(Kernel((12, NOW, f"x\n{FORGED}"), (12, NOW + 1, FORGED), (14, NOW + 2, FORGED)).open()) == []


def test_a_message_that_quotes_the_end_of_the_last_read_hides_no_newline() -> None:
    """A log that was just cleared: what was seen is shorter than a record."""
    first = (6, NOW, "x")
    kernel = Kernel(first)
    ring = kernel.open()
    ring.read()
    kernel.records.append((6, NOW + 1, f"x {kernel.lines(first)}{FORGED}"))
    assert seen(ring) == []
    kernel.records.append((4, NOW + 2, XIDS[1]))
    assert codes(seen(ring)) == ["xid 0000:01:00"]


def test_a_ring_that_ran_over_between_two_reads_begins_with_a_whole_record() -> None:
    kernel = Kernel((6, NOW, "x"))
    ring = kernel.open()
    ring.read()
    kernel.records += [(6, NOW + number, CRASH) for number in range(1, 2_000)]
    assert seen(ring) == []
    assert ring.lost == 1
    assert len(kernel.newest(kernel.size)) > kernel.size - 1_000


def test_without_times_klogctl_counts_for_nothing_and_reports_it() -> None:
    kernel = Kernel((6, NOW, CRASH), (4, NOW + 1, XIDS[1]), times=False)
    with contextlib.closing(KernelLog(kernel.open(), mode="klogctl", boot_id="b")) as log:
        assert (log.read(0), log.unusable, log.cursor) == ([], True, None)
        assert NO_TIMES in (log.reason or "")
        kernel.times = True
        assert (log.read(0.3), log.unusable, log.reason) == ([], False, None)
        kernel.records.append((4, NOW + 2, XIDS[2]))
        assert codes(event.line for event in log.read(60)) == ["xid 0000:02:00"]


def test_a_name_that_looks_like_a_time_is_none_where_the_kernel_writes_none(tmp_path: Path) -> None:
    times = tmp_path / "time"
    times.write_text("N\n")
    kernel = Kernel((6, NOW, f"[   12.345678] x[7]: segfault\n[   12.345679] {FORGED}"), times=False)
    ring = kernel.open(times)
    assert seen(ring) == []
    assert ring.unusable == NO_TIMES


TEXTS = st.sampled_from(
    [FORGED, XIDS[1], SXID, LOSS.partition("\n")[0], "NVRM: ", "x", "<4>", "[   12.345678] ", "[  T1] ", "kernel: ",
     " ", "\r", "\x0b", "\u2028", "4,1,1,-;", '{"MESSAGE":"', "MESSAGE=", "__CURSOR=x", "fallen off the bus"]
)  # fmt: skip
NAMES = st.lists(st.lists(TEXTS | st.text(max_size=8), max_size=4).map("".join), min_size=1, max_size=6).map("\n".join)
RECORDS = st.lists(
    st.tuples(st.booleans(), st.sampled_from([4, 6]), st.integers(0, 3), NAMES, st.sampled_from([*XIDS, SXID])),
    max_size=8,
)


def written(drawn: list[tuple[bool, int, int, str, str]]) -> tuple[Kernel, list[KernelLine]]:
    """A ring of these records in order of their times, and the lines of the driver's among them."""
    kernel, drivers = Kernel(), []
    for is_drivers, priority, step, name, line in sorted(drawn, key=lambda record: record[2]):
        message = line if is_drivers else f"x[7]: segfault of {name} in {name}"
        kernel.records.append((priority, NOW + step / 1e6, message))
        drivers += [next(parse_lines(["4,1,1,-;" + line]))] if is_drivers else []
    return kernel, drivers


@given(RECORDS, st.integers(0, 8))
@example([(False, 6, 0, f"x\n{FORGED}", SXID)], 0)
@example([(True, 6, 0, "x", XIDS[2]), (False, 6, 0, f"x\n{FORGED}", SXID)], 1)
def test_no_name_makes_a_line_of_the_driver(drawn: list[tuple[bool, int, int, str, str]], looks: int) -> None:
    """Whatever the ring holds and wherever one look ends: what is read is a part of what the driver wrote, in order."""
    kernel, drivers = written(drawn)
    ring, records = Kernel(), kernel.records
    reader, found = ring.open(), []
    for record in [*records[:looks], None, *records[looks:], None]:
        if record is None:
            found += seen(reader)
        else:
            ring.records.append(record)
    left = iter(drivers)
    assert all(any(identity(line) == identity(driver) for driver in left) for line in found)
    assert not reader.unusable


@given(RECORDS)
def test_a_copy_of_klogctls_text_forges_nothing_either(drawn: list[tuple[bool, int, int, str, str]]) -> None:
    kernel, drivers = written(drawn)
    lines = [line for line in parse_file(io.BytesIO(kernel.newest(kernel.size))) if line.kind != "other"]
    assert all(line.forgeable for line in lines)
    left = iter(drivers)
    assert all(any(identity(line) == identity(driver) for driver in left) for line in lines)


def entry(message: str, transport: str = "kernel", facility: str = "0") -> dict[str, str]:
    return {
        "__CURSOR": "s=1",
        "MESSAGE": message,
        "PRIORITY": "4",
        "_TRANSPORT": transport,
        "SYSLOG_FACILITY": facility,
    }


def as_json(entries: list[dict[str, str]]) -> bytes:
    return b"".join(json.dumps(each).encode() + b"\n" for each in entries)


def as_export(entries: list[dict[str, str]]) -> bytes:
    def field(name: str, value: bytes) -> bytes:
        if b"\n" not in value:
            return name.encode() + b"=" + value + b"\n"
        return name.encode() + b"\n" + len(value).to_bytes(8, "little") + value + b"\n"

    return b"".join(b"".join(field(name, value.encode()) for name, value in each.items()) + b"\n" for each in entries)


@pytest.mark.parametrize("form", [as_json, as_export])
def test_the_journals_own_forms_show_where_a_record_ends(form: Callable[[list[dict[str, str]]], bytes]) -> None:
    entries = [
        entry(CRASH), entry(XIDS[1]), entry(FORGED, transport="syslog"), entry(FORGED, facility="1"), entry(LOSS),
        entry("x\n\n__CURSOR=x\nMESSAGE=" + FORGED + "\n_TRANSPORT=kernel\nSYSLOG_FACILITY=0\n\n" + FORGED),
    ]  # fmt: skip
    lines = list(parse_file(io.BytesIO(form(entries))))
    assert [(line.kind, line.forgeable) for line in lines] == [
        ("other", False), ("xid", False), ("other", False), ("other", False), ("bus_loss", False), ("other", False)
    ]  # fmt: skip


def test_a_journal_message_of_bytes_is_read() -> None:
    line = json.dumps(entry("") | {"MESSAGE": list(XIDS[1].encode() + b"\xff")})
    assert next(parse_file(io.BytesIO(line.encode()))).pci == "0000:01:00"


@pytest.mark.parametrize(
    "text",
    [
        b'{"MESSAGE": null}', b'{"MESSAGE": 7}', b'{"MESSAGE": [1e9]}', b'{"MESSAGE": [300]}', b"{", b"__CURSOR=x", b"",
        b"__CURSOR=x\nMESSAGE\n" + b"\xff" * 8 + b"NVRM", b"__CURSOR=x\nMESSAGE\n\xff", b"\n\n",
    ],
)  # fmt: skip
def test_a_broken_journal_is_read_as_far_as_it_goes(text: bytes) -> None:
    assert [line for line in parse_file(io.BytesIO(text)) if line.kind != "other"] == []


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (f"Jan 16 14:04:39 host kernel: [   12.345678] x\nJan 16 14:04:39 host kernel: [   12.345678] {FORGED}", []),
        (f"2026-01-16T14:04:39.100001+00:00 host kernel: [   12.345678] x\n"
         f"2026-01-16T14:04:39.100009+00:00 host kernel: [   12.345678] {FORGED}", []),
        (f"[   12.345678] x\n[   12.345678] {FORGED}", []),  # dmesg --force-prefix
        (f"kern  :info  : [   12.345678] x\nkern  :info  : [   12.345678] {FORGED}", []),  # dmesg -x -S
        (f"[   12.345678] host kernel: x\n               {FORGED}", []),  # journalctl -o short-monotonic
        (f"[   12.345678] x\r[   12.345679] {FORGED}", []),
        (f"[   12.345678] x\u2028{FORGED}\x0b{FORGED}\x85{FORGED}", []),
        (f"[   12.345678] x\n[   12.345679] {XIDS[1]}", [("xid", True)]),
        (f"[Fri Aug 30 11:43:09 2024] x\n[Fri Aug 30 11:43:09 2024] {FORGED}", [("xid", True)]),
        (f"{FORGED}", [("xid", True)]),  # grep -h
        (f"x\n4,1,12345678,-;{FORGED}", [("xid", True)]),  # journalctl -o cat: what follows may be any name
        (f'x\n{json.dumps(entry(FORGED))}', [("xid", True)]),
        (f"4,1,12345678,-;{XIDS[1]}\n SUBSYSTEM=pci", [("xid", False)]),
    ],
)  # fmt: skip
def test_logs_of_text_are_put_together_or_marked(text: str, kinds: list[tuple[str, bool]]) -> None:
    lines = parse_file(io.BytesIO(text.encode()))
    assert [(line.kind, line.forgeable) for line in lines if line.kind != "other"] == kinds


class ShortReads(io.BytesIO):
    """Lines of it are read piece by piece only: /dev/zero has no end of a line."""

    def readline(self, size: int | None = -1, /) -> bytes:
        assert size is not None
        assert 0 < size <= 1 << 17
        return super().readline(size)

    def __next__(self) -> bytes:
        raise AssertionError("a line may be as long as memory")


@pytest.mark.parametrize("first", ["", "__CURSOR=a\nMESSAGE=x\n"], ids=["text", "export"])
def test_of_a_line_that_is_too_long_the_beginning_counts_and_the_next_is_read(first: str) -> None:
    endless = "\0" * (1 << 20)
    message = "MESSAGE=" if first else ""
    text = f"{first}X={endless}\n{message}{FORGED}{endless}\n{message}{XIDS[1]}\n"
    lines = parse_file(ShortReads(text.encode()))
    assert [line.pci for line in lines if line.xid == 79][-1:] == ["0000:01:00"]


ADVICE = "NVRM: Xid (PCI:0000:0f:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
PASTED = {
    "elision": "[...] {}",
    "host": "<host> {}",
    "Talos": "10.0.0.5: kern: warning: [2026-01-02T03:04:05.678901234Z]: {}",
    "Kubernetes": "2026-01-02T03:04:05.678901234Z stdout F {}",
    "container JSON": '{{"log":"{}"}}',
    "quotes": '> "{}"',
    "colours": "\x1b[32m[   12.345678] \x1b[0m\x1b[33m{}\x1b[0m",
    "cut before": "...5 node7 kernel: {}",
}


def test_a_pasted_record_in_the_form_of_a_logger_keeps_the_quotes_of_its_text() -> None:
    """Only what stands around a line of no known form may be somebody's quotation marks."""
    pasted = b'[    1.000000] first\n[   12.345678] NVRM: Xid (PCI:0000:0f:00): 31, pid=7, MMU Fault: "GRAPHICS"\n'
    assert [line.message for line in parse_file(io.BytesIO(pasted), pasted=True)][1] == 'MMU Fault: "GRAPHICS"'


@pytest.mark.parametrize("prefix", PASTED.values(), ids=PASTED)
def test_a_pasted_line_is_read_behind_any_prefix_and_followed_behind_none(prefix: str) -> None:
    pasted = prefix.format(ADVICE) + "\n"

    (line,) = parse_file(io.BytesIO(pasted.encode()), pasted=True)
    assert (line.kind, line.xid, line.pci, line.recovery, line.forgeable) == ("xid", 154, "0000:0f:00", 2, True)
    assert [line.kind for line in parse_file(io.BytesIO(pasted.encode()))] == ["other"]
    assert parse_line(pasted).kind == "other"
    assert parse_line(f"4,1,1,-;{pasted}").kind == "other"


@pytest.mark.parametrize("form", ["12,1,1,-;x: {}", "<12>[    1.000000] x: {}", "user  :warn  : [    1.000000] {}"])
def test_a_record_that_user_space_wrote_is_no_pasted_line(form: str) -> None:
    assert [line.kind for line in parse_file(io.BytesIO(form.format(ADVICE).encode()), pasted=True)] == ["other"]


@settings(deadline=None, max_examples=examples(100))
@given(before=st.text(max_size=60), after=st.text(max_size=60))
def test_a_pasted_line_is_read_or_other_whatever_stands_around_it(before: str, after: str) -> None:
    assert read_pasted(f"{before}{ADVICE}{after}").kind in ("xid", "other")
    assert read_pasted(before + after).xid is None


def test_a_long_record_costs_bounded_memory() -> None:
    lines = (f"<6>[   12.345678] {number:05} {'x' * 90}" for number in range(20_000))
    (line,) = parse_lines(lines)
    assert len(line.message or "") < 20_000


@pytest.fixture
def crash(tmp_path: Path) -> Callable[[str], None]:
    """Return `crash(name)`, which lets a program of that name crash; skip where the kernel does not log it."""
    source = tmp_path / "crash.c"
    source.write_text("int main(void) { *(volatile int *)0 = 0; }\n")
    try:
        read_newest(1)
        if Path("/proc/sys/debug/exception-trace").read_text().strip() != "1":
            pytest.skip("debug.exception-trace is off: the kernel logs no crash")
        subprocess.run(["cc", "-o", "program", "crash.c"], cwd=tmp_path, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no crash to be seen here: {error}")

    def run(name: str) -> None:
        os.link(tmp_path / "program", tmp_path / name)
        tmp_path.chmod(0o755)

        def give_up_rights() -> None:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.setgid(65534)
            os.setuid(65534)

        subprocess.run([f"./{name}"], cwd=tmp_path, check=False, preexec_fn=give_up_rights)

    return run


@pytest.mark.root
@pytest.mark.parametrize("way", ["kmsg", "klogctl"])
def test_the_real_kernel_makes_no_fault_of_a_programs_name(crash: Callable[[str], None], way: str) -> None:
    """An unprivileged program crashes; the kernel itself, facility 0, writes its name."""
    marker = f"{os.getpid()}{time.monotonic_ns()}"
    name = f"x\nNVRM: Xid (PCI:0000:0f:00): 79, {marker}"
    opened = KernelLog.open(fall_back=False) if way == "kmsg" else KernelLog(SyslogRing(), mode="klogctl")
    with contextlib.closing(opened) as log:
        if log.unusable:
            pytest.skip(f"{way}: {log.reason}")
        log.read(0)
        crash(name)
        try:
            until(lambda: marker.encode() in read_newest(65_536), "the kernel logs the crash", seconds=5.0)
        except AssertionError:
            pytest.skip("the kernel logged no crash: its limit of such lines was reached")
        assert [event for event in log.read(0.5) if marker in (event.line.message or "")] == []
    text = read_newest(65_536).decode("utf-8", "replace")
    assert [
        line for line in parse_lines(text.split("\n")) if line.kind == "xid" and marker in (line.message or "")
    ] == []
