"""Processes that have a GPU's device file open, from /proc: what NVML does not list, such as other monitors.

The driver resets no GPU that another client has open, and what it would do to that client is not known.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

from gpuwatch.host.plain_file import text
from gpuwatch.model.text import visible


def holders(proc: Path, dev: Path, minor: int) -> tuple[str, ...] | str:
    """`NAME (pid N)` of each process that has /dev/nvidia`minor` open; a text: why that cannot be known.

    A file is known by its device number: any process can call a file of its own nvidia0, and a GPU's device file can be
    open under another name, or deleted.
    """
    try:
        gpu = os.stat(dev / f"nvidia{minor}").st_rdev
    except OSError as error:
        return f"the GPU's device file cannot be read: {error.strerror}"
    if text(proc / "2/comm") != "kthreadd":  # only the machine's own /proc shows kernel threads
        return f"{proc} does not show all processes; run this on the host, or with hostPID"
    found: list[str] = []
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            numbers = os.listdir(folder / "fd")
        except PermissionError:
            return f"the files of process {folder.name} cannot be read; run this as root with CAP_SYS_PTRACE"
        except OSError:  # it has ended
            continue
        for number in numbers:
            with suppress(OSError):  # closed meanwhile
                file = os.stat(folder / "fd" / number)
                if stat.S_ISCHR(file.st_mode) and file.st_rdev == gpu:
                    found.append(f"{visible(text(folder / 'comm') or '?')} (pid {folder.name})")
                    break
    return tuple(sorted(found))
