"""Inferences as messages of TF Serving's: a ModelInferRequest as PredictRequest, and its answer back. Pure.

Raw contents are passed on as ``tensor_content``, and lists as TensorProto's own. Outputs are raw contents.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from msgspec import Struct

from tfs_proxy.data.open_inference.datatypes import (
    Datatype,
    datatype_named,
    datatype_of,
    elements,
    raw_strings,
)
from tfs_proxy.data.open_inference.infer_request import (
    CLASSIFICATION,
    OF_THE_PROTOCOL,
    InferInput,
    InferRequest,
    RequestedOutput,
    checked_shape,
    named,
)
from tfs_proxy.values.batch import BYTES
from tfs_proxy.values.errors import BadInput, UpstreamError
from tfs_proxy.values.memory import DEFAULT_DECODED_BYTES, MemoryBudget
from tfs_proxy.values.names import HIGHEST_VERSION, is_version
from tfs_proxy.values.signature import Signature, TensorSpec
from tfs_proxy.wire.data_types import DataType, data_type_name
from tfs_proxy.wire.protobuf_reader import NOTHING
from tfs_proxy.wire.protos import ModelSpec, PredictRequest, TensorProto
from tfs_proxy.wire.protos.open_inference import ModelInferRequest, ModelInferResponse
from tfs_proxy.wire.protos.predict import ListedTensors, response_parts, tensor_parts
from tfs_proxy.wire.protos.sizes import parsed_bytes

NO_MODEL: Final = "The request names no model: model_name is empty."
MOST_TENSORS: Final = 1000

_INT = "int_contents"
_UINT = "uint_contents"

LISTS: Final[Mapping[str, tuple[str, str]]] = {
    "BOOL": ("bool_contents", "bool_val"),
    "INT8": (_INT, "int_val"),
    "INT16": (_INT, "int_val"),
    "INT32": (_INT, "int_val"),
    "INT64": ("int64_contents", "int64_val"),
    "UINT8": (_UINT, "int_val"),
    "UINT16": (_UINT, "int_val"),
    "UINT32": (_UINT, "uint32_val"),
    "UINT64": ("uint64_contents", "uint64_val"),
    "FP32": ("fp32_contents", "float_val"),
    "FP64": ("fp64_contents", "double_val"),
    "BYTES": ("bytes_contents", "string_val"),
}
"""List of InferTensorContents and TensorProto's same list, by datatype."""

_RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "INT8": (-(2**7), 2**7 - 1),
    "INT16": (-(2**15), 2**15 - 1),
    "UINT8": (0, 2**8 - 1),
    "UINT16": (0, 2**16 - 1),
}

Message = TypeVar("Message")


class AskedModel(Struct, frozen=True):
    """Model that a call names, and the version's number or its label, if it names one of them."""

    name: str
    number: int | None = None
    label: str = ""

    @property
    def version(self) -> str:
        """Number or label as text, "" without either."""
        return self.label if self.number is None else str(self.number)


class TranslatedRequest(Struct, frozen=True):
    """Request for the model server, and the parts of the client's that its answer needs."""

    asked: AskedModel
    """Model, and version or label, that the client asks for."""

    message: bytes
    """Serialized PredictRequest."""

    id: str
    """Id of the client, which the answer repeats."""

    outputs: tuple[str, ...]
    """Names of the outputs that are wanted, in their order; none means all."""

    parameters: Mapping[str, Any]
    """InferParameters of the client's own, by name, which the answer repeats."""

    signature: str | None = None
    """Name of the signature; None for the default one."""

    timeout_seconds: float | None = None
    """Limit that the client sets; None for that of the run."""


