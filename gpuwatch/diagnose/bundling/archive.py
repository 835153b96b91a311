"""Writes a bundle to the disk: a gzipped tar that any tar opens, whole or not at all, for its owner's eyes only."""

import contextlib
import gzip
import io
import os
import secrets
import tarfile
from collections.abc import Iterable
from pathlib import Path

from gpuwatch.diagnose.bundling.copying import Member

HEADER = 512
"""Bytes of an entry of a tar beside its contents, which are rounded up to as many."""


def unpacked_bytes(member: Member) -> int:
    """What an entry takes of the archive before it is packed."""
    return HEADER + -(-len(member.body) // HEADER) * HEADER


def write_archive(target: Path, members: Iterable[Member], top: str, at: float) -> int:
    """Entries below the folder `top`, with time `at` where they have none of their own. The size in bytes.

    Raises:
        OSError: it cannot be written; nothing is left behind then.
    """
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        with open(partial, "xb", opener=_private) as file:  # never through a link that lies there
            with gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=int(at)) as packed:
                _fill(packed, members, top, at)
            file.flush()
            os.fsync(file.fileno())
        size = partial.stat().st_size
        partial.replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    return size


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _fill(packed: gzip.GzipFile, members: Iterable[Member], top: str, at: float) -> None:
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(_entry(Member(path="", folder=True), top, at))
        for member in members:
            tar.addfile(_entry(member, top, at), io.BytesIO(member.body))


def _entry(member: Member, top: str, at: float) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(f"{top}/{member.path}".rstrip("/"))
    entry.mtime = int(member.modified or at)
    entry.mode = 0o644
    entry.uname = entry.gname = "root"
    if member.link is not None:
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, member.link, 0o777
    elif member.folder:
        entry.type, entry.mode = tarfile.DIRTYPE, 0o755
    else:
        entry.size = len(member.body)
    return entry
