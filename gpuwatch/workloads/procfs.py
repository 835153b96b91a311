"""Whose is this process? From /proc: cgroup, user, name and start time of the pids the driver reports.

Needs the host's pid namespace (`hostPID`) to see other containers' processes. Never reads a command line or an
environment: both may hold secrets.
"""

import pwd
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from gpuwatch.model.workload import ProcessOwner
from gpuwatch.workloads import cgroup
from gpuwatch.workloads.podlogs import PodLogs

_READ_LIMIT = 1 << 16


def user_name(uid: int) -> str | None:
    """The name in this machine's user database, or None. Inside a container that is the image's database."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return None


class Processes:
    """Owners of processes, remembered for as long as the same process lives.

    `vanished` and `unreadable` count the pids that could not be looked at since the start: gone or in a pid namespace
    we do not see, and refused.
    """

    def __init__(
        self,
        proc: Path = Path("/proc"),
        logs: PodLogs | None = None,
        users: Callable[[int], str | None] = user_name,
    ) -> None:
        self.vanished = 0
        self.unreadable = 0
        self._proc = proc
        self._logs = logs or PodLogs()
        self._users = users
        self._known: dict[int, ProcessOwner] = {}
        self._logs_are_old = True

    def owners(self, pids: Iterable[int]) -> dict[int, ProcessOwner]:
        """The owner of each pid that can be read; the others are missing and counted."""
        self._logs_are_old = True
        found: dict[int, ProcessOwner] = {}
        for pid in sorted(set(pids)):
            try:
                found[pid] = self._owner(pid)
            except (FileNotFoundError, ProcessLookupError):
                self.vanished += 1
            except (OSError, ValueError):
                self.unreadable += 1
        self._known = found
        return dict(found)

    def _owner(self, pid: int) -> ProcessOwner:
        started = self._start_time(pid)
        known = self._known.get(pid)
        if known is None or known.start_time != started:
            known = self._look(pid, started)
        return self._named(known)

    def _look(self, pid: int, started: int) -> ProcessOwner:
        group = cgroup.owner(self._read(pid, "cgroup"))
        uid = _real_uid(self._read(pid, "status"))
        name = self._read(pid, "comm").rstrip("\n")
        if self._start_time(pid) != started:
            raise ProcessLookupError(f"pid {pid} was reused while it was read")
        return ProcessOwner(
            pid=pid,
            start_time=started,
            name=name or None,
            uid=uid,
            user=None if uid is None else self._users(uid),
            pod_uid=group.pod_uid,
            container_id=group.container_id,
            slurm_job=group.slurm_job,
        )

    def _named(self, owner: ProcessOwner) -> ProcessOwner:
        """Names may come later than the process: kubelet makes the log links after the container has started."""
        if owner.workload and owner.workload.container:
            return owner
        if self._logs_are_old:  # once for all pids, and only when there is somebody to name
            self._logs.refresh()
            self._logs_are_old = False
        workload = self._logs.workload(owner.pod_uid, owner.container_id)
        if workload is None or workload == owner.workload:
            return owner
        return msgspec.structs.replace(owner, workload=workload, pod_uid=workload.pod_uid)

    def _start_time(self, pid: int) -> int:
        """Field 22 of proc_pid_stat(5), clock ticks since boot; the name before it may hold spaces and brackets."""
        fields = self._read(pid, "stat").rpartition(")")[2].split()
        if len(fields) < 20:
            raise ValueError(f"pid {pid}: a stat line of {len(fields)} fields")
        return int(fields[19])

    def _read(self, pid: int, name: str) -> str:
        with open(f"{self._proc}/{pid}/{name}", "rb") as file:  # pathlib would take as long as the kernel
            return file.read(_READ_LIMIT).decode(errors="backslashreplace")


def _real_uid(status: str) -> int | None:
    fields = next((line.split() for line in status.splitlines() if line.startswith("Uid:")), [])
    return int(fields[1]) if len(fields) > 1 else None
