"""Types of Kubernetes' objects for CEL's checker, out of what the Python client says of them."""

from __future__ import annotations

import re
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, struct_pb2, timestamp_pb2
from kubernetes.client import models

PACKAGE = "kubernetes"
Field = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    "str": Field.TYPE_STRING,
    "int": Field.TYPE_INT64,
    "bool": Field.TYPE_BOOL,
    "float": Field.TYPE_DOUBLE,
}
KNOWN = {"datetime": ".google.protobuf.Timestamp", "object": ".google.protobuf.Value"}


def pool_of(root: str) -> descriptor_pool.DescriptorPool:
    """Describe an object and all that is in it, under the names that YAML has for fields."""
    imported = [timestamp_pb2.DESCRIPTOR, struct_pb2.DESCRIPTOR]
    file = descriptor_pb2.FileDescriptorProto(name="objects.proto", package=PACKAGE)
    file.syntax = "proto3"
    file.dependency.extend(one.name for one in imported)
    waiting, described = [root], set()
    while waiting:
        name = waiting.pop()
        if name not in described:
            described.add(name)
            waiting += described_model(file.message_type.add(name=name), getattr(models, name))
    pool = descriptor_pool.DescriptorPool()
    for one in imported:
        pool.AddSerializedFile(one.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def described_model(message: Any, model: Any) -> list[str]:
    """Add a model's fields to its message; return the models that they are of."""
    further = []
    for number, (attribute, kind) in enumerate(model.openapi_types.items(), 1):
        name = model.attribute_map[attribute]
        field = message.field.add(name=name, number=number, label=Field.LABEL_OPTIONAL)
        if items := re.fullmatch(r"(?i)list\[(.*)\]", kind):
            field.label, kind = Field.LABEL_REPEATED, items[1]
        if values := re.fullmatch(r"(?i)dict[(\[]str, (.*)[)\]]", kind):
            field.label, field.type = Field.LABEL_REPEATED, Field.TYPE_MESSAGE
            field.type_name = f".{PACKAGE}.{message.name}.{add_map(message, name, values[1])}"
        elif kind in SCALARS:
            field.type = SCALARS[kind]
        else:
            field.type = Field.TYPE_MESSAGE
            field.type_name = KNOWN.get(kind, f".{PACKAGE}.{kind}")
            further += [] if kind in KNOWN else [kind]
    return further


def add_map(message: Any, field: str, kind: str) -> str:
    """Add what protobuf has for a map of texts; return its name."""
    entry = message.nested_type.add(name=f"{field[0].upper()}{field[1:]}Entry")
    entry.options.map_entry = True
    for number, name, of in ((1, "key", "str"), (2, "value", kind)):
        entry.field.add(name=name, number=number, type=SCALARS[of], label=Field.LABEL_OPTIONAL)
    return entry.name
