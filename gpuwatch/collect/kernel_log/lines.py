r"""A message of the kernel log, from every era and logger, read into a `KernelLine`.

A message of the NVIDIA driver counts only when it *begins* with the driver's own prefix, so that another program's text
about an Xid is never taken for one. No function here raises, whatever the text; every pattern is bounded or anchored,
so no text makes it slow. Loggers put their own prefix around a message:

    6,1042,2894756078,-;NVRM: ...                        /dev/kmsg: priority, sequence, microseconds, flags
    <4>[ 2894.756078] NVRM: ...                          klogctl(3), dmesg -r
    kern  :warn  : [ 2894.756078] NVRM: ...              dmesg -x
    [Fri Aug 30 11:43:09 2024] NVRM: ...                 dmesg -T
    Jan 16 14:04:39 host kernel: [44643.002866] NVRM:    syslog, journal

The kernel gives text from user space another facility (priority >> 3); only the kernel itself writes facility 0.
Where the form shows it, other facilities are refused: otherwise every container with /dev/kmsg could forge a fault.
`records` decides which lines are one message.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from msgspec import structs

from gpuwatch.model import pci
from gpuwatch.model.xid import KernelLine, NvLinkError

NVLINK5_XIDS = range(144, 151)
RECOVERY_XID = 154

_ADDRESS = rf"(?:PCI:)?(?P<pci>{pci.PATTERN})"

_XID = re.compile(
    rf"NVRM: Xid \({_ADDRESS}(?: GPU-I:(?P<gi>\d{{1,4}}))?(?: GPU-CI:(?P<ci>\d{{1,4}}))?\): "
    r"(?P<xid>\d{1,5})(?:,\s*(?P<rest>.*)|\s*)\Z",
    re.A | re.S,
)
_OWNER = re.compile(
    r"pid=(?:'?<unknown>'?|'?(?P<pid>\d{1,10})'?)"
    r"(?:, name=(?:'?<unknown>'?|(?P<name>.{0,64}?)))?(?:,\s+|,?\Z)",
    re.A | re.S,
)
_RECOVERY = re.compile(
    r"recovery action changed from 0x(?P<previous>[0-9a-f]{1,8}) \(.{0,80}?\) to 0x(?P<now>[0-9a-f]{1,8})",
    re.A | re.I | re.S,
)
_NVLINK = re.compile(
    r"(?P<unit>[A-Z0-9_/]{1,64})\s+(?P<severity>Fatal|Nonfatal)\s+XC ?(?P<xc>\d{1,4})\s+i ?(?P<injected>\d{1,4})"
    r"\s+Link\s+(?P<link>-?\d{1,4})(?:\s+[\[(](?P<words>[0-9a-fx ]*))?",
    re.A | re.I,
)
_WORD = re.compile(r"0x([0-9a-f]{1,8})\b", re.A | re.I)
_CAUSED_BY = re.compile(r"caused by previous Xid (\d{1,5})\Z", re.A)

_SXID = re.compile(
    rf"nvidia-nvswitch(?P<switch>\d{{1,4}}): SXid \({_ADDRESS}\): (?P<sxid>\d{{1,6}}), (?P<rest>.*)\Z", re.A | re.S
)
_SXID_FAULT = re.compile(
    r"(?P<severity>Fatal|Non-fatal|Correctable),\s*(?P<message>(?:Link (?P<link>\d{1,4})\b)?.*)\Z", re.A | re.I | re.S
)

_UUID = re.compile(
    rf"NVRM: GPU at {_ADDRESS}: (?P<uuid>GPU-[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}})\Z", re.A
)
_SERIAL = re.compile(r"NVRM: GPU Board Serial Number: (?P<serial>[\w-]{1,64})\Z", re.A)
_BUS_LOSS = re.compile(
    rf"NVRM: (?:The NVIDIA )?GPU (?:at )?{_ADDRESS}(?![\w.])"
    r"(?::? |\W.{0,40}?\(PCI ID: [0-9a-f:]{9}\).{0,80}?)"
    r"(?P<message>(?:GPU has |has )?fallen off the bus.*)\Z",
    re.A | re.S,
)


def read_message(message: str) -> KernelLine:
    """The content of one kernel message about a GPU or an NVSwitch; `other` when it is not the driver's."""
    message = message.rstrip()
    if message.startswith(("NVRM:", "nvidia-nvswitch")):
        for pattern, read in _READERS:
            match = pattern.match(message)
            if match is not None:
                return read(match)
    return KernelLine(kind="other", message=message or None)


