"""Why a model server may have refused an inference: the request against the model's signature, pure."""

from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from tfs_proxy.grpc_router.asked_model import MOST_FIELDS
from tfs_proxy.open_inference.datatypes import datatype_named
from tfs_proxy.open_inference.infer_request import (
    InferInput,
    InferRequest,
    RequestedOutput,
    checked_shape,
    named,
)
from tfs_proxy.protos.open_inference import ModelInferRequest
from tfs_proxy.signature import Signature
from tfs_proxy.wire.protobuf_reader import MalformedProtobuf, text, views
from tfs_proxy.wire.protobuf_writer import Piece, message_field

_ID, _INPUTS, _OUTPUTS = 3, 5, 6


def check_against(message: bytes, signature: Signature) -> None:
    """Raise BadInput if a tensor of a ModelInferRequest does not fit the signature, with its name."""
    request = _described(message)
    outputs = [RequestedOutput(output.name, binary=True) for output in request.outputs]
    described = InferRequest([_input(tensor) for tensor in request.inputs], outputs)
    described.batch(signature)
    described.requested(tuple(signature.outputs))


def request_id(message: bytes) -> str:
    """The id of a ModelInferRequest; "" without one, or if it can't be read."""
    found = ""
    try:
        for count, (number, content) in enumerate(views(memoryview(message))):
            if count == MOST_FIELDS:
                break
            if number == _ID:
                found = text(content)
    except MalformedProtobuf:
        return ""
    return found


def _described(message: bytes) -> ModelInferRequest:
    """The inputs and outputs of a request that has been translated, without raw contents."""
    pieces: list[Piece] = []
    for number, content in views(memoryview(message)):
        if number in {_INPUTS, _OUTPUTS}:
            pieces += message_field(number, [content])
    try:
        return ModelInferRequest.FromString(b"".join(pieces))
    except DecodeError:
        return ModelInferRequest()


def _input(tensor: Any) -> InferInput:
    """The input with its datatype and shape; its values, which the signature says nothing of, are zeros."""
    subject = named("input", tensor.name)
    datatype = datatype_named(tensor.datatype, subject)
    shape = checked_shape(list(tensor.shape), subject)
    return InferInput(tensor.name, datatype, np.broadcast_to(np.zeros((), datatype.array), shape))
