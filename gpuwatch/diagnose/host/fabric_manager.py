"""Which fabric manager is there: what its log says of its last start, and the package that brought it.

NVIDIA's package is nvidia-fabricmanager-BRANCH up to 575 and nvidia-fabricmanager from 580 on. The GPU operator's
driver container has one of its own, whose files are seen below /run/nvidia/driver. A database of RPMs is no text:
there only the log tells.
"""

import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from gpuwatch.host.plain_file import plain
from gpuwatch.model.snapshot import Record

ROOTS = ("run/nvidia/driver", "")
"""Where it may be installed, below the host's root; a driver container's is the one that runs."""

LOG = "var/log/fabricmanager.log"
PACKAGES = "var/lib/dpkg/status"

_LOG_BYTES = 8 << 20
_PACKAGES_BYTES = 64 << 20
_LONGEST = 300
_VERSION = rb"(\d{3,4}(?:\.\d{1,4}){1,3})"
_STARTED = re.compile(
    rb"Fabric Manager version (?:is : )?"
    + _VERSION
    + rb"(?=\s)|fabric manager NVIDIA GPU driver interface version "
    + _VERSION
    + rb" (?:don't|doesn't) match"
)
_TROUBLE = re.compile(rb"^.*(?:\[ERROR\]|don't match|failed with error).*$", re.MULTILINE)
_STAMP = re.compile(rb"^(?:\[[^\]\n]{1,64}\]\s*)+")
_PACKAGE = re.compile(rb"^Package: nvidia-fabricmanager(?:-\d+)?$(?:\n(?!\n).*)*", re.MULTILINE)
_PACKAGE_VERSION = re.compile(rb"^Version: (?:\d+:)?" + _VERSION, re.MULTILINE)
_INSTALLED = re.compile(rb"^Status: (?:install|hold) ok installed$", re.MULTILINE)


class FabricManager(Record, frozen=True, kw_only=True):
    """`logged`: version of its last start; `error`: the last one in its log since then; `packaged`: version of the
    installed package.
    """

    logged: str | None = None
    error: str | None = None
    packaged: str | None = None


def fabric_manager(root: Path) -> FabricManager:
    """What the files below the host's root say; the log that was written last counts. Never raises."""
    logs = sorted((modified, at) for at in ROOTS if (modified := _modified(root / at / LOG)) is not None)
    logged, error = parse_log(_tail(root / logs[-1][1] / LOG, _LOG_BYTES)) if logs else (None, None)
    packaged = next((found for at in ROOTS if (found := _packaged(root / at / PACKAGES))), None)
    return FabricManager(logged=logged, error=error, packaged=packaged)


def parse_log(text: bytes) -> tuple[str | None, str | None]:
    """Version of the last start and the last error since, from `[Nov 21 2025 19:45:01] [INFO] [tid 1101] Fabric Manager
    version 570.86.15 is running with the following configuration options`.
    """
    start = _last(_STARTED, text)
    trouble = _last(_TROUBLE, text, text.rfind(b"\n", 0, start.start()) + 1 if start else 0)
    version = next((group.decode() for group in start.groups() if group), None) if start else None
    return version, _words(trouble.group()) if trouble else None


def parse_packages(text: bytes) -> str | None:
    """The newest installed version, from a dpkg status file."""
    return max(_versions(text), key=_order, default=None)


def _last(pattern: re.Pattern[bytes], text: bytes, since: int = 0) -> re.Match[bytes] | None:
    found = deque(pattern.finditer(text, since), maxlen=1)
    return found[0] if found else None


def _versions(text: bytes) -> Iterator[str]:
    for package in _PACKAGE.finditer(text):
        version = _PACKAGE_VERSION.search(package.group())
        if version and _INSTALLED.search(package.group()):
            yield version.group(1).decode()


def _order(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _words(line: bytes) -> str:
    text = _STAMP.sub(b"", line.strip())[:_LONGEST].decode(errors="replace")
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _packaged(status: Path) -> str | None:
    return parse_packages(_tail(status, _PACKAGES_BYTES))


def _modified(file: Path) -> float | None:
    try:
        return file.stat().st_mtime
    except OSError:
        return None


def _tail(file: Path, most: int) -> bytes:
    try:
        with open(file, "rb", opener=plain) as opened:
            opened.seek(max(0, file.stat().st_size - most))
            return opened.read(most)
    except OSError:
        return b""
