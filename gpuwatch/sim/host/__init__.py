"""The files of a healthy GPU server around the simulated driver: modules, libraries, runtime, kubelet, cluster.

Each module is one area and gives its files as a pure function of the node; `SimHostTree` keeps them on the disk. Tests
of a broken host write over them: a file is written again only when the node would show another text.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Symlink(NamedTuple):
    """A symbolic link; its target as written."""

    target: str


Files = Mapping[str, str | Symlink]
"""Path below the host's root, without the slash in front -> text or link."""