def _xid(match: re.Match[str]) -> KernelLine:
    code, rest = int(match["xid"]), match["rest"] or ""
    owner = _OWNER.match(rest)
    text = rest[owner.end() :] if owner else rest
    cause = _CAUSED_BY.search(text)
    recovery = _RECOVERY.search(text) if code == RECOVERY_XID else None
    nvlink = None
    if code in NVLINK5_XIDS and (error := _NVLINK.match(text)) is not None:
        link = int(error["link"])
        nvlink = NvLinkError(
            unit=error["unit"].upper(),
            severity="fatal" if error["severity"].lower() == "fatal" else "nonfatal",
            link=link if link >= 0 else None,
            xc=int(error["xc"]),
            injected=int(error["injected"]) != 0,
            words=tuple(int(word, 16) for word in _WORD.findall(error["words"] or "")),
        )
    return KernelLine(
        kind="xid",
        pci=match["pci"].lower(),
        xid=code,
        gi=_integer(match["gi"]),
        ci=_integer(match["ci"]),
        pid=_integer(owner["pid"]) if owner else None,
        name=(owner["name"] or None) if owner else None,
        message=(text[: cause.start()] if cause else text).strip() or None,
        caused_by=int(cause[1]) if cause else None,
        recovery=int(recovery["now"], 16) if recovery else None,
        recovery_previous=int(recovery["previous"], 16) if recovery else None,
        nvlink=nvlink,
    )


def _sxid(match: re.Match[str]) -> KernelLine:
    fault = _SXID_FAULT.match(match["rest"])
    return KernelLine(
        kind="sxid" if fault else "sxid_detail",
        pci=match["pci"].lower(),
        sxid=int(match["sxid"]),
        switch=int(match["switch"]),
        severity=fault["severity"].lower() if fault else None,
        link=_integer(fault["link"]) if fault else None,
        message=(fault["message"] if fault else match["rest"]) or None,
    )


def _integer(text: str | None) -> int | None:
    return None if text is None else int(text)


_READERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], KernelLine]], ...] = (
    (_XID, _xid),
    (_SXID, _sxid),
    (_UUID, lambda match: KernelLine(kind="gpu_uuid", pci=match["pci"].lower(), uuid=match["uuid"])),
    (_SERIAL, lambda match: KernelLine(kind="gpu_serial", serial=match["serial"])),
    (_BUS_LOSS, lambda match: KernelLine(kind="bus_loss", pci=match["pci"].lower(), message=match["message"])),
)

LONGEST_LINE = 16_384
"""Characters kept of a line; the kernel's own limit for a record is below it."""

_RAW = re.compile(r"(?P<priority>\d{1,9}),(?P<sequence>\d{1,20}),(?P<usec>\d{1,20}),[^;\n]{0,99};", re.A)
_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")

_DAY, _MONTH = r"[A-Z][a-z]{2}", r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_TIME = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_SYSLOG = re.compile(r"(<(\d{1,9})>\[ *(\d{1,12}\.\d{6})\])(?:\[ *[TC]\d{1,9}\])? ?", re.A)
_MICROSECONDS = re.compile(r"[.,]\d{6}", re.A)
_PREFIX = re.compile(
    rf"""
    (?:<(?P<priority>\d{{1,9}})>)?                                   # klogctl, dmesg -r
    (?:(?P<facility>[a-z]{{1,12}}\d?)\ *:[a-z]{{1,12}}\ *:\ *)?      # dmesg -x
    (?:
      (?P<time>\[\ *(?P<uptime>\d{{1,12}}\.\d{{1,9}})\]              # dmesg, klogctl, journal short-monotonic
        |\[{_DAY}\ {_MONTH}\ [\ \d]\d\ {_TIME}\ \d{{4}}\]            # dmesg -T
        |\d{{4}}-\d\d-\d\dT{_TIME}(?:Z|[+-]\d\d:?\d\d)?              # ISO: dmesg, syslog, journal
        |(?:{_DAY}\ )?\d{{4}}-\d\d-\d\d\ {_TIME}(?:\ [A-Z]{{2,5}})?  # journal short-full
        |{_MONTH}\ [\ \d]\d\ (?:\d{{4}}\ )?{_TIME}                   # syslog, journal short
        |\d{{9,11}}\.\d{{1,6}}                                       # journal short-unix
      )\ *(?:(?:[\w.-]{{1,255}}\ )?kernel:\ *)?
      |kernel:\ *
    )?
    (?P<printk>\[\ *\d{{1,12}}\.\d{{1,9}}\]\ *)?                     # printk's own time behind syslog's
    (?:\[\ *[TC]\d{{1,9}}\]\ *)?                                     # the calling task or processor
    """,
    re.ASCII | re.VERBOSE,
)


