"""Data types of the protocol, with TensorFlow's and numpy's; raw bytes of tensors; metadata of models."""

import math
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from tfs_proxy.values.batch import BYTES
from tfs_proxy.values.errors import BadInput, from_client
from tfs_proxy.values.memory import STRING_BYTES, MemoryBudget
from tfs_proxy.values.signature import Signature, TensorSpec
from tfs_proxy.wire.dtypes import ARRAY_TYPES
from tfs_proxy.wire.protos.tensors import from_bits, to_bits


class Datatype(Struct, frozen=True):
    """One datatype of the protocol."""

    name: str
    """Name in the protocol, such as ``FP32``."""

    tensorflow: str
    """Name in TensorFlow, such as ``DT_FLOAT``."""

    array: np.dtype[Any]
    """Dtype of its arrays in a `Batch`."""

    item_bytes: int | None
    """Size of an element among raw bytes; None if each element says its own."""

    has_json: bool = True
    """False if JSON can't carry it (contract: FP16 and BF16 travel as raw bytes only)."""


def _row(name: str, tensorflow: str, *, has_json: bool = True) -> Datatype:
    array = ARRAY_TYPES[tensorflow]
    return Datatype(name, tensorflow, array, None if array == BYTES else array.itemsize, has_json)


_ROWS = (
    _row("BOOL", "DT_BOOL"),
    *(_row(f"UINT{bits}", f"DT_UINT{bits}") for bits in (8, 16, 32, 64)),
    *(_row(f"INT{bits}", f"DT_INT{bits}") for bits in (8, 16, 32, 64)),
    _row("FP16", "DT_HALF", has_json=False),
    Datatype("BF16", "DT_BFLOAT16", ARRAY_TYPES["DT_BFLOAT16"], 2, has_json=False),
    _row("FP32", "DT_FLOAT"),
    _row("FP64", "DT_DOUBLE"),
    _row("BYTES", "DT_STRING"),
)

DATATYPES: Mapping[str, Datatype] = {row.name: row for row in _ROWS}
"""Datatypes by the protocol's name."""

_BY_TENSORFLOW: Mapping[str, Datatype] = {row.tensorflow: row for row in _ROWS}
_BY_ARRAY: Mapping[np.dtype[Any], Datatype] = {row.array: row for row in _ROWS if row.name != "BF16"}


def datatype_named(name: object, subject: str) -> Datatype:
    """Look up a client's datatype; raises BadInput, which begins with ``subject``."""
    known = DATATYPES.get(name) if isinstance(name, str) else None
    if known is None:
        raise BadInput(
            f"{subject} has the datatype {_shown(name)}: it must be one of {', '.join(DATATYPES)}."
        )
    return known


def datatype_of(spec: TensorSpec) -> Datatype | None:
    """Datatype of a model's tensor; None for those that the protocol lacks, such as complex numbers."""
    return _BY_TENSORFLOW.get(spec.dtype)


def datatype_of_array(dtype: np.dtype[Any]) -> Datatype | None:
    """Datatype of an array without a signature; text of any width is BYTES."""
    return DATATYPES["BYTES"] if dtype.kind in "SU" else _BY_ARRAY.get(dtype.newbyteorder("="))


def _shown(name: object) -> str:
    return f'"{from_client(name[:40])}"' if isinstance(name, str) else "that is not a string"


_LENGTH = struct.Struct("<I")
_BFLOAT16 = "BF16"

Raw = bytes | memoryview


def from_raw(
    raw: Raw, datatype: Datatype, shape: Sequence[int], subject: str, budget: MemoryBudget | None = None
) -> npt.NDArray[Any]:
    """Make the array ``shape`` of a tensor's raw bytes, which may share their memory.

    Raises BadInput, beginning with ``subject``, if there are more or fewer bytes than the shape asks for,
    and PayloadTooLarge if the budget has too little left.
    """
    size = math.prod(shape)
    if datatype.item_bytes is None:
        strings = elements(raw, size, subject, budget or MemoryBudget())
        array = np.empty(size, BYTES)
        for number, value in enumerate(strings):
            array[number] = value
        return array.reshape(shape)
    if len(raw) != size * datatype.item_bytes:
        raise BadInput(
            f"{subject} has {len(raw)} bytes, but {datatype.name} of the shape {list(shape)} takes "
            f"{size * datatype.item_bytes}."
        )
    if datatype.name == _BFLOAT16:
        if budget is not None:
            budget.take(size * datatype.array.itemsize, subject)
        return from_bits(np.frombuffer(raw, "<u2")).reshape(shape)
    array = np.frombuffer(raw, datatype.array.newbyteorder("<"))
    if datatype.name == "BOOL" and array.view(np.uint8).max(initial=0) > 1:
        raise BadInput(f"{subject} has a byte other than 0 and 1, which is not a BOOL.")
    return array.astype(datatype.array, copy=False).reshape(shape)


