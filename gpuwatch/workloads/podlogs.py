"""Names of pods and containers from kubelet's log folders, so that no API token is needed to name a process.

    /var/log/pods/<namespace>_<pod>_<uid>/<container>/           uid -> names
    /var/log/containers/<pod>_<namespace>_<container>-<id>.log   container id -> names

Only names of folder entries are read, never a log.
"""

import os
import re
from pathlib import Path

import msgspec

from gpuwatch.model.workload import Allocation, Workload

_CONTAINER_LOG = re.compile(r"(?P<pod>[^_]+)_(?P<namespace>[^_]+)_(?P<container>[^_]+)-(?P<id>[0-9a-f]{64})\.log")


class PodLogs:
    """An index of one node's log folders; `refresh` looks again. A folder that cannot be read is an empty one."""

    def __init__(self, root: Path = Path("/var/log")) -> None:
        self._root = root
        self._pods: dict[str, Workload] = {}
        self._uids: dict[tuple[str | None, str | None], set[str]] = {}
        self._containers: dict[str, Workload] = {}

    def refresh(self) -> None:
        """List both folders anew."""
        rows = (entry.split("_") for entry in _entries(self._root / "pods"))
        pods = {row[2]: Workload(namespace=row[0], pod=row[1], pod_uid=row[2]) for row in rows if len(row) == 3}
        uids: dict[tuple[str | None, str | None], set[str]] = {}
        for uid, pod in pods.items():
            uids.setdefault((pod.namespace, pod.pod), set()).add(uid)
        self._pods, self._uids = pods, uids  # whole at once: another thread may be asking
        logs = (_CONTAINER_LOG.fullmatch(entry) for entry in _entries(self._root / "containers"))
        self._containers = {
            log["id"]: Workload(namespace=log["namespace"], pod=log["pod"], container=log["container"])
            for log in logs
            if log
        }

    def workload(self, pod_uid: str | None, container_id: str | None) -> Workload | None:
        """Everything known of the container; at least its pod's uid. None: neither folder knows this container."""
        pod = self._pods.get(pod_uid or "") or (pod_uid and Workload(pod_uid=pod_uid)) or None
        named = self._containers.get(container_id or "")
        if named:
            uid = pod_uid or self._uid(named)
            return msgspec.structs.replace(named, pod_uid=uid)
        if pod and pod.pod:
            return msgspec.structs.replace(pod, container=self._only_container(pod))
        return pod

    def with_uid(self, allocation: Allocation) -> Allocation:
        """The allocation with its pod's uid, when exactly one pod of that name left logs here."""
        if allocation.workload.pod_uid or (uid := self._uid(allocation.workload)) is None:
            return allocation
        workload = msgspec.structs.replace(allocation.workload, pod_uid=uid)
        return msgspec.structs.replace(allocation, workload=workload)

    def _uid(self, workload: Workload) -> str | None:
        uids = self._uids.get((workload.namespace, workload.pod), set())
        return next(iter(uids)) if len(uids) == 1 else None

    def _only_container(self, pod: Workload) -> str | None:
        containers = _entries(self._root / "pods" / f"{pod.namespace}_{pod.pod}_{pod.pod_uid}")
        return containers[0] if len(containers) == 1 else None


def _entries(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
