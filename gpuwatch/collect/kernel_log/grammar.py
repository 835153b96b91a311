"""The NVIDIA driver's messages in the kernel log, of every era, read into `KernelLine`s.

A message counts only when it *begins* with the driver's own prefix, so that another program's text about an
Xid is never taken for one. Nothing here raises, whatever the text; every pattern is bounded or anchored, so no
text makes it slow. What loggers put around a message is the business of `kmsg_framing`.
"""

import re
from collections.abc import Callable

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
    rf"nvidia-nvswitch(?P<switch>\d{{1,4}}): SXid \({_ADDRESS}\): (?P<sxid>\d{{1,6}}), (?P<rest>.*)\Z",
    re.A | re.S,
)
_SXID_FAULT = re.compile(
    r"(?P<severity>Fatal|Non-fatal|Correctable),\s*(?P<message>(?:Link (?P<link>\d{1,4})\b)?.*)\Z",
    re.A | re.I | re.S,
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
    """What one kernel message says about a GPU or an NVSwitch; `other` when it is not the driver's."""
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
        nvlink=_nvlink(text) if code in NVLINK5_XIDS else None,
    )


def _nvlink(text: str) -> NvLinkError | None:
    match = _NVLINK.match(text)
    if match is None:
        return None
    link = int(match["link"])
    return NvLinkError(
        unit=match["unit"].upper(),
        severity="fatal" if match["severity"].lower() == "fatal" else "nonfatal",
        link=link if link >= 0 else None,
        xc=int(match["xc"]),
        injected=int(match["injected"]) != 0,
        words=tuple(int(word, 16) for word in _WORD.findall(match["words"] or "")),
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


def _uuid(match: re.Match[str]) -> KernelLine:
    return KernelLine(kind="gpu_uuid", pci=match["pci"].lower(), uuid=match["uuid"])


def _serial(match: re.Match[str]) -> KernelLine:
    return KernelLine(kind="gpu_serial", serial=match["serial"])


def _bus_loss(match: re.Match[str]) -> KernelLine:
    return KernelLine(kind="bus_loss", pci=match["pci"].lower(), message=match["message"])


def _integer(text: str | None) -> int | None:
    return None if text is None else int(text)


_READERS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], KernelLine]], ...] = (
    (_XID, _xid),
    (_SXID, _sxid),
    (_UUID, _uuid),
    (_SERIAL, _serial),
    (_BUS_LOSS, _bus_loss),
)
