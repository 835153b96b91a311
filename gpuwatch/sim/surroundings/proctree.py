"""A /proc-like tree and kubelet's log folders for made-up processes, in every cgroup layout found on real nodes.

<root>/proc/uptime
<root>/proc/<pid>/{comm,status,stat,cgroup}
<root>/log/pods/<namespace>_<pod>_<uid>/<container>/
<root>/log/containers/<pod>_<namespace>_<container>-<id>.log
"""

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec

from gpuwatch.model.workload import Container, Workload

_V1 = "12:devices:{path}\n9:memory:{path}\n4:cpu,cpuacct:{path}\n1:name=systemd:{path}\n"
_SYSTEMD = "/kubepods.slice/kubepods-{qos}.slice/kubepods-{qos}-pod{uid_}.slice/{runtime}-{id}.scope"
_CGROUPFS = "/kubepods/{qos}/pod{uid}/{id}"

# name -> text of /proc/PID/cgroup; {uid_} is the pod's uid as systemd escapes it
LAYOUTS = {
    "v2-systemd": "0::" + _SYSTEMD + "\n",
    "v2-systemd-guaranteed": "0::/kubepods.slice/kubepods-pod{uid_}.slice/{runtime}-{id}.scope\n",
    "v2-cgroupfs": "0::" + _CGROUPFS + "\n",
    "v2-cgroupfs-guaranteed": "0::/kubepods/pod{uid}/{id}\n",
    "v1-systemd": _V1.replace("{path}", _SYSTEMD),
    "v1-cgroupfs": _V1.replace("{path}", _CGROUPFS),
    "hybrid": "9:memory:" + _CGROUPFS + "\n1:name=systemd:/\n0::/\n",
    "hybrid-v2-named": "9:memory:/\n1:name=systemd:/\n0::" + _SYSTEMD + "\n",
    "relative-systemd": "0::/../../../kubepods-{qos}.slice/kubepods-{qos}-pod{uid_}.slice/{runtime}-{id}.scope\n",
    "relative-same-qos": "0::/../../kubepods-{qos}-pod{uid_}.slice/{runtime}-{id}.scope\n",
    "relative-cgroupfs": "9:memory:/../../pod{uid}/{id}\n0::/\n",
    "containerd-service": "0::/system.slice/containerd.service/kubepods-{qos}-pod{uid_}.slice:cri-containerd:{id}\n",
    "kind": "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-{qos}.slice/"
    "kubelet-kubepods-{qos}-pod{uid_}.slice/{runtime}-{id}.scope\n",
    "nested": "0::" + _CGROUPFS + "/docker/ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff\n",
    "nested-systemd": "0::" + _SYSTEMD + "/init.scope\n",
}
SLURM_LAYOUTS = {
    "slurm-v1": _V1.replace("{path}", "/slurm/uid_{user}/job_{job}/step_0/task_0"),
    "slurm-v2": "0::/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_0\n",
    "slurm-v2-node": "0::/system.slice/node7_slurmstepd.scope/job_{job}/step_batch/user/task_0\n",
    "slurm-relative": "0::/../job_{job}/step_extern/user/task_0\n",
}
USER_LAYOUT = "0::/user.slice/user-{user}.slice/session-3.scope\n"
CONTAINER_LAYOUTS = {
    "docker": "0::/system.slice/docker-{id}.scope\n",
    "docker-cgroupfs": _V1.replace("{path}", "/docker/{id}"),
    "podman": "0::/machine.slice/libpod-{id}.scope/container\n",
}


class SimProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process to show: in a pod when `workload` is set, in a Slurm job when `slurm_job` is, else a plain user's."""

    pid: int
    name: str = "python"
    uid: int = 0
    start_time: int = 100
    workload: Workload | None = None
    slurm_job: str | None = None
    container: Container | None = None  # outside Kubernetes
    layout: str | None = None  # a key of the tables above; v2-systemd or slurm-v2 when not given
    runtime: str = "cri-containerd"

    @property
    def container_id(self) -> str:
        """64 hex digits, the same for every process of a container."""
        name = f"{self.workload.pod_uid}/{self.workload.container}" if self.workload else ""
        return hashlib.sha256((name or str(self.container or self.pid)).encode()).hexdigest()

    @property
    def cgroup(self) -> str:
        """The text of its /proc/PID/cgroup."""
        known = LAYOUTS | SLURM_LAYOUTS | CONTAINER_LAYOUTS
        default = "v2-systemd" if self.workload else "slurm-v2"
        layout = known[self.layout or default] if self.workload or self.slurm_job or self.layout else USER_LAYOUT
        uid = (self.workload and self.workload.pod_uid) or ""
        return layout.format(
            uid=uid,
            uid_=uid.replace("-", "_"),
            id=self.container_id,
            qos="burstable",
            runtime=self.runtime,
            job=self.slurm_job,
            user=self.uid,
        )


class ProcTree:
    """Updates the files under `root` to the processes last passed to `show`."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.logs = root / "log"
        self._processes: dict[int, SimProcess] = {}
        self._pods: set[Workload] = set()
        for folder in (self.proc, self.logs / "pods", self.logs / "containers"):
            folder.mkdir(parents=True, exist_ok=True)
        (self.proc / "uptime").write_text("86400.00 172800.00\n")  # long enough for everything to have come up

    def show(self, processes: Iterable[SimProcess], pods: Iterable[Workload] = ()) -> None:
        """Make exactly these visible. `pods`: containers that run without a process of their own on the GPU."""
        wanted = {process.pid: process for process in processes}
        for pid in self._processes.keys() - wanted.keys():
            self._remove(self.proc / str(pid))
        for pid, process in wanted.items():
            if self._processes.get(pid) != process:
                new = self.proc / f".{process.pid}"  # the folder appears complete, as that of a process does
                new.mkdir()
                state = f"S 1 {process.pid} {process.pid}" + " 0" * 15
                files = {
                    "comm": process.name[:15] + "\n",
                    "status": f"Name:\t{process.name[:15]}\nPid:\t{process.pid}\nUid:" + f"\t{process.uid}" * 4 + "\n",
                    "stat": f"{process.pid} ({process.name[:15]}) {state} {process.start_time} 0 0\n",
                    "cgroup": process.cgroup,
                }
                for name, text in files.items():
                    (new / name).write_text(text)
                self._remove(self.proc / str(process.pid))
                new.rename(self.proc / str(process.pid))
        seen = {process.workload for process in wanted.values() if process.workload}
        self._set_pods(seen | set(pods))
        self._processes = wanted

    def _set_pods(self, pods: set[Workload]) -> None:
        for gone in self._pods - pods:
            for path in self._log_paths(gone):
                self._remove(path)
        kept = {_pod_folder(pod) for pod in pods}
        for gone_pod in {_pod_folder(pod) for pod in self._pods} - kept:
            self._remove(self.logs / "pods" / gone_pod)
        for pod in pods - self._pods:
            folder, link = self._log_paths(pod)
            folder.mkdir(parents=True, exist_ok=True)
            link.touch()
        self._pods = pods

    def _log_paths(self, pod: Workload) -> tuple[Path, Path]:
        identity = SimProcess(pid=0, workload=pod).container_id
        folder = self.logs / "pods" / _pod_folder(pod) / (pod.container or "")
        return folder, self.logs / "containers" / f"{pod.pod}_{pod.namespace}_{pod.container}-{identity}.log"

    def _remove(self, path: Path) -> None:
        """Remove a folder at once: readers find all of it or nothing."""
        removed = path.with_name(f".{path.name}.gone")
        if path.exists():
            path.rename(removed)
            shutil.rmtree(removed) if removed.is_dir() else removed.unlink()


def _pod_folder(pod: Workload) -> str:
    return f"{pod.namespace}_{pod.pod}_{pod.pod_uid}"
