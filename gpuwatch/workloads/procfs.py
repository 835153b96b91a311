"""The owners of processes, from /proc: cgroup, user, name and start time of the pids that the driver reports.

Needs the host's pid namespace (`hostPID`) for processes of other containers. Never reads a command line or an
environment: both may hold secrets.
"""

import os
import pwd
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec

from gpuwatch.model.workload import Allocation, Container, ProcessOwner, Workload
from gpuwatch.storage.versioned_file import OTHERS_WRITE, read_file
from gpuwatch.workloads.containers import container

_DASHED = r"[0-9a-f]{8}(?P<dash>[-_])[0-9a-f]{4}(?P=dash)[0-9a-f]{4}(?P=dash)[0-9a-f]{4}(?P=dash)[0-9a-f]{12}"
_POD = re.compile(rf"(?:^|[/-])pod(?P<uid>{_DASHED}|[0-9a-f]{{32}})(?![0-9a-f_-])")  # 32 hex: static pods
_CONTAINER = re.compile(r"(?:^|[/:-])(?P<id>[0-9a-f]{64})(?![0-9a-f])")
_SLURM_JOB = re.compile(
    r"slurm(?:(?!slurm)[^/])*+/(?:[^/]+/)?job_(?P<slurm>\d{1,10})(?:/|$)|/job_(?P<step>\d{1,10})/step_", re.ASCII
)
_SLURM_STEP = re.compile(r"/job_\d{1,10}/step_(?P<step>\w{1,16})(?:/|$)", re.ASCII)
_UNIT = re.compile(r"/(?P<unit>(?!user@|slurm)[\w:.\\@-]{1,128}\.service)(?=/|$)", re.ASCII)

_USER_MANAGER = re.compile(r"/user@[0-9]+\.service(?=/|$)", re.ASCII)

_JOB_MOST_CHARACTERS = 128


class CgroupOwner(NamedTuple):
    """Identities found; `container_id` alone: a container outside Kubernetes, or one of this process's own pod."""

    pod_uid: str | None = None
    container_id: str | None = None
    slurm_job: str | None = None
    slurm_step: str | None = None
    unit: str | None = None
    """The innermost systemd service of a process with none of the above; a user's own manager does not count."""


def cgroup_owner(text: str) -> CgroupOwner:
    """`text`: the whole file. Unknown layouts and garbage give an empty owner; never raises.

    Below a user's own manager (`user@1000.service`) that user can make cgroups of any name, also that of another
    user's pod, container or job. So only a unit is read there.
    """
    found = CgroupOwner()
    for line in text.split("\n"):  # the kernel refuses only this one in a name; `splitlines` has ten more line ends
        path = line.split(":", 2)[-1]
        system = _USER_MANAGER.split(path, 1)[0]
        pod = _POD.search(system)
        # a container runtime inside a container adds further ids after the one that kubelet uses
        container = _CONTAINER.search(system, pod.end() if pod else 0)
        job = _SLURM_JOB.search(system)
        found = CgroupOwner(
            found.pod_uid or (pod["uid"].replace("_", "-") if pod else None),
            found.container_id or (container["id"] if container else None),
            found.slurm_job or (job["slurm"] or job["step"] if job else None),
            found.slurm_step or (step["step"] if (step := _SLURM_STEP.search(system)) else None),
            found.unit or next((unit["unit"] for unit in reversed([*_UNIT.finditer(path)])), None),
        )
    is_known = found.pod_uid or found.container_id or found.slurm_job
    return found._replace(unit=None) if is_known else found


_CONTAINER_LOG = re.compile(r"(?P<pod>[^_]+)_(?P<namespace>[^_]+)_(?P<container>[^_]+)-(?P<id>[0-9a-f]{64})\.log")


class PodLogs:
    """An index of one node's log folders; `refresh` looks again. A folder that cannot be read is an empty one."""

    def __init__(self, root: Path = Path("/var/log")) -> None:
        self._root = root
        self._pods: dict[str, Workload] = {}
        self._uids: dict[tuple[str | None, str | None], set[str]] = {}
        self._containers: dict[str, Workload] = {}

    def refresh(self) -> None:
        """List both folders again."""
        rows = (entry.split("_") for entry in _entries(self._root / "pods"))
        pods = {row[2]: Workload(namespace=row[0], pod=row[1], pod_uid=row[2]) for row in rows if len(row) == 3}
        uids: dict[tuple[str | None, str | None], set[str]] = {}
        for uid, pod in pods.items():
            uids.setdefault((pod.namespace, pod.pod), set()).add(uid)
        self._pods, self._uids = pods, uids  # both at once: another thread may read them
        logs = (_CONTAINER_LOG.fullmatch(entry) for entry in _entries(self._root / "containers"))
        self._containers = {
            log["id"]: Workload(namespace=log["namespace"], pod=log["pod"], container=log["container"])
            for log in logs
            if log
        }

    def workload(self, pod_uid: str | None, container_id: str | None) -> Workload | None:
        """What the logs show of the container, or only its pod's uid; None: no uid is given, and no log names it."""
        pod = self._pods.get(pod_uid or "") or (pod_uid and Workload(pod_uid=pod_uid)) or None
        named = self._containers.get(container_id or "")
        if named:
            uid = pod_uid or self._uid(named)
            return msgspec.structs.replace(named, pod_uid=uid)
        if pod and pod.pod:
            containers = _entries(self._root / "pods" / f"{pod.namespace}_{pod.pod}_{pod.pod_uid}")
            return msgspec.structs.replace(pod, container=containers[0] if len(containers) == 1 else None)
        return pod

    def with_uid(self, allocation: Allocation) -> Allocation:
        """The allocation with its pod's uid, when exactly one pod of that name has logs here."""
        if allocation.workload.pod_uid or (uid := self._uid(allocation.workload)) is None:
            return allocation
        workload = msgspec.structs.replace(allocation.workload, pod_uid=uid)
        return msgspec.structs.replace(allocation, workload=workload)

    def _uid(self, workload: Workload) -> str | None:
        uids = self._uids.get((workload.namespace, workload.pod), set())
        return next(iter(uids)) if len(uids) == 1 else None


