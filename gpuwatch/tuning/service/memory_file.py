"""What the tuner has found out of owners' work, for the one after it: `tuner-memory.json` in the state directory.

It saves a search, no more: a cap that stands here is verified before it is held. What cannot be read is forgotten.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.snapshot import Record
from gpuwatch.storage.versioned_file import VersionedFile

NAME = "tuner-memory.json"

MOST = 64
"""Owners; a node has less."""


class TunerMemory:
    """The file in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME
        self._file = VersionedFile(self.path, dict[str, msgspec.Raw])

    def read(self) -> dict[str, bytes]:
        """JSON by owner; nothing where there is no file, or none that this gpuwatch understands."""
        try:
            return {owner: bytes(known) for owner, known in (self._file.read() or {}).items()}
        except GpuwatchError:
            return {}

    def write(self, owners: Mapping[str, Record]) -> None:
        """Replace it, with the last MOST. Raises GpuwatchError: it cannot be written."""
        newest = list(owners.items())[-MOST:]
        self._file.write({owner: msgspec.Raw(msgspec.json.encode(known)) for owner, known in newest})
