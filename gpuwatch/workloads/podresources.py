"""The kubelet's answer to "which container was given which device", over its pod-resources socket.

A socket file with another identity belongs to a new kubelet: methods that the old one lacked are tried again.
"""

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.workload import Allocatable, Allocation, Workload
from gpuwatch.workloads.devices import parse_device_id
from gpuwatch.workloads.podresources_proto import METHODS, SCHEMA, SERVICE
from gpuwatch.workloads.wire import decode

if TYPE_CHECKING:
    from gpuwatch.workloads.grpc_call import GrpcError

SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-*")
DRA_DRIVER = "gpu.nvidia.com"
MAX_REPLY_BYTES = 16 * 1024 * 1024  # gRPC's own limit, 4 MiB, is reached by nodes with many devices and NUMA rows

Reason = Literal["absent", "permission", "unavailable", "deadline", "too_large", "rate_limit", "garbage", "error"]

_NEXT_STEP: dict[Reason, str] = {
    "absent": "check that kubelet runs here and that its pod-resources folder is mounted",
    "permission": "run as root, or give the agent's user the right to connect to this socket",
    "unavailable": "check that kubelet runs; after a kubelet restart this heals by itself",
    "deadline": "kubelet is overloaded or hung: look at its log and at the node's CPU pressure",
    "too_large": f"kubelet answers more than {MAX_REPLY_BYTES >> 20} MiB: remove dead pods from this node",
    "rate_limit": "another client of this socket asks too often; ask less often",
    "garbage": "check that this socket belongs to kubelet",
    "error": "look for podresources in kubelet's log",
}


class PodResourcesError(GpuwatchError):
    """The kubelet did not answer usefully; `reason` is one of `Reason`, for metrics."""

    def __init__(self, reason: Reason, socket: Path, why: str) -> None:
        self.reason = reason
        super().__init__(f"cannot read pod resources from {socket}", why, _NEXT_STEP[reason])


class PodResources:
    """Client of one kubelet. Not thread-safe: it belongs to the loop that polls it."""

    def __init__(self, socket: Path = SOCKET, *, resources: Sequence[str] = (), deadline: float = 5.0) -> None:
        """`resources`: further resource names, shell patterns allowed. `deadline`: seconds for one call."""
        self._socket = socket
        self._patterns = (*RESOURCES, *resources)
        self._deadline = deadline
        self._identity: tuple[int, ...] = ()
        self._missing: set[str] = set()

    def allocations(self) -> tuple[Allocation, ...]:
        """Every NVIDIA device that is allocated to a container (`List`). Raises PodResourcesError."""
        reply = self._call("List")
        return tuple(found for pod in reply.pod_resources for found in self._of_pod(pod)) if reply else ()

    def allocatable(self) -> tuple[Allocatable, ...] | None:
        """Every NVIDIA device that the kubelet may allocate; None when it has no such call. Raises as above."""
        reply = self._call("GetAllocatableResources")
        if reply is None:
            return None
        return tuple(Allocatable(resource=name, device_ids=ids) for name, ids in self._devices(reply.devices))

    def _call(self, method: str) -> Any | None:
        """The decoded reply, or None when this kubelet does not offer the method."""
        try:
            status = os.stat(self._socket)
        except PermissionError as error:
            raise PodResourcesError("permission", self._socket, error.strerror or "") from error
        except OSError as error:
            raise PodResourcesError("absent", self._socket, error.strerror or "") from error
        identity = (status.st_dev, status.st_ino, status.st_ctime_ns)
        if identity != self._identity:  # of another kubelet
            self._identity, self._missing = identity, set()
        if method in self._missing:
            return None
        from gpuwatch.workloads.grpc_call import GrpcError, call  # loads h2, needed only with a kubelet

        try:
            reply = call(self._socket, f"/{SERVICE}/{method}", deadline=self._deadline, max_bytes=MAX_REPLY_BYTES)
            return decode(SCHEMA, METHODS[method][1], reply)
        except GrpcError as error:
            # where the method is disabled, only the text of the kubelet's error shows it
            disabled = error.status == "UNKNOWN" and "disabled" in error.details
            if method != "List" and (disabled or error.status == "UNIMPLEMENTED"):
                self._missing.add(method)
                return None
            raise PodResourcesError(_reason(error), self._socket, str(error)[:200]) from error
        except ValueError as error:
            raise PodResourcesError("garbage", self._socket, f"the answer to {method} is not protobuf") from error

    def _of_pod(self, pod: Any) -> Iterator[Allocation]:
        for container in pod.containers:
            workload = Workload(namespace=pod.namespace, pod=pod.name, container=container.name)
            for resource, ids in self._devices(container.devices):
                yield Allocation(workload=workload, resource=resource, device_ids=ids)
            for claim in container.dynamic_resources:
                if ids := tuple(device for part in claim.claim_resources for device in _claimed(part)):
                    name = f"{claim.claim_namespace}/{claim.claim_name}"
                    yield Allocation(workload=workload, resource=DRA_DRIVER, device_ids=ids, claim=name)

    def _devices(self, rows: Sequence[Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Device ids by resource name; the kubelet writes one row per NUMA node and in no order."""
        merged: dict[str, list[str]] = {}
        for row in rows:
            if any(fnmatchcase(row.resource_name, pattern) for pattern in self._patterns):
                merged.setdefault(row.resource_name, []).extend(row.device_ids)
        return ((resource, tuple(ids)) for resource, ids in merged.items())


def _claimed(part: Any) -> tuple[str, ...]:
    """Ids of one allocated device of a claim: the uuid when a CDI name has it, else the driver's name."""
    names = tuple(device.name for device in part.cdi_devices)
    if part.driver_name:
        ours = part.driver_name == DRA_DRIVER
    else:  # before Kubernetes 1.31 only the CDI names identify the device
        ours = any(name.startswith(("nvidia.com/", "k8s.gpu.nvidia.com/")) for name in names)
    if not ours:
        return ()
    parsed = {name: parse_device_id(name) for name in names}
    by_uuid = tuple(name for name, device in parsed.items() if device and device.uuid)
    return by_uuid or ((part.device_name,) if part.device_name else names)


def _reason(error: "GrpcError") -> Reason:
    from gpuwatch.workloads.grpc_call import TOO_LARGE

    if error.status == "UNAVAILABLE":
        return "permission" if "permission denied" in error.details.lower() else "unavailable"
    if error.status == "DEADLINE_EXCEEDED":
        return "deadline"
    if error.status == "RESOURCE_EXHAUSTED":
        return "too_large" if TOO_LARGE in error.details else "rate_limit"
    return "error"
