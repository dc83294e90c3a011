"""Protobuf fields of a file without reading the file: large ones are stepped over, for `saved_model`.

https://protobuf.dev/programming-guides/encoding/ has the format.
"""

from collections.abc import Iterator

VARINT_BITS = 70
NOTHING = memoryview(b"")


class Malformed(Exception):
    """The bytes are no protobuf message."""


Value = int | memoryview


def fields(message: memoryview) -> Iterator[tuple[int, Value]]:
    """Number and value of each field: a number as int, bytes, text and messages as views.

    A field that nobody looks at costs nothing. Numbers of fixed width are stepped over. Raises
    Malformed.
    """
    at, end = 0, len(message)
    while at < end:
        tag, at = _varint(message, at)
        match tag & 7:
            case 2:
                length, at = _varint(message, at)
                if at + length > end:
                    raise Malformed("a field is longer than what holds it")
                yield tag >> 3, message[at : at + length]
                at += length
            case 0:
                number, at = _varint(message, at)
                yield tag >> 3, number
            case 1:
                at += 8
            case 5:
                at += 4
            case kind:
                raise Malformed(f"a field has the unknown wire type {kind}")
    if at > end:
        raise Malformed("a field is longer than what holds it")


def views(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Only the fields that have a length: bytes, text, messages."""
    return ((number, value) for number, value in fields(message) if isinstance(value, memoryview))


def numbers(message: memoryview) -> dict[int, int]:
    """The last value of each field that is a number, as 64 bits of two's complement."""
    return {
        number: value - (1 << 64) if value >> 63 else value
        for number, value in fields(message)
        if isinstance(value, int)
    }


def map_entry(message: memoryview) -> tuple[str, memoryview]:
    """Key and value of one entry of a ``map<string, message>`` field."""
    parts = dict(views(message))
    return text(parts.get(1, NOTHING)), parts.get(2, NOTHING)


def text(content: memoryview) -> str:
    """A text field. Raises Malformed where it is no UTF-8."""
    try:
        return str(content, "utf-8")
    except UnicodeDecodeError as error:
        raise Malformed(f"a text is no UTF-8 ({error.reason})") from None


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < VARINT_BITS:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:  # noqa: PLR2004 - the format's own mark
            return value, at
        shift += 7
    raise Malformed("a number does not end")
