"""How busy the host of the GPUs is: a GPU often waits because a processor cannot keep up."""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

from gpuwatch.model.snapshot import Record


class HostUse(Record, frozen=True, kw_only=True):
    """Load of the host: `cpu` 0..1 of all processors since the previous read, memory in bytes, load of one minute."""

    cpu: float
    processors: int
    memory_used: int
    memory_total: int
    load: float


def host_use() -> HostUse:
    """Read it now; the first reading's `cpu` covers the time since psutil was loaded."""
    memory = psutil.virtual_memory()
    return HostUse(
        cpu=psutil.cpu_percent(interval=None) / 100,
        processors=psutil.cpu_count() or 1,
        memory_used=memory.total - memory.available,
        memory_total=memory.total,
        load=psutil.getloadavg()[0],
    )


class ProcessUse(Record, frozen=True, kw_only=True):
    """`cpu` in processors since the previous read, `memory` (resident) in bytes, and the `seconds` since its start."""

    cpu: float
    memory: int
    seconds: float
    command: str
    parent: int
    uid: int


class ProcessMeter:
    """Reads processes of this machine repeatedly: a process's `cpu` covers the time since the previous read."""

    def __init__(self) -> None:
        self._known: dict[int, psutil.Process] = {}

    def read(self, pids: Iterable[int], *, parents: bool = False) -> Mapping[int, ProcessUse]:
        """By pid, without those that are gone or that this user may not read; with `parents` all ancestors, too."""
        found, known = {}, {}
        waiting = [*pids]
        while waiting:
            if (pid := waiting.pop()) in found:
                continue
            try:
                process = self._known.get(pid) or psutil.Process(pid)
                with process.oneshot():
                    found[pid] = ProcessUse(
                        cpu=process.cpu_percent(interval=None) / 100,
                        memory=process.memory_info().rss,
                        seconds=time.time() - process.create_time(),
                        command=" ".join(process.cmdline()) or process.name(),
                        parent=process.ppid(),
                        uid=process.uids().real,
                    )
                known[pid] = process
            except psutil.Error:
                continue
            if parents:
                waiting.append(found[pid].parent)
        self._known = known
        return found


def uptime(proc: Path) -> float | None:
    """Seconds since the machine was booted (proc(5), uptime); None where that cannot be read."""
    try:
        return float((proc / "uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None
