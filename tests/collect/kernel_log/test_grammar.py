"""Kernel lines of every era and every logger parse to their fields, and nothing else ever looks like an XID."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.collect.kernel_log.lines import LONGEST_LINE, parse_line, raw_frame
from gpuwatch.collect.kernel_log.records import parse_lines
from gpuwatch.model.xid import NvLinkError

SAMPLES = [line.split("\t") for line in (Path(__file__).parent / "data/kmsg_samples.tsv").read_text().splitlines()[1:]]
XID_79 = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1173, name=python3, GPU has fallen off the bus."


@pytest.mark.parametrize("row", SAMPLES, ids=lambda row: row[0][:60])
def test_real_lines_parse_to_their_fields(row: list[str]) -> None:
    text, *expected, _source = row
    for form in (text, text.replace("\\n", "\n")):
        line = parse_line(form)
        code = line.xid if line.xid is not None else line.sxid
        found = [line.kind, line.pci, code, line.pid, line.name]
        assert ["" if value is None else str(value) for value in found] == expected


def test_owner_message_and_cause_are_taken_apart() -> None:
    line = parse_line(
        "NVRM: Xid (PCI:0000:dc:00): 45, pid=18, name=ray::Worker, x, Ch 00000001 caused by previous Xid 149"
    )
    assert (line.pid, line.name, line.message, line.caused_by) == (18, "ray::Worker", "x, Ch 00000001", 149)
    assert parse_line("NVRM: Xid (PCI:0000:dc:00): 43, pid=7, name=a,b, Ch 1").name == "a,b"


def test_mig_instances() -> None:
    line = parse_line("NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:02): 94, pid=7194, Contained: SM (0x1).")
    assert (line.gi, line.ci, line.pid, line.message) == (5, 2, 7194, "Contained: SM (0x1).")


@pytest.mark.parametrize(
    ("words", "previous", "now"),
    [
        ("0x0 (None) to 0x4 (Drain and Reset)", 0, 4),
        ("0x2 (OS Reboot) to 0x0 (None)", 2, 0),
        ("0x0 (x) to 0x1 (PF FLR)", 0, 1),
    ],
)
def test_recovery_actions_are_numbers(words: str, previous: int, now: int) -> None:
    line = parse_line(f"NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from {words}")
    assert (line.recovery_previous, line.recovery) == (previous, now)
    assert parse_line(f"NVRM: Xid (PCI:0000:01:00): 79, recovery action changed from {words}").recovery is None


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "NETIR_LINK_EVT  Fatal   XC0 i1 Link 01 (0x021425c6 0x00000000)",
            NvLinkError(unit="NETIR_LINK_EVT", severity="fatal", link=1, injected=True, words=(0x021425C6, 0)),
        ),
        (
            "TREX Nonfatal XC 1 i 0 Link 02 [0x01 0x2]",
            NvLinkError(unit="TREX", severity="nonfatal", link=2, xc=1, words=(1, 2)),
        ),
        ("MSE_WATCHDOG Fatal XC0 i0 Link -1 (", NvLinkError(unit="MSE_WATCHDOG", severity="fatal")),
        ("NVLink: Link Down While Active.", None),
    ],
)
def test_nvlink5_bodies(body: str, expected: NvLinkError | None) -> None:
    assert parse_line(f"NVRM: Xid (PCI:0000:01:00): 150, {body}\n").nvlink == expected


def test_nvswitch_lines() -> None:
    line = parse_line("[12.5] nvidia-nvswitch3: SXid (PCI:0000:0a:00.0): 22013, Non-fatal, Link 55 Minion")
    assert (line.kind, line.switch, line.sxid, line.severity, line.link) == ("sxid", 3, 22013, "non-fatal", 55)
    host = parse_line("nvidia-nvswitch0: SXid (PCI:0000:0a:00.0): 26006, Fatal, SOE HALTED")
    assert (host.kind, host.severity, host.link, host.message) == ("sxid", "fatal", None, "SOE HALTED")


def test_identity_lines() -> None:
    uuid = "GPU-efbdfde9-5798-a6e7-4c46-12518fa15375"
    assert parse_line(f"NVRM: GPU at PCI:0000:00:05: {uuid}").uuid == uuid
    assert parse_line(f"NVRM: GPU at 0000:00:05: {uuid}").pci == "0000:00:05"
    assert parse_line("NVRM: GPU Board Serial Number: 1653723052734").serial == "1653723052734"


LOSS = (
    "NVRM: The NVIDIA GPU 0000:b3:00.0",
    "NVRM: (PCI ID: 10de:26b5) installed in this system has",
    "NVRM: fallen off the bus and is not responding to commands.",
)


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.",
        "NVRM: GPU at 0000:b3:00.0 has fallen off the bus.",
        "\n".join(LOSS),
        "\n".join([f"[ 1843.308145] {LOSS[0]}", *(f"               {line}" for line in LOSS[1:])]),
        "\n".join(f"Jan 16 14:04:39 host kernel: [44643.002866] {line}" for line in LOSS),
        "\n".join(f"<4>[44643.002866] {line}" for line in LOSS),
        "4,7,44643002866,-;" + r"\x0a".join(LOSS),
        "host kernel: ".join(["Jan 16 14:04:39 ", "#012".join(LOSS)]),
    ],
)
def test_bus_loss_in_each_form_and_logger(text: str) -> None:
    (line,) = parse_lines(text.split("\n"))
    assert (line.kind, line.pci, line.xid) == ("bus_loss", "0000:b3:00.0", None)
    assert line.message is not None
    assert "fallen off the bus" in line.message


def test_a_bus_loss_that_never_ends_is_none() -> None:
    kinds = [line.kind for line in parse_lines([LOSS[0], XID_79, LOSS[1], LOSS[2]])]
    assert kinds == ["other", "xid", "other", "other"]
    assert parse_line("NVRM: GPU 0000:b3:00.0: it may have fallen off the bus").kind == "other"


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "[44643.002866] ",
        "[  130.456250] [ T1946] ",
        "[   12.3][   C0] ",
        "[Mon Aug  5 03:54:13 2024] ",
        "<4>[   12.345678] ",
        "kern  :warn  : [ 12.345678] ",
        "kern  :warn  : 2025-01-21T04:41:44,287197+00:00 ",
        "2025-01-21T04:41:44+0000 gpu-node.example kernel: ",
        "Tue 2025-01-21 04:41:44 UTC gpu_node kernel: ",
        "1737434504.287197 node kernel: ",
        "[   12.345678] node kernel: ",
        "Jan 16 14:04:39 pyrite kernel: [44643.002866] ",
        "Jan 16 14:04:39 pyrite kernel: ",
        "kernel: [16450076.435595] ",
        "4,11,2894756078,-;",
        "4,11,2894756078,-,caller=T1946;",
        "0,11,2894756078,c;",
    ],
)
def test_loggers_prefixes_come_off(prefix: str) -> None:
    (line,) = parse_lines([prefix + XID_79])
    assert replace(line, forgeable=False) == parse_line(prefix + XID_79) == parse_line(XID_79)
    assert line.forgeable is (";" not in prefix)
    assert (line.xid, line.pci, line.pid) == (79, "0000:3b:00", 1173)


@pytest.mark.parametrize(
    "prefix",
    [
        "12,11,2894756078,-;",
        "11,11,2894756078,-;",
        "<12>[   12.345678] ",
        "user  :notice: [ 12.345678] ",
        "daemon:err   : [ 12.345678] ",
        "systemd[1]: ",
        "4,11,2894756078,-;systemd[1]: ",
        "4,11,2894756078,-;kernel: ",
        "4,11,2894756078,-; ",
        r"4,11,2894756078,-;x\x0a",
        "[   12.345678] systemd[1]: ",
        "Jan 16 14:04:39 pyrite systemd[1]: ",
        "Jan 16 14:04:39 pyrite systemd[1]: kernel: ",
        "Jan 16 14:04:39 pyrite logger: kernel: ",
        "evil[1]: kernel: ",
        "echo ",
        " ",
        "               ",
        "NVRM: ",
    ],
)
def test_what_user_space_wrote_is_refused(prefix: str) -> None:
    assert parse_line(prefix + XID_79).kind == "other"
    assert [line.kind for line in parse_lines([prefix + XID_79])] == ["other"]


def test_metadata_lines_of_a_raw_record_are_no_records() -> None:
    lines = ["4,11,2894756078,-;NVRM: hello", " SUBSYSTEM=pci", f" {XID_79}", "4,12,2894756079,-;" + XID_79]
    assert [line.kind for line in parse_lines(lines)] == ["other", "xid"]
    assert parse_line("\n".join(lines[:3])).message == "NVRM: hello"


def test_escapes_of_raw_records_are_resolved() -> None:
    frame = raw_frame(r"6,1,2000000,-;caf\xc3\xa9 \x5cx0a\x0aend")
    assert frame is not None
    assert (frame.message, frame.uptime, frame.facility) == ("café \\x0a\nend", 2.0, 0)


@given(st.text() | st.binary())
@example("NVRM: Xid (PCI:0000:01:00): " + "9" * 5000)
@example("4," + "9" * 5000 + ",1,-;x")
@example("NVRM: Xid (PCI:0000:01:00): 48, pid=" + "9" * 5000 + ", x")
@example("NVRM: Xid (PCI:0000:01:00): 150, U Fatal XC0 i0 Link 1 (0xx0 x 0x)")
@example("\ud800")
def test_no_text_is_an_xid_by_chance_and_none_raises(text: str | bytes) -> None:
    line = parse_line(text)
    driver = b"Xid (" in text if isinstance(text, bytes) else "Xid (" in text
    assert line.kind == "other" or driver


FRAGMENTS = st.sampled_from(
    [
        "NVRM: ", "Xid (", "PCI:", "0000:3b:00", ".0", " GPU-I:01", "): ", "79", ", ", "pid=", "'<unknown>'", "12",
        "name=", "python", "GPU has fallen off the bus", "recovery action changed from 0x1 (", ") to 0x2", "kernel: ",
        "[  1.5] ", "<4>", "<12>", "4,1,1,-;", "12,1,1,-;", "\n", "\\x0a", " ", "nvidia-nvswitch0: SXid (", "Fatal",
        " caused by previous Xid 4", "XC0 i0 Link 01 (0x1", "systemd[1]: ", "NVRM: The NVIDIA GPU 0000:3b:00.0",
    ]
)  # fmt: skip


@given(st.lists(FRAGMENTS, max_size=4).map("".join))
def test_only_a_message_that_begins_with_the_driver_counts(prefix: str) -> None:
    text = prefix + XID_79
    if parse_line(text).kind != "other":
        starts = [at for name in ("NVRM:", "nvidia-nvswitch") if (at := text.find(name)) >= 0]
        before = text[: min(starts)]
        assert "systemd" not in before
        assert "<12>" not in before
        assert not text.startswith("12,")


@given(st.lists(FRAGMENTS, max_size=14).map("".join))
def test_a_stream_never_raises(text: str) -> None:
    assert all(line.kind for line in parse_lines(text.split("\n")))


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: Xid (PCI:0000:01:00): 154, " + "recovery action changed from 0x1 (" * 40_000,
        "NVRM: Xid (PCI:0000:01:00): 45, " + " " * 1_000_000,
        "NVRM: GPU 0000:01:00.0" + " (PCI ID: 10de:26b5)" * 50_000,
        "[" + " " * 1_000_000,
        "kern" + " " * 1_000_000,
    ],
    ids=["recovery", "blanks", "loss", "stamp", "facility"],
)
def test_long_lines_are_cut_not_suffered(text: str) -> None:
    line = parse_line(text)
    assert len(line.message or "") <= LONGEST_LINE
