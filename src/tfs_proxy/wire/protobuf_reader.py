"""Reads protobuf's wire format field by field: fields that are not needed are skipped and cost nothing.

https://protobuf.dev/programming-guides/encoding/ has the format.
"""

from collections.abc import Iterator

VARINT = 0
FIXED64 = 1
LENGTH = 2
FIXED32 = 5
"""Values of the low three bits of a field's tag."""

NOTHING = memoryview(b"")

_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}
_LONGEST_VARINT = 10
_MORE = 0x80
_LOW = 0x7F


class MalformedProtobuf(ValueError):
    """The bytes are not a protobuf message."""


def read_fields(message: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Each field of a message: number, kind and content, uncopied.

    A number's content is its own bytes: see `read_varint`. Raises MalformedProtobuf.
    """
    at = 0
    end = len(message)
    while at < end:
        tag, at = varint_at(message, at)
        kind = tag & 7
        start = at
        if kind == LENGTH:
            size, start = varint_at(message, at)
            at = start + size
        elif kind == VARINT:
            _, at = varint_at(message, at)
        elif kind in _FIXED_BYTES:
            at += _FIXED_BYTES[kind]
        else:
            raise MalformedProtobuf(f"a field has the unknown wire type {kind}")
        if at > end:
            raise MalformedProtobuf("a field is longer than the message that holds it")
        yield tag >> 3, kind, message[start:at]


def read_varint(content: memoryview) -> int:
    """Number in a field of kind `VARINT`, as 64 bits of two's complement."""
    value, _ = varint_at(content, 0)
    return value - (1 << 64) if value >> 63 else value


def varint_at(message: memoryview, at: int) -> tuple[int, int]:
    """Number at a position, and the position after it. Raises MalformedProtobuf if it is cut off."""
    value = 0
    for index, byte in enumerate(message[at : at + _LONGEST_VARINT]):
        value |= (byte & _LOW) << 7 * index
        if byte < _MORE:
            return value & 0xFFFFFFFFFFFFFFFF, at + index + 1
    raise MalformedProtobuf("the message breaks off within a number")


def views(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Fields that have a length: bytes, text, messages. Raises MalformedProtobuf."""
    return ((number, content) for number, kind, content in read_fields(message) if kind == LENGTH)


def numbers(message: memoryview) -> dict[int, int]:
    """Last value of each field that is a number. Raises MalformedProtobuf."""
    return {number: read_varint(content) for number, kind, content in read_fields(message) if kind == VARINT}


def map_entry(message: memoryview) -> tuple[str, memoryview]:
    """Key and value of one entry of a ``map<string, message>`` field. Raises MalformedProtobuf."""
    parts = dict(views(message))
    return text(parts.get(1, NOTHING)), parts.get(2, NOTHING)


def text(content: memoryview) -> str:
    """Decode UTF-8. Raises MalformedProtobuf if it is none."""
    try:
        return str(content, "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedProtobuf(f"a text is not UTF-8 ({error.reason})") from None
