"""Lines of a log put together into the records that the kernel wrote, and files of logs read record by record."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import BinaryIO

import msgspec
from msgspec import structs

from gpuwatch.collect.kernel_log.lines import (
    LONGEST_LINE,
    Frame,
    raw_frame,
    read_frame,
    read_message,
    read_pasted,
    text_frame,
)
from gpuwatch.model import pci
from gpuwatch.model.decoding import prepared
from gpuwatch.model.xid import KernelLine

# Which line of a log is the driver's?
#
# The kernel prints names that programs choose, and a name may hold a newline. When a binary called
# "x\nNVRM: Xid (PCI:0000:0f:00): 79, ..." crashes, the kernel's own record is "x[7]: segfault at 0 ... in x", a newline
# and the rest of the name. /dev/kmsg escapes the newline, so the record stays one line. klogctl(3), `dmesg -S`,
# `dmesg --force-prefix` and a syslog daemon that reads /proc/kmsg put the record's prefix, `<6>[   12.345678] `, before
# each of its lines: what follows the newline looks like a record of its own, from facility 0. Any user can write it.
#
# Its words do not distinguish it from the driver's, for they are the same. Its prefix does: all lines of one record
# have one priority and one time, and follow each other. A line whose prefix differs from that before begins a record,
# so lines with one prefix are taken for one record, of which only the first line can be the driver's.
#
# Two records may share a microsecond: an interrupt of each of eight GPUs, each on a processor of its own, writes an
# XID. Those are not lost. While every line so far with this prefix is one of the driver's that this package reads, the
# only text in them that is not the driver's is a process name of at most 15 characters, and no line that reads as an
# XID, an SXid or a bus loss is that short: the shortest, "NVRM: Xid (0000:3b:00): 79", has 26. So another line of the
# driver begins another record. After any other line (also one of the driver's that is not read here: "API mismatch"
# repeats 64 characters of its caller) nothing with this prefix counts. What is lost is a fault that shares microsecond
# and priority with another message before it; the driver's event reports it still.
#
# Without times (printk.time=0) the rule would hold by priority alone, but a name may then imitate a prefix with a time,
# and the end of the text that an earlier call read cannot be found for certain. So no record of klogctl without times
# counts, and the source reports this. A file of text can have been cut by grep, which removes first lines, and often
# has times to the second or none: the rule is applied where there are times to the microsecond, and what it leaves is
# marked `forgeable`. Records of /dev/kmsg and the journal's JSON and export forms show where they begin and end.

_LOSS_OPENS = re.compile(
    rf"NVRM: The NVIDIA GPU {pci.PATTERN}(?: \(PCI ID: [0-9a-f:]{{9}}\))?[ \t]*(?:\n|\Z)", re.ASCII
)
_LOSS_GOES_ON = re.compile(r"\s*NVRM: (?:\(PCI ID:|installed in|has fallen|fallen off|is not|not responding)", re.A)


def records(frames: Iterable[Frame]) -> Iterator[Frame]:
    """Join frames of single lines into records. The driver's bus loss, a record of three lines, is one in any form."""
    opened: Frame | None = None
    is_drivers = True
    for frame in frames:
        if opened is not None:
            is_same = frame.stamp is not None and frame.stamp == opened.stamp
            is_loss = (
                frame.stamp in (None, opened.stamp)
                and frame.facility in (None, opened.facility)
                and _opens_loss(opened)
                and _LOSS_GOES_ON.match(frame.message)
            )
            if is_same and not is_loss:
                is_drivers = is_drivers and _is_read(opened) and (_is_read(frame) or _opens_loss(frame))
            elif not is_same:
                is_drivers = True
            if is_loss or (is_same and not is_drivers):
                if len(opened.message) < LONGEST_LINE:
                    opened = opened._replace(message=f"{opened.message}\n{frame.message.lstrip()}")
                continue
            yield opened
        opened = frame
        if frame.stamp is None and not _opens_loss(frame):  # complete: it must not wait for a later line
            yield frame
            opened = None
    if opened is not None:
        yield opened


def _is_read(frame: Frame) -> bool:
    return read_message(frame.message).kind != "other"


def _opens_loss(frame: Frame) -> bool:
    return _LOSS_OPENS.match(frame.message) is not None


