"""Protobuf's wire format, written by hand where a message would copy what is already in memory.

https://protobuf.dev/programming-guides/encoding/ has the format.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

Piece = bytes | memoryview

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
"""What the low three bits of a field's tag can be."""

_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}
_LONGEST_VARINT = 10
_MORE = 0x80
_LOW = 0x7F
_ONE_BYTE = tuple(bytes((value,)) for value in range(_MORE))


def varint(value: int) -> bytes:
    """A whole number in base 128; a negative one as 64 bits of two's complement."""
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
    """A field that holds a whole number, a bool or an enum."""
    return _tag(number, VARINT) + varint(value)


def field(number: int, content: bytes) -> bytes:
    """A field that holds bytes, a string, a message or a packed list."""
    return _tag(number, LENGTH) + varint(len(content)) + content


def message_field(number: int, pieces: Iterable[Piece]) -> list[Piece]:
    """The same from pieces, which stay where they are."""
    content = list(pieces)
    return [_tag(number, LENGTH) + varint(sum(map(len, content))), *content]


def map_entry(number: int, key: str, value: Iterable[Piece]) -> list[Piece]:
    """One entry of a ``map<string, message>`` field."""
    return message_field(number, [field(1, key.encode()), *message_field(2, value)])


def memory(array: npt.NDArray[Any]) -> memoryview:
    """An array's elements as bytes, row by row and little-endian; copied only where they are not."""
    ordered = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(ordered).reshape(-1).view(np.uint8).data


def map_field(number: int, entries: Mapping[str, Iterable[Piece]]) -> list[Piece]:
    """A whole ``map<string, message>`` field."""
    return [piece for key, value in entries.items() for piece in map_entry(number, key, value)]


def read_fields(message: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Each field of a message: number, kind and content, which stays where it is.

    A number's content is its own bytes: see `read_varint`. Raises ValueError where the message breaks
    off or is none.
    """
    at, end = 0, len(message)
    while at < end:
        tag, at = varint_at(message, at)
        kind = tag & 7
        if kind == VARINT:
            start = at
            _, at = varint_at(message, at)
        elif kind == LENGTH:
            size, start = varint_at(message, at)
            at = start + size
        elif kind in _FIXED_BYTES:
            start, at = at, at + _FIXED_BYTES[kind]
        else:
            raise ValueError(f"there is no field of kind {kind}")
        if at > end:
            raise ValueError("the message breaks off")
        yield tag >> 3, kind, message[start:at]


def read_varint(content: memoryview) -> int:
    """The whole number that a field of kind `VARINT` holds, as 64 bits of two's complement."""
    value, _ = varint_at(content, 0)
    return value - (1 << 64) if value >> 63 else value


def varint_at(message: memoryview, at: int) -> tuple[int, int]:
    """A number and where the next thing begins. Raises ValueError where it breaks off."""
    value = 0
    for index, byte in enumerate(message[at : at + _LONGEST_VARINT]):
        value |= (byte & _LOW) << 7 * index
        if byte < _MORE:
            return value & 0xFFFFFFFFFFFFFFFF, at + index + 1
    raise ValueError("the message breaks off within a number")