def to_raw(array: npt.NDArray[Any], datatype: Datatype) -> Raw:
    """Raw bytes of an array, in its own memory if that has their layout."""
    if datatype.item_bytes is None:
        return raw_strings(array)
    if datatype.name == _BFLOAT16:
        return to_bits(np.asarray(array, np.float32)).astype("<u2", copy=False).tobytes()
    laid_out = np.ascontiguousarray(array, datatype.array.newbyteorder("<"))
    return laid_out.reshape(-1).view(np.uint8).data if laid_out.size else b""


def elements(raw: Raw, count: int, subject: str, budget: MemoryBudget) -> Iterator[bytes]:
    """Split BYTES, of which each element follows its length.

    Raises BadInput, and takes their memory from ``budget``, before the first; and BadInput at one that is cut
    off, or for bytes after the last.
    """
    if count * _LENGTH.size > len(raw):
        raise BadInput(f"{subject} has {len(raw)} bytes, too few for {count} elements of BYTES.")
    budget.take(count * STRING_BYTES + len(raw), subject)
    return _split(bytes(raw), count, subject)


def _split(raw: bytes, count: int, subject: str) -> Iterator[bytes]:
    end = 0
    for number in range(1, count + 1):
        start = end + _LENGTH.size
        if start > len(raw):
            raise _cut_off(raw, number, count, subject)
        end = start + _LENGTH.unpack_from(raw, end)[0]
        if end > len(raw):
            raise _cut_off(raw, number, count, subject)
        yield raw[start:end]
    if end != len(raw):
        raise BadInput(f"{subject} has {len(raw) - end} bytes behind its last element.")


def _cut_off(raw: bytes, number: int, count: int, subject: str) -> BadInput:
    return BadInput(f"{subject}: element {number} of {count} goes beyond the end of its {len(raw)} bytes.")


def raw_strings(array: npt.NDArray[Any]) -> bytes:
    """Join strings of an array of any shape for `elements`."""
    pieces: list[bytes] = []
    for element in array.ravel():
        value = element if isinstance(element, bytes) else str(element).encode()
        pieces += _LENGTH.pack(len(value)), value
    return b"".join(pieces)


TRITON_TYPE: Final = "application/vnd.sagemaker-triton.binary+json"
JSON_SIZE: Final = "json-header-size"


def triton_type(size: int) -> str:
    """Content type of a body of which ``size`` bytes are JSON."""
    return f"{TRITON_TYPE};{JSON_SIZE}={size}"


PLATFORM: Final = "tensorflow_savedmodel"
SCRIPT_PLATFORM: Final = "python"


class TensorMetadata(Struct, frozen=True):
    """One input or output: its datatype by the protocol's name, and its shape, -1 for free dimensions."""

    name: str
    datatype: str
    shape: tuple[int, ...]


class ModelMetadata(Struct, frozen=True):
    """Metadata of one model."""

    name: str
    """Name of the model."""

    versions: tuple[str, ...]
    """Version numbers as text, ascending."""

    platform: str
    """Kind of model, in the protocol's words."""

    inputs: tuple[TensorMetadata, ...] = ()
    """Tensors that it takes; none for a script model, of which nobody knows them."""

    outputs: tuple[TensorMetadata, ...] = ()
    """Tensors that it returns; none for a script model."""


def model_metadata(name: str, versions: Iterable[int], signature: Signature | None) -> ModelMetadata:
    """Metadata of a model with this signature; None for a script model."""
    numbers = tuple(str(version) for version in versions)
    if signature is None:
        return ModelMetadata(name, numbers, SCRIPT_PLATFORM)
    inputs, outputs = (
        tuple(_tensor(tensor, spec) for tensor, spec in tensors.items())
        for tensors in (signature.inputs, signature.outputs)
    )
    return ModelMetadata(name, numbers, PLATFORM, inputs, outputs)


def _tensor(name: str, spec: TensorSpec) -> TensorMetadata:
    """Convert a tensor; types that the protocol lacks have TensorFlow's name, an unknown rank is ``[-1]``."""
    datatype = datatype_of(spec)
    shape = (None,) if spec.shape is None else spec.shape
    sizes = tuple(-1 if size is None else size for size in shape)
    return TensorMetadata(name, spec.dtype.removeprefix("DT_") if datatype is None else datatype.name, sizes)
