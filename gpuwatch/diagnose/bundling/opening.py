"""Opens the archive of a bundle, which is not trusted: only plain files and folders are unpacked, within bounds.

A link, a device, a pipe and a name that leads elsewhere or is too long are left out, each with the reason.
Nothing is written through a link, because none is ever made and every file is new.
"""

import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple, Self

from gpuwatch.host.plain_file import opened
from gpuwatch.model.errors import UsageError
from gpuwatch.model.text import visible

MOST_BYTES = 64 << 20
"""Of the unpacked archive with its headers; a bundle has a third of this at most."""

MOST_ENTRIES, MOST_DEPTH, NAME_BYTES, PATH_BYTES = 20_000, 32, 255, 1024
MOST_NAMED = 8

LONGEST_HEADER, MOST_HEADERS = 2048, 1 << 20
"""Bytes of one header with a name of PATH_BYTES in it, and of all of them: a name of 64 MiB takes 700 MiB to split, and
in Python before 3.11.10 and 3.12.6, the time to read a pax header grows with the square of its length.
"""

LONG = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
"""Types of the headers that a body follows."""


class OpenedArchive(NamedTuple):
    """`top`: the folder with the host's files; `refused`: entries that were left out -> why."""

    top: Path
    refused: dict[str, str]

    @property
    def message(self) -> str:
        """A text that lists what was left out; empty where nothing was."""
        named = [f"{name} ({why})" for name, why in list(self.refused.items())[:MOST_NAMED]]
        more = len(self.refused) - len(named)
        return ", ".join(named) + (f", and {more} more" if more else "")


class _Bounded(io.RawIOBase):
    """The unpacked bytes, up to the bound; a small file can unpack to any size."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile) -> None:
        self._file, self._left = file, MOST_BYTES

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        body = self._file.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(body)
        if self._left < 0:
            raise UsageError("", f"it unpacks to more than {MOST_BYTES >> 20} MiB")
        return body


def open_archive(archive: Path, folder: Path) -> OpenedArchive:
    """Unpack a tar, gzipped or not, into an empty folder of our own.

    Raises:
        UsageError: it is no such archive, broken, or too large.
    """
    refused: dict[str, str] = {}
    try:
        with opened(archive) as packed:
            is_gzip = packed.read(2) == b"\x1f\x8b"
            packed.seek(0)
            file = _Bounded(gzip.GzipFile(fileobj=packed) if is_gzip else packed)
            with tarfile.open(fileobj=file, mode="r|", errorlevel=1, tarinfo=_bounded_headers()) as tar:
                for member in _entries(tar):
                    if why := _unpack(tar, member, folder):
                        refused[member.name[:PATH_BYTES]] = why
    except UsageError as error:
        raise UsageError(f"cannot open {archive}", error.why, "ask for a smaller one") from None
    except (OSError, EOFError, ValueError, OverflowError, RecursionError, zlib.error, tarfile.TarError) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UsageError(f"cannot open {archive}", why, "name the archive or the folder of a bundle") from None
    tops = list(folder.iterdir())
    return OpenedArchive(tops[0] if len(tops) == 1 and tops[0].is_dir() else folder, refused)


def _bounded_headers() -> type[tarfile.TarInfo]:
    """A TarInfo for one archive that raises UsageError at headers that are too long, and at the map of a sparse file,
    whose length tarfile does not bound: 64 KiB can unpack to one that takes minutes to read.
    """
    left = MOST_HEADERS

    class Header(tarfile.TarInfo):
        @classmethod
        def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
            nonlocal left
            found = super().frombuf(buf, encoding, errors)
            if found.type in LONG:
                left -= found.size
                if not 0 <= found.size <= LONGEST_HEADER or left < 0:
                    raise UsageError("", "a header of it is too long")
            if found.type == tarfile.GNUTYPE_SPARSE:
                raise UsageError("", "a file in it is sparse")
            return found

        def _proc_gnusparse_10(self, *_: object) -> None:
            raise UsageError("", "a file in it is sparse")

    return Header


def _entries(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    folders: set[str] = set()
    for number, member in enumerate(tar):
        parts = member.name[:PATH_BYTES].split("/")[:MOST_DEPTH]
        folders.update("/".join(parts[:depth]) for depth in range(1, len(parts)))  # a name makes its parents, too
        if number + len(folders) > MOST_ENTRIES:
            raise UsageError("", f"it has more than {MOST_ENTRIES} entries")
        tar.members = []  # type: ignore[attr-defined]  # tarfile remembers each
        yield member


def _unpack(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> str:
    """Write one entry; returns the reason where it is left out, else empty."""
    name = member.name.removeprefix("./").rstrip("/")
    parts = name.split("/")
    if not (member.isreg() or member.isdir()) or member.issparse():
        return "a link" if member.issym() or member.islnk() else "neither a plain file nor a folder"
    if any(part in ("", ".", "..") for part in parts) or "\0" in name:
        return "" if name in ("", ".") else "its name leads elsewhere"
    lengths = [len(part.encode(errors="replace")) for part in parts]
    if len(parts) > MOST_DEPTH or max(lengths) > NAME_BYTES or sum(lengths) > PATH_BYTES or visible(name) != name:
        return "its name is too long, or no text"
    target = folder.joinpath(*parts)
    try:
        (target if member.isdir() else target.parent).mkdir(mode=0o700, parents=True, exist_ok=True)
        if member.isdir():
            return ""
        with open(target, "xb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW, 0o600)) as file:
            body = tar.extractfile(member)
            while chunk := body.read(1 << 20) if body else b"":
                file.write(chunk)
    except (FileExistsError, NotADirectoryError):
        return "another entry has its name"
    return ""
