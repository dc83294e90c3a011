# ruff: noqa: F403 (the stubs hold nothing but what is offered here)
"""TF Serving's messages without the tensorflow package, in a descriptor pool of their own.

The pool is never protobuf's default one: there the same full names would collide with those that the
tensorflow package registers, in whichever order the two are imported. Messages of the two pools are
strangers to each other; they meet as bytes only.

The schemas are in ``schema/``; ``make protos`` turns them into ``messages.binpb``, which this module
loads, and into stubs, which only type checkers read.
"""

from importlib.resources import files
from typing import TYPE_CHECKING

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

if TYPE_CHECKING:
    from tfs_proxy.protos.schema.example_pb2 import *
    from tfs_proxy.protos.schema.health_pb2 import *
    from tfs_proxy.protos.schema.profiler_pb2 import *
    from tfs_proxy.protos.schema.recordio_pb2 import Record
    from tfs_proxy.protos.schema.saved_model_pb2 import *
    from tfs_proxy.protos.schema.serving_config_pb2 import *
    from tfs_proxy.protos.schema.serving_pb2 import *
    from tfs_proxy.protos.schema.tensor_pb2 import *

POOL = descriptor_pool.DescriptorPool()
"""Where the descriptors live; `google.protobuf.text_format` and `json_format` want it named."""

_OWN_NAMES = frozenset({"tensorflow", "tensorflow.serving", "grpc.health.v1"})
"""The packages whose messages this module offers by their own names."""


def _load() -> None:
    schemas = descriptor_pb2.FileDescriptorSet.FromString((files(__name__) / "messages.binpb").read_bytes())
    for schema in schemas.file:
        POOL.Add(schema)
    for schema in schemas.file:
        if schema.package in _OWN_NAMES:
            names = (message.name for message in schema.message_type)
            globals().update({name: _message_class(f"{schema.package}.{name}") for name in names})


def _message_class(full_name: str) -> type:
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(full_name))


_load()

if not TYPE_CHECKING:
    Record = _message_class("aialgs.data.Record")

RecordIORecord = Record
"""SageMaker's Record, by a name that tells it from other records."""
