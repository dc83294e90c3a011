"""A ModelInferRequest to the PredictRequest that asks the model server the same: pure.

Raw contents go on as ``tensor_content``, and lists as TensorProto's own, which have the same wire format.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from google.protobuf.message import DecodeError
from msgspec import Struct

from tfs_proxy.errors import BadInput
from tfs_proxy.grpc_router.asked_model import MOST_FIELDS, AskedModel
from tfs_proxy.grpc_router.open_inference.contents import contents_pieces, raw_pieces, take_listed
from tfs_proxy.memory import DEFAULT_DECODED_BYTES, MemoryBudget
from tfs_proxy.names import HIGHEST_VERSION, is_version
from tfs_proxy.open_inference.datatypes import datatype_named
from tfs_proxy.open_inference.infer_request import (
    CLASSIFICATION,
    OF_THE_PROTOCOL,
    SHARED_MEMORY,
    SIGNATURE,
    checked_shape,
    named,
)
from tfs_proxy.protos.open_inference import ModelInferRequest
from tfs_proxy.protos.predict import model_spec
from tfs_proxy.protos.tensors import DTYPE, SHAPE, shape_bytes
from tfs_proxy.wire.data_types import DataType
from tfs_proxy.wire.dtypes import MAX_DIMENSIONS
from tfs_proxy.wire.error_body import NO_SHARED_MEMORY
from tfs_proxy.wire.protobuf_reader import LENGTH, MalformedProtobuf, read_fields
from tfs_proxy.wire.protobuf_writer import Piece, field, map_entry, message_field, varint_field

NO_MODEL: Final = "The request names no model: model_name is empty."
MALFORMED: Final = "The request is not a message of ModelInfer"
MOST_TENSORS: Final = 1000

_REQUEST_INPUTS, _RAW = 5, 7
_TENSOR_SHAPE, _TENSOR_CONTENTS = 3, 5
_LONGEST_SIZE_BYTES = 10
_SPEC, _INPUTS, _OUTPUT_FILTER = 1, 2, 3


class TranslatedRequest(Struct, frozen=True):
    """What the model server is asked, and what its answer needs of the request.

    ``outputs`` are the names of those that are wanted, in their order; none means all. ``parameters`` are the
    client's own, each serialized, which the answer repeats. ``signature`` None means the default one.
    """

    asked: AskedModel
    message: bytes
    id: str
    outputs: tuple[str, ...]
    parameters: Mapping[str, bytes]
    signature: str | None = None


def translated(message: bytes, decoded_bytes: int = DEFAULT_DECODED_BYTES) -> TranslatedRequest:
    """Translate a serialized ModelInferRequest, whose values may take ``decoded_bytes`` of memory.

    Raises BadInput, which names the tensor if one is wrong, and PayloadTooLarge.
    """
    budget = MemoryBudget(decoded_bytes)
    request, raw = _parsed(message, budget)
    asked = asked_version(request.model_name, request.model_version)
    outputs = tuple(_output_names(request))
    signature = _signature(request)
    pieces = message_field(_SPEC, [_spec(asked, signature)])
    for name, tensor in _inputs(request, raw, budget):
        pieces += map_entry(_INPUTS, name, tensor)
    pieces += [field(_OUTPUT_FILTER, name.encode()) for name in outputs]
    parameters = {
        name: value.SerializeToString()
        for name, value in request.parameters.items()
        if name not in OF_THE_PROTOCOL
    }
    return TranslatedRequest(asked, b"".join(pieces), request.id, outputs, parameters, signature)


def asked_version(model: str, version: str) -> AskedModel:
    """The model that a call names: a version that is a number is one, any other text is a label."""
    if not model:
        raise BadInput(NO_MODEL)
    if not is_version(version):
        return AskedModel(model, label=version)
    if int(version) > HIGHEST_VERSION:
        raise BadInput(f"There is no version {version}: the highest number is {HIGHEST_VERSION}.")
    return AskedModel(model, int(version))


def _parsed(message: bytes, budget: MemoryBudget) -> tuple[ModelInferRequest, list[memoryview]]:
    """The request without its raw contents, and these, which stay where they are."""
    rest: list[Piece] = []
    raw: list[memoryview] = []
    try:
        for number, kind, content in _few_fields(memoryview(message), "The request"):
            if kind == LENGTH and number == _RAW:
                raw.append(content)
                continue
            if kind == LENGTH and number == _REQUEST_INPUTS:
                _check_size(content, budget)
            if kind == LENGTH:
                rest += message_field(number, [content])
        return ModelInferRequest.FromString(b"".join(rest)), raw
    except (MalformedProtobuf, DecodeError):
        raise BadInput(MALFORMED) from None


def _few_fields(message: memoryview, subject: str) -> Iterator[tuple[int, int, memoryview]]:
    for count, field_read in enumerate(read_fields(message)):
        if count == MOST_FIELDS:
            raise BadInput(f"{subject} has more than {MOST_FIELDS} fields")
        yield field_read


def _check_size(tensor: memoryview, budget: MemoryBudget) -> None:
    """Look at an input before it is parsed, which multiplies some of what it may have."""
    for number, kind, content in _few_fields(tensor, "An input"):
        if kind == LENGTH and number == _TENSOR_SHAPE and len(content) > MAX_DIMENSIONS * _LONGEST_SIZE_BYTES:
            raise BadInput("An input has a shape that no tensor can have.")
        if kind == LENGTH and number == _TENSOR_CONTENTS:
            take_listed(content, budget)


def _signature(request: ModelInferRequest) -> str | None:
    if SIGNATURE not in request.parameters:
        return None
    parameter = request.parameters[SIGNATURE]
    if parameter.WhichOneof("parameter_choice") != "string_param":
        raise BadInput(f'The parameter "{SIGNATURE}" must be a string.')
    return str(parameter.string_param)


def _spec(asked: AskedModel, signature: str | None) -> bytes:
    return model_spec(asked.name, asked.number, asked.label or None, signature)


def _output_names(request: ModelInferRequest) -> Iterator[str]:
    if len(request.outputs) > MOST_TENSORS:
        raise BadInput(f"The request asks for more than {MOST_TENSORS} outputs.")
    seen: set[str] = set()
    for output in request.outputs:
        subject = named("output", output.name)
        if SHARED_MEMORY in output.parameters:
            raise BadInput(f"{subject}: {NO_SHARED_MEMORY}.")
        if CLASSIFICATION in output.parameters:
            raise BadInput(f'{subject}: the parameter "{CLASSIFICATION}" is not supported.')
        if output.name in seen:
            raise BadInput(f"{subject} is asked for twice.")
        seen.add(output.name)
        yield output.name


def _inputs(
    request: ModelInferRequest, raw: Sequence[memoryview], budget: MemoryBudget
) -> Iterator[tuple[str, list[Piece]]]:
    """Name and TensorProto of each input."""
    inputs = request.inputs
    if not 0 < len(inputs) <= MOST_TENSORS:
        raise BadInput(f"The request has {len(inputs)} inputs: it can have 1 to {MOST_TENSORS}.")
    if raw and len(raw) != len(inputs):
        raise BadInput(
            f"The request has {len(inputs)} inputs, but {len(raw)} raw_input_contents: each needs one."
        )
    seen: set[str] = set()
    for index, tensor in enumerate(inputs):
        if tensor.name in seen:
            raise BadInput(f"{named('input', tensor.name)} is there twice.")
        seen.add(tensor.name)
        yield tensor.name, _tensor(tensor, raw[index] if raw else None, budget)


def _tensor(tensor: Any, raw: memoryview | None, budget: MemoryBudget) -> list[Piece]:
    subject = named("input", tensor.name)
    if SHARED_MEMORY in tensor.parameters:
        raise BadInput(f"{subject}: {NO_SHARED_MEMORY}.")
    datatype = datatype_named(tensor.datatype, subject)
    shape = checked_shape(list(tensor.shape), subject)
    if raw is None:
        values = contents_pieces(tensor.contents, datatype, shape, subject)
    elif tensor.HasField("contents") and tensor.contents.ByteSize():
        raise BadInput(f"{subject} has contents, and the request has raw_input_contents: they do not mix.")
    else:
        values = raw_pieces(raw, datatype, shape, subject, budget)
    number = DataType[datatype.tensorflow]
    return [varint_field(DTYPE, number), field(SHAPE, shape_bytes(shape)), *values]
