"""Messages as classes of the package protobuf: for what answers like a kubelet's plugin, and as an oracle.

Generated code refuses runtimes older than its generator and claims the package name `v1` for the whole process. So the
classes are built at import into a pool of their own.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from gpuwatch.workloads.podresources_proto import SCHEMA
from gpuwatch.workloads.wire import Schema


def message_classes(schema: Schema) -> dict[str, Any]:
    """A class for each message of a schema."""
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


MESSAGES = message_classes(SCHEMA)
