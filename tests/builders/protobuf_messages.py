"""A descriptor and messages of Protobuf, without protoc. The package ``protobuf`` is imported only when it is used."""

from __future__ import annotations

from typing import Any

ORDER = """
name: "shop.proto"  package: "shop"  syntax: "proto3"
message_type {
  name: "Order"
  field { name: "id" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field { name: "name" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "state" number: 3 type: TYPE_ENUM label: LABEL_OPTIONAL type_name: ".shop.State" }
  field { name: "tags" number: 4 type: TYPE_STRING label: LABEL_REPEATED }
}
enum_type { name: "State" value { name: "NEW" number: 0 } value { name: "PAID" number: 1 } }
"""


def descriptor_set(*files: str, known: tuple[str, ...] = ()) -> bytes:
    """The descriptor set of files in text form, after those of Protobuf's own files, such as ``timestamp``."""
    from importlib import import_module

    from google.protobuf import text_format
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    made = FileDescriptorSet()
    for name in known:
        import_module(f"google.protobuf.{name}_pb2").DESCRIPTOR.CopyToProto(made.file.add())
    for file in files:
        text_format.Parse(file, made.file.add())
    return bytes(made.SerializeToString())


def encode(descriptor: bytes, message: str, **fields: Any) -> bytes:
    """A message, by its full name."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message_factory import GetMessages

    return bytes(GetMessages(FileDescriptorSet.FromString(descriptor).file)[message](**fields).SerializeToString())