def translated(message: bytes, decoded_bytes: int = DEFAULT_DECODED_BYTES) -> TranslatedRequest:
    """Translate a serialized ModelInferRequest, whose values may take ``decoded_bytes`` of memory.

    Raises BadInput, which names the tensor if one is wrong, and PayloadTooLarge.
    """
    budget = MemoryBudget(decoded_bytes)
    budget.take(parsed_bytes(ModelInferRequest, message, decoded_bytes), "The request")
    request = parsed(ModelInferRequest, message)
    asked = asked_version(request.model_name, request.model_version)
    outputs = tuple(_output_names(request))
    meant = InferRequest(
        parameters={
            name: getattr(parameter, parameter.WhichOneof("parameter_choice") or "", False)
            for name, parameter in request.parameters.items()
            if name in OF_THE_PROTOCOL
        }
    )
    signature = meant.signature
    predict = PredictRequest(model_spec=model_spec(asked, signature), output_filter=outputs)
    inputs = request.inputs
    raw = request.raw_input_contents
    if not 0 < len(inputs) <= MOST_TENSORS:
        raise BadInput(f"The request has {len(inputs)} inputs: it can have 1 to {MOST_TENSORS}.")
    if raw and len(raw) != len(inputs):
        raise BadInput(
            f"The request has {len(inputs)} inputs, but {len(raw)} raw_input_contents: each needs one."
        )
    for index, given in enumerate(inputs):
        if given.name in predict.inputs:
            raise BadInput(f"{named('input', given.name)} is there twice.")
        _fill(predict.inputs[given.name], given, raw[index] if raw else None, budget)
    parameters = {name: value for name, value in request.parameters.items() if name not in OF_THE_PROTOCOL}
    return TranslatedRequest(
        asked,
        predict.SerializeToString(),
        request.id,
        outputs,
        parameters,
        signature=signature,
        timeout_seconds=meant.timeout_seconds,
    )


def parsed(kind: type[Message], message: bytes) -> Message:
    """Parse a message. Raises BadInput."""
    try:
        return kind.FromString(message)  # type: ignore[attr-defined,no-any-return]  # of protobuf's messages
    except DecodeError:
        call = "ModelInfer" if kind is ModelInferRequest else kind.__name__
        raise BadInput(f"The request is not a message of {call}") from None


def asked_version(model: str, version: str) -> AskedModel:
    """Model of a call: ``version`` is a number or a label."""
    if not model:
        raise BadInput(NO_MODEL)
    if not is_version(version):
        return AskedModel(model, label=version)
    if int(version) > HIGHEST_VERSION:
        raise BadInput(f"There is no version {version}: the highest number is {HIGHEST_VERSION}.")
    return AskedModel(model, int(version))


def model_spec(asked: AskedModel, signature: str | None = None) -> ModelSpec:
    """Name of the model, version and signature for TF Serving; None is the default one."""
    spec = ModelSpec(name=asked.name, signature_name=signature or "")
    if asked.number is not None:
        spec.version.value = asked.number
    elif asked.label:
        spec.version_label = asked.label
    return spec


def check_against(message: bytes, signature: Signature) -> None:
    """Raise BadInput, naming the tensor, if one does not fit the signature.

    The message has been translated, so it can be read.
    """
    request = ModelInferRequest.FromString(message)
    outputs = [RequestedOutput(output.name, binary=True) for output in request.outputs]
    described = InferRequest([_described(tensor) for tensor in request.inputs], outputs)
    described.batch(signature)
    described.requested(tuple(signature.outputs))


def _described(tensor: Any) -> InferInput:
    subject = named("input", tensor.name)
    datatype = datatype_named(tensor.datatype, subject)
    shape = checked_shape(list(tensor.shape), subject)
    return InferInput(tensor.name, datatype, np.broadcast_to(np.zeros((), datatype.array), shape))


def _output_names(request: ModelInferRequest) -> Iterator[str]:
    if len(request.outputs) > MOST_TENSORS:
        raise BadInput(f"The request asks for more than {MOST_TENSORS} outputs.")
    seen: set[str] = set()
    for output in request.outputs:
        subject = named("output", output.name)
        if CLASSIFICATION in output.parameters:
            raise BadInput(f'{subject}: the parameter "{CLASSIFICATION}" is not supported.')
        if output.name in seen:
            raise BadInput(f"{subject} is asked for twice.")
        seen.add(output.name)
        yield output.name


