"""What an area of the simulated host consists of."""

from collections.abc import Mapping
from typing import NamedTuple


class Link(NamedTuple):
    """A symbolic link; its target as written."""

    target: str


Files = Mapping[str, str | Link]
"""Path below the host's root, without the slash in front -> text or link."""
