"""From the API's JSON to `kube.objects`. Every function raises Garbled for an answer that cannot be read."""

from collections.abc import Mapping

from gpuwatch.kube.errors import ApiCall
from gpuwatch.kube.objects import Condition, LeaseObject, NodeObject, PodGroup, PodObject, Taint
from gpuwatch.kube.wire import (
    GPU_RESOURCES,
    CountedPage,
    ObjectMeta,
    OwnerReference,
    WireContainer,
    WireLease,
    WireList,
    WireNode,
    WireObject,
    WirePod,
    decode,
    garbled,
)
from gpuwatch.model.clock import unix_time
from gpuwatch.model.snapshot import Host

MIRROR = "kubernetes.io/config.mirror"

GROUP_LABELS = {
    "jobset.sigs.k8s.io/jobset-name": "JobSet",
    "leaderworkerset.sigs.k8s.io/group-key": "LeaderWorkerSet group",
    "training.kubeflow.org/job-name": "training job",
    "kueue.x-k8s.io/pod-group-name": "Kueue pod group",
}
"""Label of a pod -> the kind of its group, where the pod's own controller makes only a part of the group."""

ONE_BY_ONE = ("ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet", "Node")
"""Controllers that replace each pod on its own."""


def node(call: ApiCall, body: bytes) -> NodeObject:
    """A Node."""
    found = decode(call, body, WireNode)
    meta, spec, status = found.metadata, found.spec, found.status
    if not (meta.name and meta.uid and meta.resource_version):
        raise garbled(call, "it has no name, uid or resourceVersion")
    return NodeObject(
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        taints=tuple(
            Taint(key=each.key, value=each.value or "", effect=each.effect, time_added=each.time_added)
            for each in spec.taints or ()
        ),
        unschedulable=bool(spec.unschedulable),
        labels=meta.labels or {},
        annotations=meta.annotations or {},
        conditions=tuple(
            Condition(
                type=each.type,
                status=each.status,
                reason=each.reason or "",
                message=each.message or "",
                last_heartbeat=each.last_heartbeat_time,
                last_transition=each.last_transition_time,
            )
            for each in status.conditions or ()
        ),
        host=Host(
            boot_id=status.node_info.boot_id or None,
            machine_id=status.node_info.machine_id or None,
            system_uuid=status.node_info.system_uuid or None,
        ),
        deleting=meta.deletion_timestamp is not None,
        capacity=_devices(status.capacity),
        allocatable=_devices(status.allocatable),
    )


def pods(call: ApiCall, body: bytes) -> tuple[PodObject, ...]:
    """A PodList."""
    return tuple(map(pod, decode(call, body, WireList[WirePod]).items or ()))


def pod(wire: WirePod) -> PodObject:
    """One Pod."""
    meta = wire.metadata
    controller = next((owner for owner in meta.owner_references or () if owner.controller), None)
    return PodObject(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        phase=wire.status.phase or "Running",
        controller=controller.kind if controller else None,
        controller_name=controller.name if controller else None,
        group=_group(meta, controller),
        mirror=MIRROR in (meta.annotations or {}),
        gpus=max(
            sum(map(_gpus, wire.spec.containers or ())), max(map(_gpus, wire.spec.init_containers or ()), default=0)
        ),
        labels=meta.labels or {},
        annotations=meta.annotations or {},
        deleting=meta.deletion_timestamp is not None,
        created=unix_time(meta.creation_timestamp),
    )


def _group(meta: ObjectMeta, controller: OwnerReference | None) -> PodGroup | None:
    for label, kind in GROUP_LABELS.items():
        if name := (meta.labels or {}).get(label):
            return PodGroup(namespace=meta.namespace, kind=kind, name=name)
    if controller is None or controller.kind in ONE_BY_ONE:
        return None
    return PodGroup(namespace=meta.namespace, kind=controller.kind, name=controller.name, uid=controller.uid)


def tolerates(call: ApiCall, body: bytes, key: str, effect: str) -> bool:
    """Whether a Pod stays for ever under any taint of this key and effect."""
    return any(
        each.operator == "Exists"
        and (each.key or key) == key
        and (each.effect or effect) == effect
        and each.toleration_seconds is None
        for each in decode(call, body, WirePod).spec.tolerations or ()
    )


def lease(call: ApiCall, body: bytes) -> LeaseObject:
    """A Lease."""
    return _lease(decode(call, body, WireLease))


def leases(call: ApiCall, body: bytes) -> tuple[LeaseObject, ...]:
    """A LeaseList."""
    return tuple(map(_lease, decode(call, body, WireList[WireLease]).items or ()))


def page(call: ApiCall, body: bytes) -> tuple[int, str | None]:
    """How many objects are on this page of a list, and the token of the next page."""
    found = decode(call, body, CountedPage)
    if found.items is None and found.rows is None:
        raise garbled(call, "it is no list")
    return len(found.rows or found.items or ()), found.metadata.continue_ or None


def names(call: ApiCall, body: bytes) -> frozenset[str]:
    """The names of the objects in a list of any kind."""
    return frozenset(each.metadata.name for each in decode(call, body, WireList[WireObject]).items or ())


def _gpus(container: WireContainer) -> int:
    """Extended resources are whole numbers, and limits are what counts: requests equal them or are missing."""
    return sum(_devices(container.resources.asked).values())


def _devices(amounts: Mapping[str, str | int] | None) -> dict[str, int]:
    """NVIDIA's resources and how many of each; the server writes large numbers with a suffix (`1k`)."""
    found: dict[str, int] = {}
    for name, amount in (amounts or {}).items():
        number, factor = str(amount), 1
        if number[-1:] == "k":
            number, factor = number[:-1], 1000
        if name.startswith(GPU_RESOURCES) and number.isascii() and number.isdigit():
            found[name] = int(number) * factor
    return found


def _lease(wire: WireLease) -> LeaseObject:
    return LeaseObject(
        name=wire.metadata.name,
        resource_version=wire.metadata.resource_version,
        holder=wire.spec.holder_identity or None,
        renewed=unix_time(wire.spec.renew_time),
        duration=wire.spec.lease_duration_seconds,
    )
