"""What the tuner has found out of owners' work, for the one after it: `tuner-memory.json` in the state directory.

It saves a search, no more: a cap that stands here is verified before it is held. What cannot be read is forgotten.
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.snapshot import Record

NAME = "tuner-memory.json"
SCHEMA = 1

MOST = 64
"""Owners; a node has less."""


class _Versioned(msgspec.Struct):
    schema: int


class _File(msgspec.Struct):
    schema: int
    owners: dict[str, msgspec.Raw]


class TunerMemory:
    """The file in `directory`."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME

    def read(self) -> dict[str, bytes]:
        """JSON by owner; nothing where there is no file, or none that this gpuwatch understands."""
        with contextlib.suppress(OSError, UnicodeDecodeError, msgspec.MsgspecError):
            body = self.path.read_bytes()
            if msgspec.json.decode(body, type=_Versioned).schema == SCHEMA:
                return {owner: bytes(known) for owner, known in msgspec.json.decode(body, type=_File).owners.items()}
        return {}

    def write(self, owners: Mapping[str, Record]) -> None:
        """Replace it, with the last MOST. Raises GpuwatchError: it cannot be written."""
        kept = {owner: msgspec.Raw(msgspec.json.encode(known)) for owner, known in list(owners.items())[-MOST:]}
        partial = self.path.with_suffix(".partial")
        try:
            partial.write_bytes(msgspec.json.encode(_File(SCHEMA, kept)))
            partial.replace(self.path)
        except OSError as error:
            raise GpuwatchError(
                f"cannot write {self.path}", error.strerror or str(error), "look at --state-dir"
            ) from error
