"""Wire format of ModelSpec and PredictResponse with numpy arrays: a tensor is copied once, into the message.

Generated messages would copy a tensor twice, into themselves and out again. Here its content, or the
list that is its content (``float_val``), is found in the bytes of the answer and looked at; everything
else (strings, lists of varints, lists cut short) is left to `tensors.to_array`.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tfs_proxy.settings.settings import most_answer_bytes
from tfs_proxy.values.errors import AnswerTooLarge
from tfs_proxy.values.memory import nested_bytes
from tfs_proxy.wire.data_types import DataType, shape_of
from tfs_proxy.wire.dtypes import MAX_DIMENSIONS
from tfs_proxy.wire.error_body import MODEL_SERVER, answer_too_large
from tfs_proxy.wire.protobuf_reader import LENGTH, VARINT, numbers, read_fields, read_varint, views
from tfs_proxy.wire.protobuf_writer import Piece, field, map_entry, message_field, varint_field
from tfs_proxy.wire.protos.tensors import (
    CONTENT,
    DTYPE,
    FIXED_LISTS,
    SHAPE,
    from_bits,
    listed_bytes,
    numpy_type,
    to_array,
    to_pieces,
)

_NAME = 1
_VERSION = 2
_SIGNATURE = 3
_LABEL = 4


def model_spec(
    name: str, version: int | None = None, label: str | None = None, signature: str | None = None
) -> bytes:
    """Serialize a ModelSpec; neither version nor label means the newest version."""
    parts = [_text_field(_NAME, name), _text_field(_SIGNATURE, signature or "")]
    if version is not None:
        parts.append(field(_VERSION, varint_field(1, version) if version else b""))
    elif label is not None:
        parts.append(field(_LABEL, label.encode()))
    return b"".join(parts)


def _text_field(number: int, text: str) -> bytes:
    return field(number, text.encode()) if text else b""


def response_bytes(spec: bytes, outputs: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Serialize a PredictResponse, whose numbers are lists of values."""
    entries = (map_entry(1, name, to_pieces(array, as_list=True)) for name, array in outputs.items())
    return b"".join([*chain(*entries), *message_field(2, [spec])])


_OUTPUTS = 1
_MODEL_SPEC = 2
_VALUE_OF_WRAPPER = 1
_KEY = 1
_VALUE = 2
_VERSION_NUMBER = 3
_BITS = np.dtype(np.uint16)


class Predicted(Struct, frozen=True):
    """Outputs by name, and the version of the model (None if the answer does not say)."""

    outputs: dict[str, npt.NDArray[Any]]
    version: int | None


def read_response(message: Piece) -> Predicted:
    """Outputs by name, bfloat16 as float32, strings as object arrays of bytes.

    Arrays that share the message's memory are read-only. Raises ValueError if it can't be read, and
    AnswerTooLarge.
    """
    tensors, version = response_parts(message)
    outputs = {}
    listed = ListedTensors()
    for name, tensor in tensors.items():
        values = _viewed(tensor)
        if values is None:
            data_type, values = listed.read(tensor)
            if data_type == DataType.DT_BFLOAT16:
                values = from_bits(values.reshape(-1).view(_BITS)).reshape(values.shape)
        if not values.size:
            _require(nested_bytes(values.shape))
        outputs[name] = values
    return Predicted(outputs, version)


def response_parts(message: Piece) -> tuple[dict[str, memoryview], int | None]:
    """The outputs of a PredictResponse as serialized TensorProtos, and the version, None if it is not told.

    Raises ValueError if it can't be read.
    """
    tensors: dict[str, memoryview] = {}
    version = None
    for number, kind, content in read_fields(memoryview(message)):
        if number == _OUTPUTS and kind == LENGTH:
            entry = {part: value for part, _, value in read_fields(content)}
            tensors[str(entry.get(_KEY, b""), "utf-8")] = entry.get(_VALUE, memoryview(b""))
        elif number == _MODEL_SPEC and kind == LENGTH:
            version = _version(bytes(content))
    return tensors, version


@lru_cache(maxsize=256)
def _version(spec: bytes) -> int | None:
    wrapped = dict(views(memoryview(spec))).get(_VERSION)
    return None if wrapped is None else numbers(wrapped).get(_VALUE_OF_WRAPPER, 0)


def _viewed(tensor: memoryview) -> npt.NDArray[Any] | None:
    """Array of a tensor whose memory is the message's, bfloat16 as float32."""
    parts = tensor_parts(tensor)
    if parts is None:
        return None
    dtype, sizes, content = parts
    is_bits = dtype == DataType.DT_BFLOAT16
    element = _BITS if is_bits else numpy_type(dtype)
    if element is None or element.hasobject or len(sizes) > MAX_DIMENSIONS:
        return None
    if math.prod(sizes) * element.itemsize != len(content):
        return None
    values = np.frombuffer(content, element)
    if is_bits:
        return from_bits(values).reshape(sizes)
    # NOTE: an array that is not aligned is copied: compiled code may rely on alignment.
    return (values if values.flags.aligned else values.copy()).reshape(sizes)


def tensor_parts(tensor: memoryview) -> tuple[int, tuple[int, ...], memoryview] | None:
    """Type, shape and content of a tensor that has each once, and nothing else.

    The content is the array's memory, if it is as long as the shape wants.
    """
    dtype = 0
    shape = b""
    number = 0
    content = None
    for part, kind, value in read_fields(tensor):
        if part == DTYPE and kind == VARINT:
            dtype = read_varint(value)
        elif part == SHAPE and kind == LENGTH and not shape:
            shape = bytes(value)
        elif part == _VERSION_NUMBER:
            continue
        elif kind == LENGTH and content is None and (part == CONTENT or part in FIXED_LISTS.values()):
            number, content = part, value
        else:
            return None
    if content is None or number not in {CONTENT, FIXED_LISTS.get(dtype)}:
        return None
    sizes = _sizes(shape)
    return None if sizes is None else (dtype, sizes, content)


@lru_cache(maxsize=256)
def _sizes(shape: bytes) -> tuple[int, ...] | None:
    """Sizes in a serialized TensorShapeProto; None if one is not known, or how many there are."""
    sizes = shape_of(memoryview(shape))
    if sizes is None:
        return None
    known = tuple(size for size in sizes if size is not None)
    return known if len(known) == len(sizes) else None


def _require(size_bytes: int) -> None:
    if size_bytes > most_answer_bytes():
        raise AnswerTooLarge(answer_too_large(MODEL_SERVER, most_answer_bytes()))


class ListedTensors:
    """Reader of those tensors of one answer whose values have to be read one by one.

    One value may stand for any number of them: what all become is counted before any array is made.
    """

    def __init__(self) -> None:
        self._bytes = 0

    def read(self, tensor: memoryview) -> tuple[int, npt.NDArray[Any]]:
        """Type and array of a tensor; bfloat16 as halves, which are as many bits in the same places.

        Raises ValueError if it can't be read, and AnswerTooLarge if the arrays are over the limit of answers.
        """
        from google.protobuf.message import DecodeError

        from tfs_proxy.wire.protos import TensorProto

        try:
            message = TensorProto.FromString(tensor)  # type: ignore[arg-type]  # any buffer will do
        except DecodeError as error:
            raise ValueError("the message cannot be read") from error
        data_type = int(message.dtype)
        if data_type == DataType.DT_BFLOAT16:
            message.dtype = DataType.DT_HALF  # type: ignore[assignment]
        self._bytes += listed_bytes(message)
        _require(self._bytes)
        return data_type, to_array(message)
