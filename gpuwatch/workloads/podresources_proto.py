"""The kubelet's pod-resources API (k8s.io/kubelet/pkg/apis/podresources/v1/api.proto) as message classes.

Generated code refuses runtimes older than its generator and claims the package name `v1` for the whole
process. So the part of the schema that gpuwatch reads is spelled here, field numbers as in api.proto, and
built at import into a pool of its own. The decoder skips fields that are not listed, as protobuf wants it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "v1.PodResourcesLister"

# message -> fields in the order of api.proto: (number, name, type); "*" marks a repeated field
_SCHEMA: dict[str, tuple[tuple[int, str, str], ...]] = {
    "ListPodResourcesRequest": (),
    "ListPodResourcesResponse": ((1, "pod_resources", "PodResources*"),),
    "AllocatableResourcesRequest": (),
    "AllocatableResourcesResponse": ((1, "devices", "ContainerDevices*"),),
    "PodResources": ((1, "name", "string"), (2, "namespace", "string"), (3, "containers", "ContainerResources*")),
    "ContainerResources": (
        (1, "name", "string"),
        (2, "devices", "ContainerDevices*"),
        (5, "dynamic_resources", "DynamicResource*"),
    ),
    "ContainerDevices": ((1, "resource_name", "string"), (2, "device_ids", "string*")),
    "DynamicResource": (
        (2, "claim_name", "string"),
        (3, "claim_namespace", "string"),
        (4, "claim_resources", "ClaimResource*"),
    ),
    "ClaimResource": (
        (1, "cdi_devices", "CDIDevice*"),
        (2, "driver_name", "string"),  # this and the next two since Kubernetes 1.31
        (3, "pool_name", "string"),
        (4, "device_name", "string"),
    ),
    "CDIDevice": ((1, "name", "string"),),
}

# rpc -> request, response
METHODS = {
    "List": ("ListPodResourcesRequest", "ListPodResourcesResponse"),
    "GetAllocatableResources": ("AllocatableResourcesRequest", "AllocatableResourcesResponse"),
}


def message_classes(schema: Mapping[str, Iterable[tuple[int, str, str]]]) -> dict[str, Any]:
    """A class for each message of a schema in the form above."""
    field_proto = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="messages.proto", package="v1", syntax="proto3")
    for message, fields in schema.items():
        described = file.message_type.add(name=message)
        for number, name, kind in fields:
            field = described.field.add(name=name, number=number)
            field.label = field_proto.LABEL_REPEATED if kind.endswith("*") else field_proto.LABEL_OPTIONAL
            if kind.rstrip("*") == "string":
                field.type = field_proto.TYPE_STRING
            else:
                field.type, field.type_name = field_proto.TYPE_MESSAGE, f".v1.{kind.rstrip('*')}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v1.{name}")) for name in schema}


MESSAGES = message_classes(_SCHEMA)