def _fill(tensor: TensorProto, given: Any, raw: bytes | None, budget: MemoryBudget) -> None:
    subject = named("input", given.name)
    datatype = datatype_named(given.datatype, subject)
    shape = checked_shape(list(given.shape), subject)
    tensor.dtype = DataType[datatype.tensorflow]  # type: ignore[assignment]  # the stubs' own enumeration
    for size in shape:
        tensor.tensor_shape.dim.add(size=size)
    if raw is None:
        _list(tensor, given.contents, datatype, shape, subject)
        return
    if given.HasField("contents") and given.contents.ByteSize():
        raise BadInput(f"{subject} has contents, and the request has raw_input_contents: they do not mix.")
    if datatype.item_bytes is not None:
        count = math.prod(shape)
        if len(raw) != count * datatype.item_bytes:
            raise BadInput(
                f"{subject} has {len(raw)} bytes, but {datatype.name} of the shape {list(shape)} takes "
                f"{count * datatype.item_bytes}."
            )
        if datatype.name == "BOOL" and raw.translate(None, b"\x00\x01"):
            raise BadInput(f"{subject} has a byte other than 0 and 1, which is not a BOOL.")
        tensor.tensor_content = raw
        return
    tensor.string_val.extend(elements(raw, math.prod(shape), subject, budget))


def _list(tensor: TensorProto, contents: Any, datatype: Datatype, shape: Sequence[int], subject: str) -> None:
    """Copy the list of an InferTensorContents. Raises BadInput if it does not fill the shape."""
    if datatype.name not in LISTS:
        raise BadInput(f"{subject} is {datatype.name}, which only raw_input_contents can carry.")
    source, target = LISTS[datatype.name]
    other = [listed.name for listed, _ in contents.ListFields() if listed.name != source]
    if other:
        raise BadInput(f"{subject} is {datatype.name}, whose values are in {source}, not in {other[0]}.")
    values = getattr(contents, source)
    count = math.prod(shape)
    if len(values) != count:
        raise BadInput(f"{subject} has {len(values)} values, but the shape {list(shape)} takes {count}.")
    low, high = _RANGES.get(datatype.name, (None, None))
    if count and low is not None and high is not None and not low <= min(values) <= max(values) <= high:
        raise BadInput(f"{subject} has a value that is not {datatype.name}: {low} to {high}.")
    getattr(tensor, target).extend(values)


_UNREADABLE: Final = "The model server's answer can't be read"


def infer_answer(message: bytes, request: TranslatedRequest) -> bytes:
    """Serialize a ModelInferResponse. Raises UpstreamError if the protocol can't express an output."""
    try:
        tensors, version = response_parts(message)
        answered = request.asked.version if version is None else str(version)
        answer = ModelInferResponse(model_name=request.asked.name, model_version=answered, id=request.id)
        for name, value in request.parameters.items():
            answer.parameters[name].CopyFrom(value)
        listed = ListedTensors()
        for name in request.outputs or sorted(tensors):
            _add_output(answer, name, tensors[name], listed)
    except (DecodeError, ValueError, KeyError) as error:
        raise UpstreamError(f"{_UNREADABLE}: {error}.") from error
    return answer.SerializeToString()


def _add_output(answer: ModelInferResponse, name: str, tensor: memoryview, listed: ListedTensors) -> None:
    parts = tensor_parts(tensor)
    array = None
    if parts is None:
        data_type, array = listed.read(tensor)
        shape = array.shape
        content = NOTHING
    else:
        data_type, shape, content = parts
    datatype = datatype_of(TensorSpec(name, data_type_name(data_type), None))
    if datatype is None:
        raise UpstreamError(
            f'The output "{name}" is {data_type_name(data_type)}, which the protocol has no datatype for.'
        )
    answer.outputs.add(name=name, datatype=datatype.name, shape=shape)
    if array is None and len(content) != math.prod(shape) * (datatype.item_bytes or math.inf):
        _, array = listed.read(tensor)
    answer.raw_output_contents.append(bytes(content) if array is None else _raw(array))


def _raw(array: npt.NDArray[Any]) -> bytes:
    if array.dtype == BYTES:
        return raw_strings(array)
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
