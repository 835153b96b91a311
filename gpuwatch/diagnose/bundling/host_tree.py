"""Walks over the files of a host for a bundle. Links are followed within the host; a bundle contains only files."""

import fnmatch
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpuwatch.diagnose.host.host_root import names
from gpuwatch.diagnose.places import Places
from gpuwatch.host.plain_file import opened

MOST_FILES = 512
"""Of one folder."""

MOST_STEPS = 8192
"""Names that all patterns together follow: a tree can have 512 folders with 512 sockets each, of which a bundle only
names what is missing. A node has some hundred.
"""

MOST_LINKS = 32


class BundleMember(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a bundle, its path without a leading slash: a folder, or a file with this `body`. `cut`: which part
    of it is missing; `failed`: why all of it is.
    """

    path: str
    body: bytes = b""
    folder: bool = False
    modified: float = 0.0
    cut: str = ""
    failed: str = ""


class HostFile(NamedTuple):
    """A file of the host: `path` in the copy, `at` on this machine."""

    path: str
    at: Path


class HostFiles:
    """The host as `places` show it; /proc, /sys and /dev may be mounted apart."""

    def __init__(self, places: Places) -> None:
        self._places, self._root = places, places.root
        self._mounts = {"proc": places.proc, "sys": places.sys, "dev": places.dev}
        self.steps = iter(range(MOST_STEPS))

    def here(self, path: str) -> Path:
        """Where a path of the copy is on this machine."""
        first, _, rest = path.partition("/")
        if first in self._mounts:
            return self._places.path(self._mounts[first]) / rest
        return self._places.at(path)

    def find(self, pattern: str) -> Iterator[HostFile]:
        """The files that a pattern matches, level by level, each at its path without links; none once there are no
        `steps` left.
        """
        yield from self._walk("", [part for part in pattern.split("/") if part], 0)

    def _walk(self, path: str, left: list[str], links: int) -> Iterator[HostFile]:
        if not left:
            yield HostFile(path, self.here(path))
            return
        if any(sign in left[0] for sign in "*?["):
            found = [name for name in names(self.here(path)) if fnmatch.fnmatchcase(name, left[0])][:MOST_FILES]
        else:
            named = self.here(f"{path}/{left[0]}" if path else left[0])
            found = [left[0]] if named.is_symlink() or named.exists() else []
        for name, _ in zip(found, self.steps, strict=False):
            below = f"{path}/{name}" if path else name
            try:
                target = None if path.partition("/")[0] == "proc" else str(self.here(below).readlink())
            except OSError:  # no link
                target = None
            if target is None:
                yield from self._walk(below, left[1:], links)
            elif links < MOST_LINKS:
                root = self._root.rstrip("/")  # links of a copied tree may name the folder that it was copied to
                within = target.removeprefix(root) if root and target.startswith(f"{root}/") else target
                meant = resolved(path, within)
                literal = (re.sub(r"([*?[])", r"[\1]", part) for part in meant.split("/") if part)
                yield from self._walk("", [*literal, *left[1:]], links + 1)


def resolved(folder: str, target: str) -> str:
    """The path in the copy that a link in `folder` leads to; never above the root."""
    parts = [] if target.startswith("/") else [part for part in folder.split("/") if part]
    for part in target.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def contents(found: HostFile, most: int, *, tail: bool = False) -> tuple[bytes, str]:
    """The first (`tail`: the last) `most` bytes of a file, and what is missing.

    Raises:
        OSError: it cannot be read, or is no plain file: a socket, a device.
    """
    with opened(found.at) as file:
        size = os.fstat(file.fileno()).st_size
        if tail and size > most:
            file.seek(size - most)
        body = file.read(most + 1)
    if len(body) <= most and size <= most:
        return body, ""
    return body[:most], f"only the {'last' if tail else 'first'} {most} bytes of {max(size, len(body))}"
