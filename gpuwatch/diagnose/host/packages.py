"""Versions of installed packages, as dpkg has noted them. RPM keeps a database that this file does not read."""

from collections.abc import Collection
from pathlib import Path

from gpuwatch.diagnose.host.host_root import place
from gpuwatch.host.plain_file import plain

STATUS = "/var/lib/dpkg/status"
MOST_LINES = 2_000_000


def versions(root: Path, names: Collection[str]) -> dict[str, str]:
    """Name -> version (`1.18.1-1`) of those of them that are installed; empty where dpkg is not used."""
    found: dict[str, str] = {}
    path = place(root, STATUS)
    if path is None:
        return found
    try:
        with open(path, errors="replace", opener=plain) as file:
            package, installed = "", False
            for _, line in zip(range(MOST_LINES), file, strict=False):
                key, _, value = line.rstrip("\n").partition(": ")
                if key == "Package":
                    package, installed = value, False
                elif key == "Status":
                    installed = value.endswith(" installed")
                elif key == "Version" and installed and package in names:
                    found[package] = value
    except OSError:
        return found
    return found