class Frame(NamedTuple):
    """One kernel message and what its logger states about it; None: the form does not have it."""

    message: str
    facility: int | None = None
    sequence: int | None = None
    uptime: float | None = None
    """Seconds since boot."""
    stamp: str | None = None
    """Priority and time to the microsecond, the same on all lines of a record; None where the form has no such time."""
    whole: bool = False
    """Whether the form shows where a record begins and ends: no text in a message can look like another record."""


def raw_frame(line: str) -> Frame | None:
    """The first line of a /dev/kmsg record, escapes resolved; None when it is no such line."""
    match = _RAW.match(line)
    if match is None:
        return None
    body = line[match.end() :].encode("utf-8", "replace")
    text = _ESCAPE.sub(lambda escape: bytes.fromhex(escape[1].decode()), body).decode("utf-8", "replace")
    priority, usec = int(match["priority"]), int(match["usec"])
    return Frame(text, priority >> 3, int(match["sequence"]), usec / 1e6, whole=True)


def syslog_frame(line: str) -> Frame | None:
    """A line as klogctl gives it; None without its time, which `printk.time` turns off."""
    match = _SYSLOG.match(line)
    if match is None:
        return None
    return Frame(line[match.end() :], int(match[2]) >> 3, None, float(match[3]), stamp=match[1], whole=True)


def text_frame(line: str) -> Frame:
    """A line as dmesg, klogctl, syslog or the journal print it."""
    match = _PREFIX.match(line)
    if match is None:
        return Frame(line)
    facility = int(match["priority"]) >> 3 if match["priority"] else None
    if match["facility"]:
        facility = 0 if match["facility"] == "kern" else 1
    # printk's own time is the same on all lines of a record, syslog's is that of their arrival
    times = (match["uptime"], match["printk"], match["time"])
    time = next((time.strip(" []") for time in times if time and _MICROSECONDS.search(time)), None)
    stamp = None if time is None else f"{match['priority'] or match['facility'] or ''} {time}"
    return Frame(line[match.end() :], facility, None, float(match["uptime"]) if match["uptime"] else None, stamp=stamp)


def read_frame(frame: Frame, *, accept_userspace: bool = False) -> KernelLine:
    """The content of a frame; `other` when user space wrote it."""
    if frame.facility and not accept_userspace:
        return KernelLine(kind="other", message=frame.message.rstrip() or None)
    return read_message(frame.message)


def parse_line(text: str | bytes) -> KernelLine:
    """One record, which may hold several lines. Never raises."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    text = text[:LONGEST_LINE]
    return read_frame(raw_frame(text.split("\n", 1)[0]) or text_frame(text))


_COLOUR = re.compile(r"\x1b\[[0-9;]{0,20}[A-Za-z]", re.A)
_DRIVER = re.compile(r"NVRM: |nvidia-nvswitch\d{1,4}: ", re.A)


def read_pasted(text: str) -> KernelLine:
    """A line that a person pasted, whatever stands before the driver's words or quotes them: `[...]`, `<host>`, Talos'
    or Kubernetes' prefix, colours. Never raises. Any program can print such a line: it serves only to explain, and is
    marked `forgeable`. Code that follows the kernel log uses `parse_line` and `records`.
    """
    plain = _COLOUR.sub("", text[:LONGEST_LINE])
    start = _DRIVER.search(plain)
    line = read_message(plain[start.start() :].rstrip(" \t\r\n\"'`,}")) if start else read_message(plain)
    return line if line.kind == "other" else structs.replace(line, forgeable=True)
