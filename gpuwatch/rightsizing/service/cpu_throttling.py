"""How often the kernel holds a process's container back because its CPU limit is used up: cpu.stat of its cgroup.

`nr_throttled` of `nr_periods` are the periods of CFS bandwidth control in which it had to wait (kernel:
Documentation/admin-guide/cgroup-v2.rst, scheduler/sched-bwc.rst). Unknown where the host's cgroups cannot be read: in a
container with a cgroup namespace of its own, which is the default unless it is privileged.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from gpuwatch.host import plain_file

CONTROLLERS = ("cpu,cpuacct", "cpu")
"""Folders of the v1 hierarchy that has cpu.stat."""

MOST_BYTES = 1 << 16

Throttling = Callable[[Iterable[int]], dict[int, float]]
"""`CpuThrottling.shares`."""


class Periods(NamedTuple):
    """Of bandwidth control, since the cgroup was made; 0 without a limit."""

    all: int
    throttled: int


class CpuThrottling:
    """Keeps each cgroup's counters between two calls."""

    def __init__(self, proc: Path = Path("/proc"), sys: Path = Path("/sys")) -> None:
        self._proc, self._root = proc, sys / "fs/cgroup"
        self._known: dict[Path, Periods] = {}

    def shares(self, pids: Iterable[int]) -> dict[int, float]:
        """Pid -> share of periods since the last call in which its cgroup had to wait, 0 to 1; 0 without a limit.

        A process whose cgroup cannot be read, or is read for the first time, is missing. Never raises.
        """
        known, self._known = self._known, {}
        found: dict[int, float] = {}
        for pid in pids:
            read = self._periods(pid)
            if read is None:
                continue
            path, now = read
            self._known[path] = now
            before = known.get(path)
            if before is not None and now.all >= before.all and now.throttled >= before.throttled:
                periods = now.all - before.all
                found[pid] = min(1.0, (now.throttled - before.throttled) / periods) if periods else 0.0
        return found

    def _periods(self, pid: int) -> tuple[Path, Periods] | None:
        text = plain_file.text(self._proc / str(pid) / "cgroup", MOST_BYTES)
        folders: list[Path] = []  # v1 mounts each hierarchy by its controllers, v2 is the root or beside them
        for line in (text or "").split("\n"):
            _, controllers, path = [*line.split(":", 2), "", ""][:3]
            if not path.startswith("/") or ".." in path.split("/"):  # outside this cgroup namespace
                continue
            if not controllers:
                folders += [self._root / path[1:], self._root / "unified" / path[1:]]
            elif "cpu" in controllers.split(","):
                folders += [self._root / name / path[1:] for name in (controllers, *CONTROLLERS)]
        for folder in folders:
            stat = plain_file.text(folder / "cpu.stat", MOST_BYTES)
            if stat is not None and (periods := read_periods(stat)) is not None:
                return folder, periods
        return None


def read_periods(stat: str) -> Periods | None:
    """From the text of a cpu.stat; None: it has none, as without the cpu controller."""
    words = dict(line.split(" ", 1) for line in stat.splitlines() if line.count(" ") == 1)
    periods, throttled = words.get("nr_periods", ""), words.get("nr_throttled", "")
    if not (periods.isascii() and periods.isdigit() and throttled.isascii() and throttled.isdigit()):
        return None
    return Periods(int(periods), int(throttled))
