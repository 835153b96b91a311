"""Walks over files of a host as a bundle takes them: links are kept as links that lead nowhere outside the copy."""

import fnmatch
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpuwatch.diagnose.places import Places
from gpuwatch.host.plain_file import plain

MOST_FILES = 512
"""Of one pattern."""

MOST_LINKS = 32


class Member(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a bundle, its path without a slash in front. `link`: where it leads, `folder`: it is one; else a
    file. `cut`: what is missing of it; `failed`: why it is not there.
    """

    path: str
    body: bytes = b""
    link: str | None = None
    folder: bool = False
    modified: float = 0.0
    cut: str = ""
    failed: str = ""


class Found(NamedTuple):
    """A file of the host: `path` in the copy, `at` where it is here."""

    path: str
    at: Path


class Tree:
    """The host as `places` show it; /proc, /sys and /dev may be mounted apart."""

    def __init__(self, places: Places) -> None:
        self._root = places.root
        self._mounts = {"proc": places.proc, "sys": places.sys, "dev": places.dev}

    def here(self, path: str) -> Path:
        """Where a path of the copy is on this machine."""
        first, _, rest = path.partition("/")
        return Path(self._mounts[first], rest) if first in self._mounts else Path(self._root, path)

    def find(self, pattern: str) -> Iterator[Member | Found]:
        """What a pattern of names means, level by level: the links on the way as Members, then what is there."""
        yield from self._walk("", [part for part in pattern.split("/") if part], 0)

    def _walk(self, path: str, left: list[str], links: int) -> Iterator[Member | Found]:
        if not left:
            yield Found(path, self.here(path))
            return
        for name in self._names(path, left[0]):
            below = f"{path}/{name}" if path else name
            target = _link(self.here(below))
            if target is None or path.partition("/")[0] == "proc" or path == "proc":
                yield from self._walk(below, left[1:], links)
            elif links < MOST_LINKS:
                meant = resolved(path, self._below(target))
                yield Member(path=below, link=os.path.relpath(meant or ".", path or "."))
                yield from self._walk("", [*_escaped(meant), *left[1:]], links + 1)

    def _below(self, target: str) -> str:
        """Links of a copied tree may name the place it was copied to."""
        root = self._root.rstrip("/")
        return target.removeprefix(root) if root and target.startswith(f"{root}/") else target

    def _names(self, folder: str, pattern: str) -> list[str]:
        if not any(sign in pattern for sign in "*?["):
            return [pattern] if os.path.lexists(self.here(f"{folder}/{pattern}" if folder else pattern)) else []
        try:
            names = sorted(os.listdir(self.here(folder)))
        except OSError:
            return []
        return [name for name in names if fnmatch.fnmatchcase(name, pattern)][:MOST_FILES]


def resolved(folder: str, target: str) -> str:
    """Path in the copy of what a link in `folder` means; never above the root."""
    parts = [] if target.startswith("/") else [part for part in folder.split("/") if part]
    for part in target.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def contents(found: Found, most: int, *, tail: bool = False) -> tuple[bytes, str]:
    """The first (`tail`: the last) `most` bytes of a file, and what is missing.

    Raises:
        OSError: it cannot be read, or is no plain file: a socket, a device.
    """
    with open(found.at, "rb", opener=plain) as file:
        size = os.fstat(file.fileno()).st_size
        if tail and size > most:
            file.seek(size - most)
        body = file.read(most + 1)
    if len(body) <= most and size <= most:
        return body, ""
    return body[:most], f"only the {'last' if tail else 'first'} {most} bytes of {max(size, len(body))}"


def _link(at: Path) -> str | None:
    try:
        return os.readlink(at)
    except OSError:
        return None


def _escaped(path: str) -> list[str]:
    """Names, taken literally by `find`."""
    return [name.replace("[", "[[]").replace("*", "[*]").replace("?", "[?]") for name in path.split("/") if name]
