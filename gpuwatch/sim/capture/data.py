"""The file a capture is kept in: each question asked of the driver once, with its answers in order.

JSON lines, readable by people, gzipped when the name ends in `.gz`: a header, a line per question, an end mark. Equal
answers that follow each other are counted, not repeated, so that an hour of samples stays small.
"""

import contextlib
import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pynvml

from gpuwatch.collect.nvml.library import error_text
from gpuwatch.config.named_file import replacing
from gpuwatch.host.plain_file import opened
from gpuwatch.model.decoding import prepared
from gpuwatch.model.errors import UsageError
from gpuwatch.model.snapshot import UNREADABLE

FORMAT = "gpuwatch-capture"
VERSION = 1
MAX_FILE_BYTES = 256 << 20
MAX_ANSWERS = 2_000_000

Question = tuple[Any, ...]
"""Function name and arguments: numbers and strings as they are, handles as tokens such as `@gpu0/mig1`."""

Answer = Any
"""Plain data: scalars, lists, and the one-key mappings of `codec`."""


class Header(msgspec.Struct, kw_only=True):
    """What was recorded, by what, when. `at` is RFC 3339 UTC, `interval` seconds between samples.

    `fields_by_name`: fields have their newest ids and not those of `driver`, as in a recording made from a dump.
    """

    format: str = FORMAT
    version: int = VERSION
    gpuwatch: str = ""
    at: str = ""
    driver: str | None = None
    models: list[str] = []
    samples: int = 0
    interval: float = 0.0
    masked: bool = False
    fields_by_name: bool = False


