"""The values of one input, raw or listed, to the fields of a TensorProto that hold them: pure."""

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tfs_proxy.errors import BadInput
from tfs_proxy.memory import STRING_BYTES, MemoryBudget
from tfs_proxy.open_inference.datatypes import Datatype
from tfs_proxy.protos.tensors import CONTENT
from tfs_proxy.wire.protobuf_reader import LENGTH, read_fields, views
from tfs_proxy.wire.protobuf_writer import Piece, field, message_field

_LENGTH: Final = struct.Struct("<I")
_STRINGS: Final = 8
_INT, _UINT = "int_contents", "uint_contents"

LISTS: Final[Mapping[str, tuple[str, int]]] = {
    "BOOL": ("bool_contents", 11),
    "INT8": (_INT, 7),
    "INT16": (_INT, 7),
    "INT32": (_INT, 7),
    "INT64": ("int64_contents", 10),
    "UINT8": (_UINT, 7),
    "UINT16": (_UINT, 7),
    "UINT32": (_UINT, 16),
    "UINT64": ("uint64_contents", 17),
    "FP32": ("fp32_contents", 5),
    "FP64": ("fp64_contents", 6),
    "BYTES": ("bytes_contents", _STRINGS),
}
"""The list of InferTensorContents for each datatype, and the number of TensorProto's same list."""

_VARINT_CONTENTS: Final = range(2, 6)
_BYTES_CONTENTS: Final = 8
"""Lists of InferTensorContents: those of whole numbers, and that of strings."""

_MORE, _WIDEST_BYTES = 0x80, 8
_LISTED: Final = "An input's contents"

_RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "INT8": (-(2**7), 2**7 - 1),
    "INT16": (-(2**15), 2**15 - 1),
    "UINT8": (0, 2**8 - 1),
    "UINT16": (0, 2**16 - 1),
}


def raw_pieces(
    raw: memoryview, datatype: Datatype, shape: Sequence[int], subject: str, budget: MemoryBudget
) -> list[Piece]:
    """The field for raw bytes.

    Raises BadInput, beginning with ``subject``, if they do not fill the shape, and PayloadTooLarge if they
    hold more strings than the budget has memory for.
    """
    count = math.prod(shape)
    if datatype.item_bytes is None:
        if count * _LENGTH.size <= len(raw):
            budget.take(count * STRING_BYTES + len(raw), subject)
        return [field(_STRINGS, element) for element in _elements(raw, count, subject)]
    if len(raw) != count * datatype.item_bytes:
        raise BadInput(
            f"{subject} has {len(raw)} bytes, but {datatype.name} of the shape {list(shape)} takes "
            f"{count * datatype.item_bytes}."
        )
    if datatype.name == "BOOL" and bytes(raw).translate(None, b"\x00\x01"):
        raise BadInput(f"{subject} has a byte other than 0 and 1, which is not a BOOL.")
    return message_field(CONTENT, [raw]) if count else []


def contents_pieces(contents: Any, datatype: Datatype, shape: Sequence[int], subject: str) -> list[Piece]:
    """The field for an InferTensorContents; raises BadInput if it does not fill the shape."""
    if datatype.name not in LISTS:
        raise BadInput(f"{subject} is {datatype.name}, which only raw_input_contents can carry.")
    name, number = LISTS[datatype.name]
    other = [listed.name for listed, _ in contents.ListFields() if listed.name != name]
    if other:
        raise BadInput(f"{subject} is {datatype.name}, whose values are in {name}, not in {other[0]}.")
    values, count = getattr(contents, name), math.prod(shape)
    if len(values) != count:
        raise BadInput(f"{subject} has {len(values)} values, but the shape {list(shape)} takes {count}.")
    if not count:
        return []
    low, high = _RANGES.get(datatype.name, (None, None))
    if low is not None and high is not None and not low <= min(values) <= max(values) <= high:
        raise BadInput(f"{subject} has a value that is not {datatype.name}: {low} to {high}.")
    # One list alone is one packed field, and each string of its own one.
    packed = views(memoryview(contents.SerializeToString()))
    return [piece for _, content in packed for piece in message_field(number, [content])]


def take_listed(contents: memoryview, budget: MemoryBudget) -> None:
    """Count what an InferTensorContents takes once it is parsed.

    Raises PayloadTooLarge if that is more than the budget has left, and MalformedProtobuf.
    """
    for number, kind, content in read_fields(contents):
        if number == _BYTES_CONTENTS:
            budget.take(len(content) + STRING_BYTES, _LISTED)
        elif kind != LENGTH:
            budget.take(_WIDEST_BYTES, _LISTED)
        elif number in _VARINT_CONTENTS:
            ends = np.count_nonzero(np.frombuffer(content, np.uint8) < _MORE)
            budget.take(int(ends) * _WIDEST_BYTES, _LISTED)
        else:
            budget.take(len(content), _LISTED)


def _elements(raw: memoryview, count: int, subject: str) -> Iterator[bytes]:
    """The elements of BYTES, each of which has its length before it."""
    if count * _LENGTH.size > len(raw):
        raise BadInput(f"{subject} has {len(raw)} bytes, too few for {count} elements of BYTES.")
    position, end = 0, len(raw)
    for number in range(count):
        start = position + _LENGTH.size
        position = start + _LENGTH.unpack_from(raw, position)[0] if start <= end else end + 1
        if position > end:
            raise BadInput(
                f"{subject}: element {number + 1} of {count} goes beyond the end of its {end} bytes."
            )
        yield bytes(raw[start:position])
    if position != end:
        raise BadInput(f"{subject} has {end - position} bytes behind its last element.")
