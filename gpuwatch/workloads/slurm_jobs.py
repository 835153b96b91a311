"""Accounts and partitions of Slurm jobs: a process's cgroup has the number of its job and nothing more.

Slurm tells its prolog, and deploy/slurm/prolog.sh writes them down: a file per job, named by its number, with lines
`account=NAME` and `partition=NAME`. The epilog removes it.
"""

import os
import stat
from pathlib import Path
from typing import NamedTuple

_MOST_BYTES = 4096
_MOST_CHARACTERS = 128


class SlurmJob(NamedTuple):
    """What the prolog knew of a job; None is what it did not."""

    account: str | None = None
    partition: str | None = None


def slurm_job(folder: Path, number: str) -> SlurmJob:
    """The job of that number; nothing is known of one without a file.

    Who may write there would give any job any account: folder and file count only where they belong to root or to this
    process's user and nobody else may write to them.
    """
    try:
        with open(folder / number, "rb", opener=_open_private) as file:
            text = file.read(_MOST_BYTES).decode("utf-8", "replace")
        is_ours = _is_private(os.stat(folder))
    except OSError:
        return SlurmJob()
    found = dict(line.split("=", 1) for line in text.splitlines() if "=" in line) if is_ours else {}
    account, partition = (found.get(name, "")[:_MOST_CHARACTERS] or None for name in SlurmJob._fields)
    return SlurmJob(account, partition)


def _open_private(path: str, flags: int) -> int:
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or not _is_private(found):
        os.close(fd)
        raise PermissionError(f"{path} is not a file that only root writes")
    return fd


def _is_private(found: os.stat_result) -> bool:
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
