# ruff: noqa: F403 (the stubs hold nothing but what is offered here)
"""The Open Inference Protocol's messages, by their own names; some of TF Serving's have the same names."""

from typing import TYPE_CHECKING

from google.protobuf import message_factory

from tfs_proxy.wire.protos import POOL

if TYPE_CHECKING:
    from tfs_proxy.wire.protos.schema.open_inference_pb2 import *

_SCHEMA = POOL.FindFileByName("tfs_proxy/wire/protos/schema/open_inference.proto")

globals().update(
    {
        name: message_factory.GetMessageClass(message)
        for name, message in _SCHEMA.message_types_by_name.items()
    }
)
