"""Small JSON files that several processes share, and that a crash leaves whole.

A file is replaced, never changed: the new content is written beside it, flushed to the disk, and renamed over it. After
a crash at any moment the old or the new content is there, whole. Three details matter. Without a flush of the file
before the rename, a file system may carry out the rename first, and a power cut leaves an empty file. Without a flush
of the folder after it, a power cut may restore the old content, although the write of the new one has returned. And a
file that is opened by name, in a folder in which others may create files, may be their link or pipe: it is opened
without following links or waiting, and made only where no file is.

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
from typing import IO, Generic, TypeVar

import msgspec

from gpuwatch.host.tree import TreePath
from gpuwatch.model.decoding import prepared
from gpuwatch.model.errors import GpuwatchError, PermissionMissing
from gpuwatch.model.snapshot import UNREADABLE
from gpuwatch.storage.private_folder import FILE_MODE, UnsafePath, check_way, make_private

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

    `durable`: a write is on the disk when it returns; only content that means nothing after a reboot needs none.
    `trusted`: a file of another user than root and this one, or that others may write, is refused;
    with a `mode` that lets only its owner read, also one that others may read.
    `folder_mode`: its folder is gpuwatch's own; it is made with this mode in the state folder, and checked.
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
        mode: int = FILE_MODE,
        folder_mode: int | None = None,
        next_step: str = "look at --state-dir",
        repair: str = "remove it",
    ) -> None:
        self.path, self._kind, self._schema, self._durable, self._trusted = path, kind, schema, durable, trusted
        self._mode, self._folder_mode = mode, folder_mode
        self._next_step, self._repair = next_step, repair

    def read(self, *, only_shown: bool = False) -> Content | None:
        """The newest content; None: there is no file. `only_shown`: it is not acted on, so any user may write it.

        Raises:
            PermissionMissing: the file may not be read, or another user may replace a trusted one.
            UnreadableFile: it is of another version, not valid, or not trusted.
            GpuwatchError: it cannot be read.
        """
        try:
            status, body = read_file(self.path, MOST_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.error(error) from error
        if self._trusted and not only_shown:
            self._check_writer(status)
        try:
            document = msgspec.json.decode(body, type=prepared(_Document))
            if document.schema != self._schema:
                raise self.unreadable(f"it has schema {document.schema}, this gpuwatch knows {self._schema}")
            return msgspec.json.decode(document.content, type=prepared(self._kind))
        except UNREADABLE as error:
            raise self.unreadable(str(error)) from error

    def _check_writer(self, status: os.stat_result) -> None:
        excess = OTHERS_WRITE if self._mode & ~0o700 else 0o077
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & excess:
            what = "write" if excess == OTHERS_WRITE else "read or write"
            mode = f"others may {what} it (mode {stat.S_IMODE(status.st_mode):04o})"
            raise self.unreadable(f"it belongs to user {status.st_uid}, or {mode}")
        try:
            check_way(self.path.parent)
        except OSError as error:  # its folder may have gone since it was read
            raise self.error(error) from error

    def stamp(self) -> tuple[int, int] | None:
        """Different after every write, so that readers notice a write without trusting a clock. None: no file."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns

    def write(self, content: Content) -> None:
        """Replace the content. The folder must exist; for a folder of gpuwatch's own, its parent.

        Raises:
            PermissionMissing: the file may not be written.
            GpuwatchError: it cannot be; the old content is still there.
        """
        document = _Document(self._schema, msgspec.Raw(msgspec.json.encode(content)))
        body = msgspec.json.encode(document)
        readable = msgspec.json.format(body, indent=2)
        body = readable if len(readable) <= MOST_BYTES else body
        if len(body) > MOST_BYTES:
            raise GpuwatchError(f"cannot write {self.path}", f"{len(body)} bytes, {MOST_BYTES} at most")
        try:
            self.make_folder()
            replace_file(self.path, (body,), durable=self._durable, mode=self._mode)
        except UnsafePath as error:
            raise PermissionMissing(
                f"cannot write {self.path}", f"{error.what}, {error.why}", error.next_step
            ) from error
        except OSError as error:
            raise self.error(error, "cannot write") from error

    def remove(self) -> None:
        """Remove it, if it is there. Raises as `write`."""
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            raise self.error(error, "cannot remove") from error

    def make_folder(self) -> None:
        """Make a folder of gpuwatch's own where it is missing. Raises OSError, UnsafePath."""
        if self._folder_mode is not None:
            self.path.parent.parent.stat()
            make_private(self.path.parent, self._folder_mode)

    def lock(self, timeout: float) -> AbstractContextManager[bool]:
        """Keep other writers out: `lock_file` of the lock beside it."""
        return lock_file(self.path.with_suffix(".lock"), timeout)

    def error(self, error: OSError, what: str = "cannot read") -> GpuwatchError:
        """The message of a system call that failed."""
        kind = PermissionMissing if isinstance(error, PermissionError) else GpuwatchError
        return kind(f"{what} {self.path}", error.strerror or str(error), self._next_step)

    def unreadable(self, why: str) -> UnreadableFile:
        """The message of content that is refused."""
        return UnreadableFile(f"cannot use {self.path}", why, self._repair)


def open_file(path: Path) -> IO[bytes]:
    """A plain file, to be read. Raises OSError; never follows a link (in the tree of another host none out of it),
    never waits for a pipe's writer.
    """
    try:
        file: IO[bytes] = (
            path.open("rb") if isinstance(path, TreePath) else open(path, "rb", opener=_open_plain)  # noqa: SIM115
        )
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link") from error
        raise
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no plain file")
    return file


def read_file(path: Path, most_bytes: int) -> tuple[os.stat_result, bytes]:
    """All of a plain file of at most `most_bytes`; a larger one is not read. Raises OSError as `open_file`."""
    with open_file(path) as file:
        status = os.fstat(file.fileno())
        body = file.read(most_bytes + 1) if status.st_size <= most_bytes else b""
    if max(status.st_size, len(body)) > most_bytes:
        raise OSError(errno.EINVAL, f"it has more than {most_bytes} bytes")
    return status, body


def replace_file(
    path: Path,
    parts: Iterable[bytes],
    *,
    durable: bool = True,
    mode: int = FILE_MODE,
    previous: Path | None = None,
) -> None:
    """Put `parts`, one after the other, in the place of the file. Raises OSError: the old content is still there.

    `previous`: the name that the old file gets.
    """
    partial = path.with_name(f"{path.name}.partial")  # one process at a time writes it
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
def lock_file(path: Path, timeout: float) -> Iterator[bool]:
    """Hold a lock against other processes and threads; the kernel releases that of a process that ends.

    False: another holder did not release it for `timeout` seconds, or the lock file cannot be opened.
    """
    deadline = time.monotonic() + timeout
    with contextlib.ExitStack() as stack:
        try:
            lock = stack.enter_context(open(path, "ab", opener=_open_plain))
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
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, FILE_MODE)


def _create(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
