"""Kubernetes objects on the wire, with the members that gpuwatch reads; other members are ignored.

Names are those of the API reference; `Wire...` where `kube.objects` has the short name. The API server writes an empty
list or map as null or leaves it out.
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

from gpuwatch.kube.errors import ApiCall, Garbled
from gpuwatch.model.decoding import prepared
from gpuwatch.model.snapshot import UNREADABLE

GPU_RESOURCES = "nvidia.com/"

Quantities = dict[str, str | int]


class Wire(msgspec.Struct, frozen=True, rename="camel"):
    """Base of all: JSON in camel case."""


class OwnerReference(Wire, frozen=True):
    """metadata.ownerReferences[]"""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(Wire, frozen=True):
    """metadata"""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[OwnerReference] | None = None
    deletion_timestamp: str | None = None
    creation_timestamp: str | None = None


class WireObject(Wire, frozen=True):
    """Any object, such as a Namespace, of which only the metadata is read."""

    metadata: ObjectMeta


AnyWire = TypeVar("AnyWire", bound=Wire)


class ListMeta(Wire, frozen=True):
    """metadata of a list; `continue_` is the token of the next page."""

    continue_: str | None = msgspec.field(default=None, name="continue")


class WireList(Wire, Generic[AnyWire], frozen=True):
    """One page of a list. `items` is required: a body without it is no list."""

    items: list[AnyWire] | None
    metadata: ListMeta = ListMeta()


class WireTaint(Wire, frozen=True):
    """spec.taints[] of a Node"""

    key: str
    effect: str
    value: str | None = None
    time_added: str | None = None


class WireCondition(Wire, frozen=True):
    """status.conditions[] of a Node or Pod"""

    type: str
    status: str
    reason: str | None = None
    message: str | None = None
    last_heartbeat_time: str | None = None
    last_transition_time: str | None = None


class NodeSpec(Wire, frozen=True):
    """spec of a Node"""

    taints: list[WireTaint] | None = None
    unschedulable: bool | None = None


class NodeSystemInfo(Wire, frozen=True):
    """status.nodeInfo of a Node"""

    boot_id: str | None = msgspec.field(default=None, name="bootID")
    machine_id: str | None = msgspec.field(default=None, name="machineID")
    system_uuid: str | None = msgspec.field(default=None, name="systemUUID")


class NodeStatus(Wire, frozen=True):
    """status of a Node"""

    conditions: list[WireCondition] | None = None
    node_info: NodeSystemInfo = NodeSystemInfo()
    capacity: Quantities | None = None
    allocatable: Quantities | None = None


class WireNode(WireObject, frozen=True):
    """A Node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Toleration(Wire, frozen=True):
    """spec.tolerations[] of a Pod"""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    toleration_seconds: float | None = None


class ResourceRequirements(Wire, frozen=True):
    """resources of a container"""

    requests: Quantities | None = None
    limits: Quantities | None = None

    @property
    def asked(self) -> Mapping[str, str | int]:
        """Resource name -> quantity; a limit counts where there is one."""
        return {**(self.requests or {}), **(self.limits or {})}


class EnvVar(Wire, frozen=True):
    """env[] of a container"""

    name: str = ""
    value: str | None = None


class VolumeMount(Wire, frozen=True):
    """volumeMounts[] of a container"""

    name: str = ""
    mount_path: str = ""


class WireContainer(Wire, frozen=True):
    """spec.containers[] and spec.initContainers[] of a Pod"""

    name: str = ""
    image: str | None = None
    resources: ResourceRequirements = ResourceRequirements()
    env: list[EnvVar] | None = None
    volume_mounts: list[VolumeMount] | None = None


class NamedReference(Wire, frozen=True):
    """A part of which only the name matters: a resource claim, the ConfigMap of a volume."""

    name: str = ""


class Volume(Wire, frozen=True):
    """spec.volumes[] of a Pod"""

    name: str = ""
    config_map: NamedReference | None = None


class PodSpec(Wire, frozen=True):
    """spec of a Pod"""

    priority: int | None = None
    tolerations: list[Toleration] | None = None
    containers: list[WireContainer] | None = None
    init_containers: list[WireContainer] | None = None
    resource_claims: list[NamedReference] | None = None
    volumes: list[Volume] | None = None
    host_network: bool | None = None


class ContainerStateWaiting(Wire, frozen=True):
    """state.waiting of a container"""

    reason: str | None = None


class ContainerState(Wire, frozen=True):
    """state of a container"""

    waiting: ContainerStateWaiting | None = None


class ContainerStatus(Wire, frozen=True):
    """status.containerStatuses[] and status.initContainerStatuses[] of a Pod"""

    state: ContainerState = ContainerState()
    restart_count: int = 0


class PodStatus(Wire, frozen=True):
    """status of a Pod"""

    phase: str = ""
    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    conditions: list[WireCondition] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    container_statuses: list[ContainerStatus] | None = None


class WirePod(WireObject, frozen=True):
    """A Pod."""

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class LeaseSpec(Wire, frozen=True):
    """spec of a Lease"""

    holder_identity: str | None = None
    lease_duration_seconds: float | None = None
    renew_time: str | None = None


class WireLease(WireObject, frozen=True):
    """A Lease."""

    spec: LeaseSpec = LeaseSpec()


class CountedPage(Wire, frozen=True):
    """A list or, where the server can, a Table of it, only to be counted: `rows` cost a tenth of `items`."""

    metadata: ListMeta = ListMeta()
    items: list[Wire] | None = None
    rows: list[Wire] | None = None


def decode(call: ApiCall, body: bytes, kind: type[AnyWire]) -> AnyWire:
    """An answer. Raises Garbled."""
    try:
        return msgspec.json.decode(body, type=prepared(kind))
    except UNREADABLE as error:
        raise garbled(call, str(error)) from error


def garbled(call: ApiCall, why: str) -> Garbled:
    """The error for an answer that cannot be read."""
    return Garbled(call, f"the answer cannot be read: {why}", "does a proxy between us and the API server answer?")
