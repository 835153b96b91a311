"""Files of a host whose root is mounted or copied somewhere: absolute links lead into that root.

Versions of packages come from dpkg; RPM keeps a database that is not read here.
"""

import re
from pathlib import Path

from gpuwatch.host.plain_file import content, entries, opened
from gpuwatch.host.tree import place

DPKG_STATUS = "/var/lib/dpkg/status"
MOST_STATUS_LINES = 2_000_000


def exists(root: Path, path: str) -> bool:
    """Whether the host has this file."""
    return place(root, path) is not None


def text(root: Path, path: str) -> str:
    """A file of the host; bytes that are no UTF-8 are replaced.

    Raises:
        OSError: it is not there or cannot be read.
    """
    found = place(root, path)
    if found is None:
        raise FileNotFoundError(2, "No such file or directory", path)
    return content(found).decode(errors="replace")


def listing(root: Path, folder: str, *suffixes: str) -> tuple[str, ...]:
    """Paths of the host below a folder, not deeper, in order; empty when it is not there or cannot be listed."""
    found = place(root, folder)
    found_names = names(found) if found else []
    return tuple(f"{folder.rstrip('/')}/{name}" for name in found_names if not suffixes or name.endswith(suffixes))


def names(folder: Path) -> list[str]:
    """Names in a folder, in order; none where it cannot be listed."""
    return [path.name for path in entries(folder) or ()]


def package_versions(root: Path, wanted: str) -> dict[str, str]:
    """Name -> version (`1.18.1-1`) of the installed packages whose name matches this pattern, as dpkg has noted them;
    empty where dpkg is not used.
    """
    found: dict[str, str] = {}
    path, pattern = place(root, DPKG_STATUS), re.compile(wanted)
    if path is None:
        return found
    try:
        with opened(path, "r") as file:
            package, installed = "", False
            for _, line in zip(range(MOST_STATUS_LINES), file, strict=False):
                key, _, value = line.rstrip("\n").partition(": ")
                if key == "Package":
                    package, installed = value, False
                elif key == "Status":
                    installed = value in ("install ok installed", "hold ok installed")
                elif key == "Version" and installed and pattern.fullmatch(package):
                    found[package] = value
    except OSError:
        return found
    return found
