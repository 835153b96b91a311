"""What pods consent to, on its way to the tuner: `consents/consents.json` in the state directory.

`gpuwatch tuner --consents` writes it, with an API token and nothing else; the tuner reads it, with CAP_SYS_ADMIN and no
token. The folder is its own, so that in a pod it alone can be shared between the two.
"""

import errno
import os
import stat
from pathlib import Path

import msgspec

from gpuwatch.model.consent import Consents
from gpuwatch.model.errors import GpuwatchError, PermissionMissing

FOLDER = "consents"
NAME = "consents.json"
SCHEMA = 1

MOST_BYTES = 4 << 20
"""A node has a few hundred pods at most, and of each some hundred bytes are kept."""

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
"""Whoever writes the file says whose GPUs may be slowed down."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    consents: Consents


class _Versioned(msgspec.Struct):
    schema: int


class ConsentsFile:
    """The file below the state directory `directory`. One process writes it, any may read it."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FOLDER / NAME

    def read(self) -> Consents | None:
        """What was written last, however old: its `at` tells. None: there is no file.

        Raises:
            PermissionMissing: the file may not be read.
            GpuwatchError: it is not one that gpuwatch wrote, or another version of gpuwatch wrote it.
        """
        try:
            with open(self.path, "rb", opener=_never_waiting) as file:
                found, body = os.fstat(file.fileno()), file.read(MOST_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise self._distrusted("it is a link") from error
            raise self._refused(error) from error
        if found.st_uid not in (0, os.geteuid()) or found.st_mode & OTHERS_WRITE:
            raise self._distrusted(f"it is of user {found.st_uid}, or others may write it")
        if not stat.S_ISREG(found.st_mode) or len(body) > MOST_BYTES:
            raise self._distrusted(f"it is no plain file of {MOST_BYTES} bytes at most")
        try:
            if (schema := msgspec.json.decode(body, type=_Versioned).schema) != SCHEMA:
                raise self._distrusted(f"schema {schema}, this gpuwatch knows {SCHEMA}")
            return msgspec.json.decode(body, type=_File).consents
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._distrusted(str(error)) from error

    def write(self, consents: Consents) -> None:
        """Put `consents` in the place of what was there; a reader sees the one or the other. The folder is made.

        Raises:
            PermissionMissing: it may not be written.
            GpuwatchError: it cannot be.
        """
        partial = self.path.with_suffix(".partial")
        try:
            self.path.parent.mkdir(mode=0o755, exist_ok=True)
            partial.unlink(missing_ok=True)
            with open(partial, "xb", opener=_private) as file:  # never through a link that lies there
                file.write(msgspec.json.encode(_File(SCHEMA, consents)))
            partial.replace(self.path)
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> GpuwatchError:
        kind = PermissionMissing if isinstance(error, PermissionError) else GpuwatchError
        return kind(f"cannot use {self.path}", error.strerror or str(error), "look at --state-dir")

    def _distrusted(self, why: str) -> GpuwatchError:
        return GpuwatchError(
            f"{self.path} is not believed", why, "remove it; `gpuwatch tuner --consents` writes it anew"
        )


def _never_waiting(path: str, flags: int) -> int:
    """Neither follow a link nor wait for the other end of a pipe: others may make files in the folder of a pod."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o644)
