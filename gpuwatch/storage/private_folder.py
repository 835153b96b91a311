"""Folders whose files gpuwatch acts on, or in which it deletes files: only their owner may write there.

A folder with a guessable name belongs to the user that creates it first: a socket in it can deliver a forged View, a
link in it can direct a deletion to a third user's files. A check of the folder's own mode does not help, as a user that
may write to its parent can replace it after the check. So the whole way is checked, from `/` down: each folder and each
link belongs to root or to this user, and no other user may write to it. In a folder such as /tmp others may write, and
the sticky bit keeps them from replacing what is not theirs: below it, what belongs to this user is safe. By induction
no other user can change a way between the check and its use.

The state folder is tightened where an older version, a kubelet or an image has left it open.
"""

import contextlib
import os
import stat
from pathlib import Path

from gpuwatch.model.errors import GpuwatchError, PermissionMissing

STATE_MODE, FILE_MODE = 0o750, 0o640

STATE_FILES = ("gpuwatch.db*", "rightsizing*", "remediator*", "consents/*", "tuner/*")
"""What gpuwatch writes into a state folder, which may hold files of others: `--state-dir .`"""


class UnsafePath(PermissionMissing):
    """Another user could replace what is there."""


def check_way(folder: Path) -> None:
    """Check that only root and this user may change `folder`, and each folder and link on the way to it.

    Raises:
        UnsafePath: another user may.
        OSError: it does not exist, or its links go around.
    """
    folder = Path(os.path.abspath(folder))
    folder.stat()  # for a loop of links: ELOOP
    for each in (*reversed(folder.parents), folder):
        status = each.lstat()
        if status.st_uid not in (0, os.geteuid()):
            raise _unsafe(folder, f"{each} belongs to user {status.st_uid}")
        if stat.S_ISLNK(status.st_mode):
            check_way(each.parent / each.readlink())
            continue
        if not stat.S_ISDIR(status.st_mode):
            raise _unsafe(folder, f"{each} is no folder")
        by_group = status.st_mode & stat.S_IWGRP and status.st_gid != 0
        if (by_group or status.st_mode & stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX:
            raise _unsafe(folder, f"other users may write to {each} (mode {stat.S_IMODE(status.st_mode):04o})")


def make_named(folder: Path) -> None:
    """Make what is missing of a folder that the user has named, with mode 0700, and check the way to it.

    Raises: as `check_way`, or OSError: it cannot be made.
    """
    for each in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
        each.mkdir(mode=0o700, exist_ok=True)
    check_way(folder)


def make_private(folder: Path, mode: int = 0o700) -> None:
    """Make `folder` with `mode`, and what is missing above it, and check the way to it.

    A folder of this user that other users may open is tightened, and used if none of them has put anything there.

    Raises:
        UnsafePath: it is another user's, a link, no folder, or holds what another user has put there.
        OSError: it cannot be made.
    """
    make_named(folder.parent)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise _unsafe(folder, "it is a link" if stat.S_ISLNK(status.st_mode) else "it is no folder")
    _tighten(folder, STATE_MODE)  # an emptyDir has 0777, a RuntimeDirectory of systemd 0755
    check_way(folder)
    for entry in folder.iterdir():
        owner = entry.lstat().st_uid
        if owner not in (0, os.geteuid()):
            raise _unsafe(folder, f"user {owner} has put {entry.name} there")


def tighten_state(directory: Path) -> None:
    """Make the state folder, or remove the rights that it and gpuwatch's files in it give to other users.

    What belongs to another user stays as it is, and so does the mode of a folder that gpuwatch has not made.

    Raises:
        OSError: it cannot be made or read.
    """
    directory.mkdir(mode=STATE_MODE, parents=True, exist_ok=True)
    files = [file for pattern in STATE_FILES for file in directory.glob(pattern)]
    is_ours = files or not any(directory.iterdir())
    if is_ours and not directory.stat().st_mode & stat.S_ISVTX:
        _tighten(directory, STATE_MODE)
    for folder in ("consents", "tuner"):
        _tighten(directory / folder, STATE_MODE)
    for file in files:
        _tighten(file, FILE_MODE)


def _tighten(path: Path, mode: int) -> None:
    """Never through a link, nor the file of another user. A mount may be read-only.

    The file is not opened, only its path is (O_PATH): POSIX drops all locks that a process has on a file when it
    closes any descriptor of it. SQLite in another process would then treat the store's index as abandoned and shorten
    it, and this process, which has it mapped, would end with SIGBUS.
    """
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            is_ours = status.st_uid == os.geteuid() and not stat.S_ISLNK(status.st_mode)
            if is_ours and stat.S_IMODE(status.st_mode) & ~mode:
                os.chmod(f"/proc/self/fd/{fd}", stat.S_IMODE(status.st_mode) & mode)
        finally:
            os.close(fd)


def _unsafe(folder: Path, why: str) -> GpuwatchError:
    return UnsafePath(
        f"{folder} is not safe to use", why, "remove it, or name another one that belongs to you and has mode 0700"
    )