class CaptureLine(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One question: runs of (times in a row, answer), the driver's time per call in µs, a comment for people."""

    ask: list[Any]
    answers: list[tuple[int, Any]]
    us: list[int] = []
    about: str = ""


class End(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """The last line: how many questions there must be, and CRC-32 of all before it; remove the CRC to edit by hand."""

    end: int
    crc: int | None = None


class Recording:
    """Questions and answers of one capture."""

    def __init__(self, header: Header | None = None) -> None:
        self.header = header or Header()
        self.runs: dict[Question, list[tuple[int, Answer]]] = {}
        self.microseconds: dict[Question, list[int]] = {}
        self._left = MAX_ANSWERS

    @property
    def full(self) -> bool:
        """Whether the bound on answers is reached; further ones are not kept."""
        return self._left <= 0

    def add(self, question: Question, answer: Answer, microseconds: int | None = None) -> None:
        """Append one answer."""
        if self.full:
            return
        self._left -= 1
        runs = self.runs.setdefault(question, [])
        if runs and runs[-1][1] == answer:
            runs[-1] = (runs[-1][0] + 1, answer)
        else:
            runs.append((1, answer))
        if microseconds is not None:
            self.microseconds.setdefault(question, []).append(microseconds)

    def lines(self) -> list[CaptureLine]:
        """One line per question, in the order first asked."""
        return [
            CaptureLine(ask=list(question), answers=runs, us=self.microseconds.get(question, []), about=about(question))
            for question, runs in self.runs.items()
        ]

    def encoded(self) -> bytes:
        """The file's content before packing."""
        lines = self.lines()
        body = b"".join(msgspec.json.encode(line) + b"\n" for line in (self.header, *lines))
        return body + msgspec.json.encode(End(len(lines), zlib.crc32(body))) + b"\n"


@contextlib.contextmanager
def new_capture(path: Path) -> Iterator[Callable[[Recording], object]]:
    """A function that writes a recording, once, into the file that replaces `path` when the block ends.

    Raises:
        UsageError: the path cannot be written.
    """
    try:
        with replacing(path) as file:
            packed = gzip.compress if path.suffix == ".gz" else bytes
            yield lambda recording: file.write(packed(recording.encoded()))
    except OSError as error:
        why = error.strerror or str(error)
        raise UsageError(f"cannot write the capture {path}", why, "give a path that can be written") from None


def error(code: int) -> dict[str, Any]:
    """The answer of a call that failed."""
    return {"error": code, "text": error_text(code)}


FIELD_NAMES: dict[int, str] = {
    value: name for name, value in vars(pynvml).items() if name.startswith("NVML_FI_") and isinstance(value, int)
}


def about(question: Question) -> str:
    """The name of the field that a question is about, for people who read the file."""
    if question[0] == "nvmlDeviceGetFieldValues" and len(question) > 2:
        return FIELD_NAMES.get(question[2], "")
    return ""


def is_capture(data: bytes) -> bool:
    """Whether (unpacked) file content claims to be a recording."""
    return data.lstrip()[:1] == b"{" and FORMAT.encode() in data[:200]


def read_file(path: Path) -> bytes:
    """File content, unpacked.

    Raises:
        UsageError: unreadable, broken or too big.
    """
    try:
        with opened(path) as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            data = (gzip.GzipFile(fileobj=raw) if packed else raw).read(MAX_FILE_BYTES + 1)
    except (OSError, EOFError, zlib.error) as problem:
        why = getattr(problem, "strerror", None) or str(problem)
        raise UsageError(f"cannot read {path}", why, "give a capture or an nvidia-smi -q dump") from None
    if len(data) > MAX_FILE_BYTES:
        raise UsageError(f"{path} is too big", f"more than {MAX_FILE_BYTES >> 20} MiB", "record fewer samples")
    return data


def load(data: bytes, path: Path) -> Recording:
    """The recording in a file's content.

    Raises:
        UsageError: another version, corrupt or cut off.
    """
    body, _, last = data.rstrip(b"\n").rpartition(b"\n")
    first, *rest = (body + b"\n").split(b"\n")[:-1]
    try:
        header = msgspec.json.decode(first, type=prepared(Header))
        if header.format != FORMAT or header.version != VERSION:
            raise UsageError(
                f"{path} is a capture of another version",
                f"{header.format} {header.version}, this gpuwatch reads version {VERSION}",
                f"replay it with gpuwatch {header.gpuwatch or 'that wrote it'}",
            )
        recording = Recording(header)
        end = msgspec.json.decode(last, type=prepared(End))
        if end.crc not in (None, zlib.crc32(body + b"\n")):
            raise ValueError("its content was changed")
        for raw in rest:
            line = msgspec.json.decode(raw, type=prepared(CaptureLine))
            is_question = line.ask and isinstance(line.ask[0], str)
            if not is_question or not line.answers or any(n < 1 for n, _ in line.answers):
                raise ValueError("not a question with answers")
            question = tuple(tuple(a) if isinstance(a, list) else a for a in line.ask)
            recording.runs[question] = line.answers
            recording.microseconds[question] = line.us
    except (TypeError, ValueError, *UNREADABLE) as problem:
        raise _broken(path, str(problem)) from None
    if end.end != len(recording.runs):
        raise _broken(path, "lines are missing")
    return recording


def _broken(path: Path, why: str) -> UsageError:
    return UsageError(f"{path} is not a whole capture", why, "copy the file again or record it again")


_UUID = re.compile(r"\b(?P<kind>(?:GPU-|MIG-|)?)[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SERIALS = ("nvmlDeviceGetSerial", "nvmlVgpuInstanceGetVmID")
_BYTES = ("clusterUuid", "chassisSerialNumber", "ibGuid")


def mask(recording: Recording) -> Recording:
    """A copy in which equal ids stay equal; the device part of a PCI address stays, as faults depend on it."""
    serials = {
        text
        for asked, runs in recording.runs.items()
        if asked[0] in _SERIALS
        for _, answer in runs
        for text in _strings(answer)
    }
    masking = _Masking(sorted(serials, key=len, reverse=True))
    masked = Recording(recording.header)
    for asked, runs in recording.runs.items():
        question = tuple(masking.plain(part) for part in asked)
        masked.runs[question] = [(count, masking.plain(answer)) for count, answer in runs]
        masked.microseconds[question] = recording.microseconds.get(asked, [])
    return masked


def _strings(answer: Answer) -> list[str]:
    if isinstance(answer, str):
        return [answer] if answer else []
    if isinstance(answer, dict):
        return [text for key, item in answer.items() if key in ("bytes", "members") for text in _strings(item)]
    return [text for item in answer for text in _strings(item)] if isinstance(answer, list) else []


class _Masking:
    def __init__(self, serials: list[str]) -> None:
        self._serials = {serial: str(number).zfill(len(serial)) for number, serial in enumerate(serials)}
        self._uuids: dict[str, str] = {}

    def plain(self, data: Any) -> Any:
        """Plain data with every id replaced."""
        if isinstance(data, str):
            return self._serials[data] if data in self._serials else _UUID.sub(self._uuid, data)
        if isinstance(data, list | tuple):
            return type(data)(self.plain(item) for item in data)
        if isinstance(data, dict):
            return {
                key: ([0] * len(item) if isinstance(item, list) else "") if key in _BYTES else self.plain(item)
                for key, item in data.items()
            }
        return data

    def _uuid(self, match: re.Match[str]) -> str:
        number = len(self._uuids)
        return self._uuids.setdefault(match[0], f"{match['kind']}{number:08x}-0000-0000-0000-{number:012x}")
