"""The files of a healthy GPU server around the simulated driver: modules, libraries, runtime, kubelet, cluster.

Each module is one area and returns its files as a pure function of the node; `SimHostTree` writes them to the disk.
Tests of a broken host overwrite them: a file is written again only when its text for the node changes.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Symlink(NamedTuple):
    """A symbolic link; its target as written."""

    target: str


Files = Mapping[str, str | Symlink]
"""Path below the host's root, without the leading slash -> text or link."""
