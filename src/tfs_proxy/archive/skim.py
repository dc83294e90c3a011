"""Protobuf fields of a file without reading the file: large ones are stepped over, for `saved_model`.

https://protobuf.dev/programming-guides/encoding/ has the format.
"""

from collections.abc import Iterator

VARINT_BITS = 70


class Malformed(Exception):
    """The bytes are no protobuf message."""


def length_fields(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Number and content of each field of a message that has a length: bytes, text, messages.

    Contents are views, so that a field that nobody looks at costs nothing. Raises Malformed.
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
                _, at = _varint(message, at)
            case 1:
                at += 8
            case 5:
                at += 4
            case kind:
                raise Malformed(f"a field has the unknown wire type {kind}")
    if at > end:
        raise Malformed("a field is longer than what holds it")


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
