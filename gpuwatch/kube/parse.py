"""From the API's JSON to the nouns of remediation. Unknown members are ignored, null lists are empty ones."""

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from gpuwatch.kube.errors import Call
from gpuwatch.kube.objects import Condition, LeaseObject, NodeObject, PodObject, Taint
from gpuwatch.kube.wire import GPU_RESOURCES, Container, Wire, decode, garbled
from gpuwatch.model.snapshot import Host

MIRROR = "kubernetes.io/config.mirror"


class _Owner(Wire, frozen=True):
    kind: str = ""
    controller: bool | None = None


class _Metadata(Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None
    deletion_timestamp: str | None = None
    creation_timestamp: str | None = None


class _Taint(Wire, frozen=True):
    key: str
    effect: str
    value: str | None = None
    time_added: str | None = None


class _NodeSpec(Wire, frozen=True):
    taints: list[_Taint] | None = None
    unschedulable: bool | None = None


class _Condition(Wire, frozen=True):
    type: str
    status: str
    reason: str | None = None
    message: str | None = None
    last_heartbeat_time: str | None = None
    last_transition_time: str | None = None


class _NodeInfo(Wire, frozen=True):
    boot_id: str | None = msgspec.field(default=None, name="bootID")
    machine_id: str | None = msgspec.field(default=None, name="machineID")
    system_uuid: str | None = msgspec.field(default=None, name="systemUUID")


class _NodeStatus(Wire, frozen=True):
    conditions: list[_Condition] | None = None
    node_info: _NodeInfo = _NodeInfo()
    capacity: dict[str, str | int] | None = None
    allocatable: dict[str, str | int] | None = None


class _Node(Wire, frozen=True):
    metadata: _Metadata
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


class _Toleration(Wire, frozen=True):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: float | None = None


class _PodSpec(Wire, frozen=True):
    tolerations: list[_Toleration] | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None


class _PodStatus(Wire, frozen=True):
    phase: str = ""


class _Pod(Wire, frozen=True):
    metadata: _Metadata
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


class _LeaseSpec(Wire, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: float | None = None
    renew_time: str | None = None


class _Lease(Wire, frozen=True):
    metadata: _Metadata
    spec: _LeaseSpec = _LeaseSpec()


class _Pods(Wire, frozen=True):
    items: list[_Pod] | None  # a list without any has it, too: a body without it is no list


class _Leases(Wire, frozen=True):
    items: list[_Lease] | None


class _Nameable(Wire, frozen=True):
    metadata: _Metadata


class _Named(Wire, frozen=True):
    items: list[_Nameable] | None


class _Counted(Wire, frozen=True):
    """Anything, without looking into it."""


class _ListMetadata(Wire, frozen=True):
    continue_: str | None = msgspec.field(default=None, name="continue")


class _Page(Wire, frozen=True):
    """A list or, where the server can, a Table of it: `rows` cost a tenth of `items`."""

    metadata: _ListMetadata = _ListMetadata()
    items: list[_Counted] | None = None
    rows: list[_Counted] | None = None


def node(call: Call, body: bytes) -> NodeObject:
    """A Node. Raises Garbled."""
    found = decode(call, body, _Node)
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
        conditions=tuple(map(_condition, status.conditions or ())),
        host=Host(
            boot_id=status.node_info.boot_id or None,
            machine_id=status.node_info.machine_id or None,
            system_uuid=status.node_info.system_uuid or None,
        ),
        deleting=meta.deletion_timestamp is not None,
        capacity=_devices(status.capacity),
        allocatable=_devices(status.allocatable),
    )


def pods(call: Call, body: bytes) -> tuple[PodObject, ...]:
    """A PodList. Raises Garbled."""
    return tuple(map(_pod, decode(call, body, _Pods).items or ()))


def tolerates(call: Call, body: bytes, key: str, effect: str) -> bool:
    """Whether a Pod lives on under any taint of this key and effect, for ever. Raises Garbled."""
    tolerations = decode(call, body, _Pod).spec.tolerations or ()
    return any(
        each.operator == "Exists"
        and (each.key or key) == key
        and (each.effect or effect) == effect
        and each.toleration_seconds is None
        for each in tolerations
    )


def lease(call: Call, body: bytes) -> LeaseObject:
    """A Lease. Raises Garbled."""
    return _lease(decode(call, body, _Lease))


def leases(call: Call, body: bytes) -> tuple[LeaseObject, ...]:
    """A LeaseList. Raises Garbled."""
    return tuple(map(_lease, decode(call, body, _Leases).items or ()))


def page(call: Call, body: bytes) -> tuple[int, str | None]:
    """How many objects are on this page of a list, and the token of the next page. Raises Garbled."""
    found = decode(call, body, _Page)
    if found.items is None and found.rows is None:
        raise garbled(call, "it is no list")
    return len(found.rows or found.items or ()), found.metadata.continue_ or None


def names(call: Call, body: bytes) -> frozenset[str]:
    """The names of whatever is in a list. Raises Garbled."""
    return frozenset(each.metadata.name for each in decode(call, body, _Named).items or ())


def unix_time(text: str | None) -> float | None:
    """Seconds of an RFC 3339 time; None for what is none."""
    try:
        return datetime.fromisoformat(text).timestamp() if text else None
    except ValueError:
        return None


def rfc3339(at: float, *, micro: bool = False) -> str:
    """The API's Time, or its MicroTime, of unix seconds."""
    moment = datetime.fromtimestamp(at, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")


def _condition(wire: _Condition) -> Condition:
    return Condition(
        type=wire.type,
        status=wire.status,
        reason=wire.reason or "",
        message=wire.message or "",
        last_heartbeat=wire.last_heartbeat_time,
        last_transition=wire.last_transition_time,
    )


def _pod(wire: _Pod) -> PodObject:
    meta = wire.metadata
    return PodObject(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        phase=wire.status.phase or "Running",
        controller=next((owner.kind for owner in meta.owner_references or () if owner.controller), None),
        mirror=MIRROR in (meta.annotations or {}),
        gpus=max(
            sum(map(_gpus, wire.spec.containers or ())), max(map(_gpus, wire.spec.init_containers or ()), default=0)
        ),
        labels=meta.labels or {},
        annotations=meta.annotations or {},
        deleting=meta.deletion_timestamp is not None,
        created=unix_time(meta.creation_timestamp),
    )


def _gpus(container: Container) -> int:
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


def _lease(wire: _Lease) -> LeaseObject:
    return LeaseObject(
        name=wire.metadata.name,
        resource_version=wire.metadata.resource_version,
        holder=wire.spec.holder_identity or None,
        renewed=unix_time(wire.spec.renew_time),
        duration=wire.spec.lease_duration_seconds,
    )
