"""Paths of a host whose root is mounted or copied somewhere: every access stays beneath that root.

Such a tree is not trusted. Its links may name files of this machine, and a file may be a pipe without a writer, a
device, or endless. The kernel resolves every path with that root in place of its own (openat2 with RESOLVE_IN_ROOT),
so that no link, no `..` and no change of the tree meanwhile leads out of it. A kernel or a container without openat2
(Linux before 5.6, old seccomp profiles) gets a walk that opens one component after the other and resolves links itself.

A reader takes a `Path` of either kind. It must use the methods of the path: a path beneath a root raises TypeError when
it is passed to `open` or `os`, because these would resolve it on this machine.
"""

import contextlib
import ctypes
import errno
import fnmatch
import functools
import os
import stat
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path, PosixPath
from typing import IO, Any, ClassVar

MOST_LINKS = 40
"""As the kernel: path_resolution(7)."""

MOST_NAMES = 1 << 16
"""In one folder; a folder with more is refused."""

PATH_BYTES = 4096
PROC, SYSFS = 0x9FA0, 0x62656572
"""Magic numbers of file systems, linux/magic.h."""

_OPENAT2 = 437
_NO_MAGICLINKS, _IN_ROOT = 0x02, 0x10
_RETRIES = 16
"""openat2 fails with EAGAIN when a folder moves while the kernel resolves `..`."""


def beneath(root: Path, path: str = "") -> Path:
    """`path` of the host whose root is at `root`; the root `/` is this machine itself, and its paths are plain ones."""
    text = os.path.abspath(str(root))
    return Path("/", path.lstrip("/")) if text == "/" else _of_root(text)(text, path.lstrip("/"))


@functools.lru_cache(maxsize=64)
def _of_root(root: str) -> "type[TreePath]":
    # a class for each root: pathlib makes every path from the class of another one, and keeps no other state
    return type("TreePath", (TreePath,), {"root_": root})


class TreePath(PosixPath):
    """A path beneath `root_`. It is read through its methods only; each raises OSError as those of a plain path do."""

    root_: ClassVar[str]

    def __fspath__(self) -> str:
        raise TypeError(f"{self} is beneath a root of its own: read it through its methods")

    def descriptor(self, flags: int) -> int:
        """The descriptor of the opened file; `flags` as of open(2)."""
        text, root = str(self), self.root_
        inside = text[len(root) :] if text == root or text.startswith(f"{root}/") else text
        path = _encoded(inside.lstrip("/") or ".")
        at = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return open_in_root(at, path, flags | os.O_CLOEXEC)
        except OSError as error:
            raise OSError(error.errno, error.strerror, text) from None
        finally:
            os.close(at)

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """The status of the file, or of the link itself."""
        with self._descriptor(os.O_PATH | (0 if follow_symlinks else os.O_NOFOLLOW)) as found:
            return os.fstat(found)

    def open(  # type: ignore[override]
        self,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:
        """Open a plain file for reading."""
        if set(mode) - set("rbt"):
            raise OSError(errno.EROFS, "a tree is only read", str(self))
        with self._descriptor(os.O_PATH) as found:
            if not stat.S_ISREG(os.fstat(found).st_mode):  # a pipe or a device is not even opened
                raise OSError(errno.EINVAL, "it is no plain file", str(self))
            try:  # without O_NONBLOCK: a file that is kept from us is not taken for one that is not there
                opened = os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self)) from None
        return open(opened, mode, buffering, encoding, errors, newline)

    def readlink(self) -> "TreePath":
        """The text of a link."""
        with self._descriptor(os.O_PATH | os.O_NOFOLLOW) as found:
            return type(self)(_link(found, str(self)))

    def iterdir(self) -> Iterator["TreePath"]:  # type: ignore[override]
        """Its entries in no order, without names that are no UTF-8."""
        with self._descriptor(os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK) as found, os.scandir(found) as entries:
            names = [entry.name for entry in islice(entries, MOST_NAMES + 1)]
        if len(names) > MOST_NAMES:
            raise OSError(errno.E2BIG, f"it holds more than {MOST_NAMES} names", str(self))
        return (self / name for name in names if name.isascii() or _is_text(name))

    def glob(self, pattern: str) -> Iterator["TreePath"]:  # type: ignore[override]
        """As `Path.glob`, without `**`; a folder that cannot be listed matches nothing."""
        first, _, rest = pattern.partition("/")
        try:
            found = [path for path in self.iterdir() if fnmatch.fnmatchcase(path.name, first)]
        except OSError:
            return
        for path in found:
            if rest:
                yield from path.glob(rest)
            else:
                yield path

    def resolve(self, strict: bool = False) -> "TreePath":
        """The path without links, beneath the root; unchanged where nothing is there or it cannot be reached."""
        return type(self)(self.root_).place(str(self)[len(self.root_) :]) or self

    def place(self, path: str) -> "TreePath | None":
        """Where `path` leads with this folder as the root; None when nothing is there or it cannot be reached."""
        try:
            with self._descriptor(os.O_PATH | os.O_DIRECTORY) as root:
                found = open_in_root(root, _encoded(path.strip("/") or "."), os.O_PATH | os.O_CLOEXEC)
                try:
                    start, end = (os.readlink(f"/proc/self/fd/{each}") for each in (root, found))
                finally:
                    os.close(found)
        except OSError:
            return None
        return self / end[len(start) :].lstrip("/")

    def exists(self, **options: Any) -> bool:
        """Whether there is something, links followed."""
        return self._is(lambda mode: True)

    def is_dir(self, **options: Any) -> bool:
        """Whether it is a folder, links followed."""
        return self._is(stat.S_ISDIR)

    def is_file(self, **options: Any) -> bool:
        """Whether it is a plain file, links followed."""
        return self._is(stat.S_ISREG)

    def is_symlink(self) -> bool:
        """Whether it is a link itself."""
        return self._is(stat.S_ISLNK, follow_symlinks=False)

    def _is(self, kind: Callable[[int], bool], *, follow_symlinks: bool = True) -> bool:
        try:
            return kind(self.stat(follow_symlinks=follow_symlinks).st_mode)
        except OSError:
            return False

    @contextlib.contextmanager
    def _descriptor(self, flags: int) -> Iterator[int]:
        found = self.descriptor(flags)
        try:
            yield found
        finally:
            os.close(found)


