"""Raw bytes of tensors to arrays and back: the binary tensor extension, and gRPC's raw contents.

Little-endian and row-major; each element of BYTES is a length of four bytes and its bytes, FP16 and BF16 have
two bytes an element.
"""

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tfs_proxy.batch import BYTES
from tfs_proxy.errors import BadInput
from tfs_proxy.memory import STRING_BYTES, MemoryBudget
from tfs_proxy.open_inference.datatypes import Datatype
from tfs_proxy.protos.tensors import from_bits, to_bits

_LENGTH = struct.Struct("<I")
_BFLOAT16 = "BF16"

Raw = bytes | memoryview


def from_raw(
    raw: Raw, datatype: Datatype, shape: Sequence[int], subject: str, budget: MemoryBudget | None = None
) -> npt.NDArray[Any]:
    """The array ``shape`` of a tensor's raw bytes, which may share their memory.

    Raises BadInput, beginning with ``subject``, if there are more or fewer bytes than the shape asks for,
    and PayloadTooLarge if the budget has too little left.
    """
    size = math.prod(shape)
    if datatype.item_bytes is None:
        return _strings(raw, size, subject, budget or MemoryBudget()).reshape(shape)
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
    """The raw bytes of an array, in its own memory if that is laid out so."""
    if datatype.item_bytes is None:
        return _raw_strings(array)
    if datatype.name == _BFLOAT16:
        return to_bits(np.asarray(array, np.float32)).astype("<u2", copy=False).tobytes()
    laid_out = np.ascontiguousarray(array, datatype.array.newbyteorder("<"))
    return laid_out.reshape(-1).view(np.uint8).data if laid_out.size else b""


def _strings(raw: Raw, size: int, subject: str, budget: MemoryBudget) -> npt.NDArray[Any]:
    if size * _LENGTH.size > len(raw):
        raise BadInput(f"{subject} has {len(raw)} bytes, too few for {size} elements of BYTES.")
    budget.take(size * STRING_BYTES + len(raw), subject)
    array, position, end = np.empty(size, BYTES), 0, len(raw)
    data = bytes(raw)
    for number in range(size):
        start = position + _LENGTH.size
        position = start + _LENGTH.unpack_from(data, position)[0] if start <= end else end + 1
        if position > end:
            raise BadInput(
                f"{subject}: element {number + 1} of {size} goes beyond the end of its {end} bytes."
            )
        array[number] = data[start:position]
    if position != end:
        raise BadInput(f"{subject} has {end - position} bytes behind its last element.")
    return array


def _raw_strings(array: npt.NDArray[Any]) -> bytes:
    pieces: list[bytes] = []
    for element in array.flat:
        value = element if isinstance(element, bytes) else str(element).encode()
        pieces += _LENGTH.pack(len(value)), value
    return b"".join(pieces)
