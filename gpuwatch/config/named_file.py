"""Small files that a configuration or an option names: certificates, keys, tokens, passwords, documents.

A name may be wrong. A FIFO would make a process wait, a device or a huge file would fill its memory: both are refused.
They are also refused where a new file would replace them: root could replace /dev/null by a file.
"""

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from gpuwatch.model.errors import UsageError

MOST_BYTES = 1 << 20
"""Far above any bundle of certificates."""


def read_named_file(path: Path | str, what: str, option: str = "", most: int = MOST_BYTES) -> bytes:
    """The whole of a regular file; `what` names it in errors (may be empty), `option` is where its path came from.

    Raises:
        UsageError: it cannot be read, is no regular file, or is larger than `most` bytes.
    """
    cannot, hint = f"cannot read {what} {path}".replace("  ", " "), option and f"check {option}"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise UsageError(cannot, "it is not a regular file", hint)
            body = file.read(most + 1)
    except IsADirectoryError:
        raise UsageError(cannot, "it is not a regular file", hint) from None
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        raise UsageError(cannot, getattr(error, "strerror", None) or str(error), hint) from None
    if len(body) > most:
        raise UsageError(cannot, f"it is larger than {most >> 10} KiB", hint)
    return body


@contextlib.contextmanager
def replacing(path: Path, mode: int | None = None) -> Iterator[IO[bytes]]:
    """A new file that takes the place of `path` once the block ends, whole or not at all; also of a link there.
    `mode` None: that of the file there; another user's gives no right to write.

    Raises:
        OSError: it cannot be written, or no regular file is there; names `path`, and nothing is left behind.
    """
    if path.parent == Path("/dev") or (path.exists() and not path.is_file()):  # /dev/stdout may lead to one
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    if mode is None and path.is_file() and not path.is_symlink():
        before = path.stat()
        mode = before.st_mode & (0o777 if before.st_uid == os.geteuid() else 0o644)
    partial, made = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial"), 0o666 if mode is None else 0o600
    try:
        # "x" never writes through an existing link
        with open(partial, "xb", opener=lambda name, flags: os.open(name, flags, made)) as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
