"""The pictures that examples send: grey squares as PNG and JPEG, each a few hundred bytes."""

import struct
import zlib

SIDE = 32
"""Pixels; three channels, since a decoder makes any number of three."""


def _png() -> bytes:
    head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    row = b"\0" + b"\x80" * (3 * SIDE)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(row * SIDE, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def _jpeg() -> bytes:
    """A baseline JPEG: each block is the same mid-grey as the one before it, which takes two bits to say."""
    one_code = bytes([1, *[0] * 15, 0])
    components = b"".join(bytes((number, 0x11, 0)) for number in (1, 2, 3))
    tables = b"".join(bytes((number, 0)) for number in (1, 2, 3))
    bits = 2 * 3 * (SIDE // 8) ** 2
    return b"".join(
        (
            b"\xff\xd8",
            _segment(0xDB, b"\0" + b"\1" * 64),
            _segment(0xC0, struct.pack(">BHHB", 8, SIDE, SIDE, 3) + components),
            _segment(0xC4, b"\x00" + one_code),
            _segment(0xC4, b"\x10" + one_code),
            _segment(0xDA, b"\3" + tables + b"\0\x3f\0"),
            bytes(bits // 8),
            b"\xff\xd9",
        )
    )


def _segment(marker: int, data: bytes) -> bytes:
    return bytes((0xFF, marker)) + struct.pack(">H", len(data) + 2) + data


PNG, JPEG = _png(), _jpeg()
