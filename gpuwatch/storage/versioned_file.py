"""Small JSON files that several processes share, and that a crash leaves whole.

A file is replaced, never changed: the new content is written beside it, flushed to the disk, and renamed over it. After
a crash at any moment the old or the new content is there, whole. Three things are easily missed. Without a flush of the
file before the rename, a file system may carry out the rename first, and a power cut leaves an empty file. Without a
flush of the folder after it, a power cut may bring the old content back, although the caller was told that the new one
is in force. And a file that is opened by name, in a folder in which others may create files, may be their link or pipe:
it is opened without following links or waiting, and made only where nothing is.

The version is checked before the content is decoded: a file of a newer gpuwatch is refused, not misunderstood.
"""

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from gpuwatch.model.errors import GpuwatchError, PermissionMissing
from gpuwatch.model.snapshot import UNREADABLE

Content = TypeVar("Content")

MOST_BYTES = 4 << 20
RETRY_SECONDS = 0.02

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class UnreadableFile(GpuwatchError):
    """The file is there, but its content is not what this version of gpuwatch writes, or its writer is not trusted."""


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    schema: int
    content: msgspec.Raw = msgspec.Raw(b"null")


class VersionedFile(Generic[Content]):
    """`{"schema": N, "content": ...}` at `path`; `kind` is the type of the content.

    `durable`: a write is on the disk when it returns; only content that means nothing after a reboot does without.
    `trusted`: a file of another user than root and this one, or that others may write, is refused.
    `next_step`, `repair`: the ends of the messages about a file that cannot be used or understood.
    """

    def __init__(
        self,
        path: Path,
        kind: type[Content],
        *,
        schema: int = 1,
        durable: bool = True,
        trusted: bool = False,
        next_step: str = "look at --state-dir",
        repair: str = "remove it",
    ) -> None:
        self.path, self._kind, self._schema, self._durable, self._trusted = path, kind, schema, durable, trusted
        self._next_step, self._repair = next_step, repair

    def read(self) -> Content | None:
        """The newest content; None: there is no file.

        Raises:
            PermissionMissing: the file may not be read.
            UnreadableFile: it is of another version, not valid, or not trusted.
            GpuwatchError: it cannot be read.
        """
        try:
            status, body = read_file(self.path, MOST_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.error(error) from error
        if self._trusted and (status.st_uid not in (0, os.geteuid()) or status.st_mode & OTHERS_WRITE):
            raise self.unreadable(f"it belongs to user {status.st_uid}, or others may write it")
        try:
            document = msgspec.json.decode(body, type=_Document)
            if document.schema != self._schema:
                raise self.unreadable(f"it has schema {document.schema}, this gpuwatch knows {self._schema}")
            return msgspec.json.decode(document.content, type=self._kind)
        except UNREADABLE as error:
            raise self.unreadable(str(error)) from error

    def stamp(self) -> tuple[int, int] | None:
        """Another one after every write, so that readers notice a write without trusting a clock. None: no file."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def write(self, content: Content) -> None:
        """Replace the content. The folder must exist.

        Raises:
            PermissionMissing: the file may not be written.
            GpuwatchError: it cannot be; the old content is still there.
        """
        document = _Document(self._schema, msgspec.Raw(msgspec.json.encode(content)))
        body = msgspec.json.format(msgspec.json.encode(document), indent=2)
        if len(body) > MOST_BYTES:
            raise GpuwatchError(f"cannot write {self.path}", f"{len(body)} bytes, {MOST_BYTES} at most")
        try:
            replace_file(self.path, (body,), durable=self._durable)
        except OSError as error:
            raise self.error(error, "cannot write") from error

    def remove(self) -> None:
        """Remove it, if it is there. Raises as `write`."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise self.error(error, "cannot remove") from error

    def lock(self, patience: float) -> AbstractContextManager[bool]:
        """Hold it against other writers: `lock_file` of the lock beside it."""
        return lock_file(self.path.with_suffix(".lock"), patience)

    def error(self, error: OSError, what: str = "cannot read") -> GpuwatchError:
        """The message of a system call that failed."""
        kind = PermissionMissing if isinstance(error, PermissionError) else GpuwatchError
        return kind(f"{what} {self.path}", error.strerror or str(error), self._next_step)

    def unreadable(self, why: str) -> UnreadableFile:
        """The message of content that is refused."""
        return UnreadableFile(f"cannot use {self.path}", why, self._repair)


def read_file(path: Path, most_bytes: int) -> tuple[os.stat_result, bytes]:
    """A plain file of at most `most_bytes`. Raises OSError; never follows a link, never waits for a pipe's writer."""
    try:
        with open(path, "rb", opener=_open_plain) as file:
            status, body = os.fstat(file.fileno()), file.read(most_bytes + 1)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link") from error
        raise
    if not stat.S_ISREG(status.st_mode) or len(body) > most_bytes:
        raise OSError(errno.EINVAL, f"it is no plain file of at most {most_bytes} bytes")
    return status, body


def replace_file(
    path: Path,
    parts: Iterable[bytes],
    *,
    durable: bool = True,
    mode: int = 0o644,
    partial: Path | None = None,
    previous: Path | None = None,
) -> None:
    """Put `parts`, one after the other, in the place of the file. Raises OSError: the old content is still there.

    `partial`: where the new content is written, by one process at a time. `previous`: the name that the old file gets.
    """
    partial = partial or path.with_name(f"{path.name}.partial")
    try:
        partial.unlink(missing_ok=True)
        with open(partial, "xb", opener=_create) as file:
            os.fchmod(file.fileno(), mode)
            file.writelines(parts)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if previous is not None:
            with contextlib.suppress(FileNotFoundError):
                path.replace(previous)
        partial.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    if durable:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@contextlib.contextmanager
def lock_file(path: Path, patience: float) -> Iterator[bool]:
    """Hold a lock against other processes and threads; the kernel releases that of a process that dies.

    False: another holder did not release it for `patience` seconds, or the lock file cannot be opened.
    """
    deadline = time.monotonic() + patience
    with contextlib.ExitStack() as stack:
        try:
            lock = stack.enter_context(path.open("ab"))
        except OSError:
            yield False
            return
        while True:
            try:
                fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = True
            except OSError:
                held = False
            if held or time.monotonic() >= deadline:
                break
            time.sleep(RETRY_SECONDS)
        yield held


def _open_plain(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _create(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