def _entries(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


_READ_LIMIT = 1 << 16


def user_name(uid: int) -> str | None:
    """The name in this machine's user database, or None. Inside a container that is the image's database."""
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return None


class Processes:
    """Owners of processes, remembered for as long as the same process lives.

    `vanished` and `unreadable` count the pids that could not be read since the start: gone or in another pid
    namespace, and refused. `jobs`: the folder of `slurm_job`; `runtimes`: those of `container`.
    """

    def __init__(
        self,
        proc: Path = Path("/proc"),
        logs: PodLogs | None = None,
        users: Callable[[int], str | None] = user_name,
        jobs: Path | str = "",
        runtimes: tuple[str, ...] = (),
    ) -> None:
        self.vanished = 0
        self.unreadable = 0
        self._proc = proc
        self._logs = logs or PodLogs()
        self._users, self._jobs, self._runtimes = users, jobs, runtimes
        self._known: dict[int, ProcessOwner] = {}
        self._containers: dict[str, Container | None] = {}  # read once each, kept while they have processes here
        self._logs_are_old = True

    def owners(self, pids: Iterable[int]) -> dict[int, ProcessOwner]:
        """The owner of each pid that can be read; the others are missing and counted."""
        self._logs_are_old = True
        found: dict[int, ProcessOwner] = {}
        for pid in sorted(set(pids)):
            try:
                started = self._start_time(pid)
                known = self._known.get(pid)
                if known is None or known.start_time != started:
                    known = self._inspect(pid, started)
                found[pid] = self._named(known)
            except (FileNotFoundError, ProcessLookupError):
                self.vanished += 1
            except (OSError, ValueError):
                self.unreadable += 1
        self._known = found
        running = {owner.container_id for owner in found.values()}
        self._containers = {ident: each for ident, each in self._containers.items() if ident in running}
        return dict(found)

    def _inspect(self, pid: int, started: int) -> ProcessOwner:
        group = cgroup_owner(self._read(pid, "cgroup"))
        status = self._read(pid, "status")
        fields = next((line.split() for line in status.split("\n") if line.startswith("Uid:")), [])
        uid = int(fields[1]) if len(fields) > 1 else None
        name = self._read(pid, "comm").rstrip("\n")
        if self._start_time(pid) != started:
            raise ProcessLookupError(f"pid {pid} was reused while it was read")
        job = slurm_job(Path(self._jobs), group.slurm_job) if self._jobs and group.slurm_job else SlurmJob()
        ident = None if group.pod_uid else group.container_id
        if ident is not None and ident not in self._containers:
            self._containers[ident] = container(self._runtimes, ident)
        return ProcessOwner(
            pid=pid,
            start_time=started,
            name=name or None,
            uid=uid,
            user=None if uid is None else self._users(uid),
            pod_uid=group.pod_uid,
            container_id=group.container_id,
            container=self._containers.get(ident or ""),
            slurm_job=group.slurm_job,
            slurm_step=group.slurm_step,
            slurm_account=job.account,
            slurm_partition=job.partition,
            unit=group.unit,
        )

    def _named(self, owner: ProcessOwner) -> ProcessOwner:
        """Names may come later than the process: kubelet makes the log links after the container has started."""
        if owner.workload and owner.workload.container:
            return owner
        if self._logs_are_old:  # once for all pids, and only when a pid needs a name
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


class SlurmJob(NamedTuple):
    """Account and partition of a Slurm job: its cgroup has its number and nothing more. None: not known.

    Slurm passes them to its prolog, deploy/slurm/prolog.sh, which writes a file per job, named by its number: the lines
    `account=NAME` and `partition=NAME`. The epilog removes it.
    """

    account: str | None = None
    partition: str | None = None


def slurm_job(folder: Path, number: str) -> SlurmJob:
    """The job of that number; nothing is known of one without a file.

    A user who may write there could give any job any account: folder and file count only where they belong to root or
    to this process's user and no other user may write to them.
    """
    try:
        status, body = read_file(folder / number, _READ_LIMIT)
        found = status, os.stat(folder)
        is_ours = all(each.st_uid in (0, os.geteuid()) and not each.st_mode & OTHERS_WRITE for each in found)
    except OSError:
        return SlurmJob()
    lines = body.decode("utf-8", "replace").splitlines() if is_ours else ()
    noted = dict(line.split("=", 1) for line in lines if "=" in line)
    account, partition = (noted.get(name, "")[:_JOB_MOST_CHARACTERS] or None for name in SlurmJob._fields)
    return SlurmJob(account, partition)
