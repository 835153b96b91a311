"""What the text of /proc/PID/cgroup tells about a process: its pod, its container, its Slurm job.

A line is `hierarchy:controllers:path` (cgroups(7)). Hybrid hosts show v1 lines beside the v2 line, any of which may be
`/`, so every line is looked at. Read from another cgroup namespace a path is relative (`/../../pod...`) and can lack
its head: only the parts that carry an identity are matched, never the prefix.
"""

import re
from typing import NamedTuple

_DASHED = r"[0-9a-f]{8}(?P<dash>[-_])[0-9a-f]{4}(?P=dash)[0-9a-f]{4}(?P=dash)[0-9a-f]{4}(?P=dash)[0-9a-f]{12}"
_POD = re.compile(rf"(?:^|[/-])pod(?P<uid>{_DASHED}|[0-9a-f]{{32}})(?![0-9a-f_-])")  # 32 hex: static pods
_CONTAINER = re.compile(r"(?:^|[/:-])(?P<id>[0-9a-f]{64})(?![0-9a-f])")
_SLURM_JOB = re.compile(r"slurm[^/]*/(?:[^/]+/)?job_(?P<slurm>\d{1,10})(?:/|$)|/job_(?P<step>\d{1,10})/step_", re.ASCII)


class CgroupOwner(NamedTuple):
    """Identities found; `container_id` alone is a container outside Kubernetes or a sibling seen from inside a pod."""

    pod_uid: str | None = None
    container_id: str | None = None
    slurm_job: str | None = None


def owner(text: str) -> CgroupOwner:
    """Read the whole file. Unknown layouts and garbage give an empty owner; never raises."""
    found = CgroupOwner()
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        pod = _POD.search(path)
        # a container runtime inside a container adds further ids behind the one kubelet knows
        container = _CONTAINER.search(path, pod.end() if pod else 0)
        job = _SLURM_JOB.search(path)
        found = CgroupOwner(
            found.pod_uid or (pod["uid"].replace("_", "-") if pod else None),
            found.container_id or (container["id"] if container else None),
            found.slurm_job or (job["slurm"] or job["step"] if job else None),
        )
    return found