def place(root: Path, path: str) -> Path | None:
    """Where `path` of the host leads, links followed inside `root`; None when nothing is there or it cannot be
    reached.
    """
    if isinstance(root, TreePath):
        return root.place(path)
    at, left, links = root, _parts(path), 0
    while left:
        part = left.pop(0)
        if part == "..":
            at = root if at == root else at.parent
            continue
        try:
            target = str((at / part).readlink())
        except OSError:  # no link, or not there
            at = at / part
            continue
        links += 1
        if links > MOST_LINKS or len(left) > PATH_BYTES:
            return None
        at = root if target.startswith("/") else at
        left = _parts(target) + left
    try:
        at.lstat()
    except (OSError, ValueError):
        return None
    return at


def open_in_root(root: int, path: bytes, flags: int) -> int:
    """Open `path` with the folder `root`, a descriptor, as the root of its links. Raises OSError."""
    try:
        return openat2(root, path, flags)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):  # EPERM: from a seccomp profile without openat2
            raise
    return walk(root, path, flags)


def openat2(root: int, path: bytes, flags: int) -> int:
    """`open_in_root` by the kernel. Raises OSError; ENOSYS where the kernel lacks openat2."""
    how = (ctypes.c_uint64 * 3)(flags, 0, _IN_ROOT | _NO_MAGICLINKS)
    code = errno.EAGAIN
    for _ in range(_RETRIES):
        found = int(_libc().syscall(_OPENAT2, root, ctypes.c_char_p(path), ctypes.byref(how), ctypes.sizeof(how)))
        if found >= 0:
            return found
        code = ctypes.get_errno()
        if code != errno.EAGAIN:
            break
    raise OSError(code, os.strerror(code))


def walk(root: int, path: bytes, flags: int) -> int:
    """`open_in_root` component by component. Raises OSError."""
    if len(path) >= PATH_BYTES:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    left, links, folders = path.split(b"/"), 0, [os.dup(root)]
    try:
        while left:
            name = left.pop(0)
            if name == b"..":
                _leave(folders, to=max(1, len(folders) - 1))
            if name in (b"", b".", b".."):
                continue
            found = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folders[-1])
            mode = os.fstat(found).st_mode
            if stat.S_ISDIR(mode):
                folders.append(found)
                continue
            target = os.fsencode(_link(found, "")) if stat.S_ISLNK(mode) else b""
            os.close(found)
            if not left and (flags & os.O_NOFOLLOW or not target):
                return os.open(name, flags | os.O_NOFOLLOW, dir_fd=folders[-1])
            links += 1
            if not target or links > MOST_LINKS:
                code = errno.ELOOP if target else errno.ENOTDIR
                raise OSError(code, os.strerror(code))
            _leave(folders, to=1 if target.startswith(b"/") else len(folders))
            left = target.split(b"/") + left
        return os.open(".", flags, dir_fd=folders[-1])
    finally:
        _leave(folders, to=0)


def _leave(folders: list[int], *, to: int) -> None:
    while len(folders) > to:
        os.close(folders.pop())


def mounted(folder: Path) -> int | None:
    """Magic number of the file system that a folder lies on; None: it cannot be opened."""
    try:
        flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
        found = folder.descriptor(flags) if isinstance(folder, TreePath) else os.open(folder, flags)
    except OSError:
        return None
    try:
        status = (ctypes.c_long * 32)()  # struct statfs begins with the number
        return None if _libc().fstatfs(found, status) else int(status[0]) & 0xFFFFFFFF
    finally:
        os.close(found)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _link(found: int, path: str) -> str:
    try:
        return os.readlink("", dir_fd=found)
    except OSError as error:  # ENOENT: the file is no link
        code = errno.EINVAL if error.errno == errno.ENOENT else error.errno
        raise OSError(code, os.strerror(code or 0), path) from None


def _encoded(path: str) -> bytes:
    try:
        found = os.fsencode(path)
    except UnicodeEncodeError:
        found = b"\0"
    if b"\0" in found:
        raise OSError(errno.EINVAL, "it is no path", path)
    return found


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
