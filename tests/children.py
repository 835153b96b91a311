"""Child processes by what stands in their command line; those that end while one looks are no longer there."""

import psutil


def children(part: str, pid: int | None = None) -> list[psutil.Process]:
    """Living children, and theirs, of a process (this one by default) with an argument that contains `part`."""
    found = []
    try:
        every = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
    for child in every:
        try:
            if any(part in argument for argument in child.cmdline()):
                found.append(child)
        except psutil.Error:  # ended, or a zombie
            continue
    return found
