# ruff: noqa: F403 (the stubs hold nothing but what is offered here)
"""TF Serving's messages without the tensorflow package, in a descriptor pool of their own.

The pool is never protobuf's default one: there the same full names would collide with those that the
tensorflow package registers, in whichever order the two are imported. Messages of the two pools are
strangers to each other; they meet as bytes only.

The schemas are in ``schema/``; ``make protos`` turns them into ``messages.binpb``, which this module
loads as soon as a message is asked for, and into stubs, which only type checkers read.
"""

from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.descriptor_pool import DescriptorPool

    from tfs_proxy.wire.protos.schema.example_pb2 import *
    from tfs_proxy.wire.protos.schema.recordio_pb2 import Record
    from tfs_proxy.wire.protos.schema.saved_model_pb2 import *
    from tfs_proxy.wire.protos.schema.serving_config_pb2 import *
    from tfs_proxy.wire.protos.schema.serving_pb2 import *
    from tfs_proxy.wire.protos.schema.tensor_pb2 import *

    RecordIORecord = Record
    """SageMaker's Record, by a name that tells it from other records."""

    POOL: DescriptorPool
    """Pool of the descriptors; `google.protobuf.text_format` and `json_format` want it named."""

_OWN_NAMES = frozenset({"tensorflow", "tensorflow.serving"})
"""The packages whose messages this module offers by their own names."""


_LOADING = Lock()
"""Threads must not get messages of two pools."""


def __getattr__(name: str) -> Any:
    """Load a message's class, or the pool, when the first of them is asked for.

    Workers that pass text on need none, and save 3 MB and 30 ms.
    """
    if name[:1].isupper():  # else a module of this folder is imported
        with _LOADING:
            if "POOL" not in globals():
                globals().update(_loaded())
        if name in globals():
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _loaded() -> dict[str, Any]:
    from importlib.resources import files

    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    schemas = descriptor_pb2.FileDescriptorSet.FromString((files(__name__) / "messages.binpb").read_bytes())
    for schema in schemas.file:
        pool.Add(schema)

    def message_class(full_name: str) -> type:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(full_name))

    own = {
        message.name: message_class(f"{schema.package}.{message.name}")
        for schema in schemas.file
        if schema.package in _OWN_NAMES
        for message in schema.message_type
    }
    record = message_class("aialgs.data.Record")
    return {**own, "Record": record, "RecordIORecord": record, "POOL": pool}
