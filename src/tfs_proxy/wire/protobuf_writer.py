"""Writes protobuf's wire format, for messages that would copy what is already in memory.

https://protobuf.dev/programming-guides/encoding/ has the format.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tfs_proxy.wire.protobuf_reader import LENGTH, VARINT

Piece = bytes | memoryview

_MORE = 0x80
_LOW = 0x7F
_ONE_BYTE = tuple(bytes((value,)) for value in range(_MORE))


def varint(value: int) -> bytes:
    """Number in base 128; a negative one as 64 bits of two's complement."""
    if 0 <= value < _MORE:
        return _ONE_BYTE[value]
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value >= _MORE:
        out.append(value & _LOW | _MORE)
        value >>= 7
    out.append(value)
    return bytes(out)


@cache
def _tag(number: int, kind: int) -> bytes:
    return varint(number << 3 | kind)


def varint_field(number: int, value: int) -> bytes:
    return _tag(number, VARINT) + varint(value)


def field(number: int, content: bytes) -> bytes:
    return _tag(number, LENGTH) + varint(len(content)) + content


def message_field(number: int, pieces: Iterable[Piece]) -> list[Piece]:
    """Field with a length, from pieces that are not copied."""
    content = list(pieces)
    return [_tag(number, LENGTH) + varint(sum(map(len, content))), *content]


def map_entry(number: int, key: str, value: Iterable[Piece]) -> list[Piece]:
    return message_field(number, [field(1, key.encode()), *message_field(2, value)])


def memory(array: npt.NDArray[Any]) -> memoryview:
    """Elements of an array as bytes, row by row and little-endian; copied only if they are not."""
    ordered = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(ordered).reshape(-1).view(np.uint8).data