def parse_lines(lines: Iterable[str], *, pasted: bool = False) -> Iterator[KernelLine]:
    """Kernel log lines in any form, one `KernelLine` a record; `pasted` also takes prefixes of no known logger where no
    form shows that user space wrote the record. Never raises.
    """
    for frame in records(_text_frames(lines)):
        line = read_frame(frame)
        if pasted and line.kind == "other" and not frame.whole and not frame.facility and "\n" not in frame.message:
            line = read_pasted(frame.message)
        yield line if frame.whole or line.kind == "other" else structs.replace(line, forgeable=True)


def parse_file(file: BinaryIO, *, pasted: bool = False) -> Iterator[KernelLine]:
    """As `parse_lines`, a file of any form, the journal's export form too. Never raises but for the file's OSError."""
    lines = _lines(file)
    first = next(lines, b"")
    if first.startswith(b"__CURSOR="):
        return map(read_frame, _export_frames(chain((first,), lines), file))
    return parse_lines((line.decode("utf-8", "replace") for line in chain((first,), lines)), pasted=pasted)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Of a line that is too long, as in a file without line ends, the beginning. Only "\\n" ends one: Python's own
    text files also end one at "\\r", which a process name may hold.
    """
    while line := (rest := file.readline(4 * LONGEST_LINE)):
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(4 * LONGEST_LINE)
        yield line


def text_frames(text: str) -> list[Frame]:
    """The records of a log in any form of text."""
    return list(records(_text_frames(text.split("\n"))))


def _text_frames(lines: Iterable[str]) -> Iterator[Frame]:
    """Lines in any mixture of forms; the key=value lines that follow a raw record are dropped.

    After the first line of text no record is known to be whole: its message could contain a line that looks like one.
    """
    raw: Frame | None = None
    is_whole = True
    for line in lines:
        if raw is not None and line.startswith(" "):
            continue
        text = line.rstrip("\r\n")[:LONGEST_LINE]
        raw = raw_frame(text)
        frame = raw or _json_frame(text) or text_frame(text)
        is_whole = is_whole and frame.whole
        yield frame._replace(whole=is_whole)


class _Entry(msgspec.Struct):
    """The members that `journalctl -o json` has of a record; a message that is no plain text is a list of its bytes."""

    message: str | tuple[int, ...] | None = msgspec.field(name="MESSAGE")
    transport: str | None = msgspec.field(name="_TRANSPORT", default=None)
    facility: str | None = msgspec.field(name="SYSLOG_FACILITY", default=None)


_decode_entry = msgspec.json.Decoder(prepared(_Entry)).decode


def _json_frame(text: str) -> Frame | None:
    if not text.startswith("{"):
        return None
    try:
        entry = _decode_entry(text)
        message = (
            entry.message if isinstance(entry.message, str) else bytes(entry.message or ()).decode("utf-8", "replace")
        )
    except (msgspec.MsgspecError, ValueError):
        return None
    return _entry_frame(message, entry.transport, entry.facility)


def _entry_frame(message: str, transport: str | None, facility: str | None) -> Frame:
    """A journal entry; the journal itself sets `_TRANSPORT`, so that a program cannot claim to be the kernel."""
    is_kernels = transport in ("kernel", None) and facility in ("0", None)
    return Frame(message, 0 if is_kernels else 1, whole=None not in (transport, facility))


def _export_frames(lines: Iterable[bytes], file: BinaryIO) -> Iterator[Frame]:
    """https://systemd.io/JOURNAL_EXPORT_FORMATS/: `NAME=value`, or `NAME`, eight bytes of length and any bytes."""
    entry: dict[str, str] = {}
    for line in chain(lines, (b"\n",)):
        name, is_text, value = line.rstrip(b"\n").partition(b"=")
        if not name:
            if "MESSAGE" in entry:
                yield _entry_frame(entry["MESSAGE"], entry.get("_TRANSPORT"), entry.get("SYSLOG_FACILITY"))
            entry = {}
        elif not is_text:
            left = int.from_bytes(file.read(8), "little") + 1  # and a newline
            value = file.read(min(left, LONGEST_LINE))
            while (left := left - LONGEST_LINE) > 0 and file.read(min(left, LONGEST_LINE)):
                pass
        if name in (b"MESSAGE", b"_TRANSPORT", b"SYSLOG_FACILITY"):
            entry[name.decode()] = value[:LONGEST_LINE].decode("utf-8", "replace")
