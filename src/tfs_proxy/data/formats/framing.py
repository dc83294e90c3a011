"""Framings of records, TFRecord and RecordIO: streams of bytes <-> whole records, here and for transform.

Both are read as a stream: no more than one record is in memory.
"""

import struct
from collections.abc import Iterator
from typing import Protocol

import google_crc32c
from msgspec import Struct

from tfs_proxy.values.errors import BadInput, PayloadTooLarge

TFRECORD_HEAD = struct.Struct("<QI")
TFRECORD_TAIL = struct.Struct("<I")
RECORDIO_HEAD = struct.Struct("<II")
RECORDIO_MAGIC = 0xCED7230A
_RECORDIO_MAGIC_BYTES = struct.pack("<I", RECORDIO_MAGIC)
_RECORDIO_LENGTH_BITS = 29
_RECORDIO_LENGTH_MASK = (1 << _RECORDIO_LENGTH_BITS) - 1
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_CRC_MASK_DELTA = 0xA282EAD8
_U32 = 0xFFFFFFFF


class Readable(Protocol):
    """Stream of bytes; ``read(n)`` gives n of them, fewer only at its end."""

    def read(self, size: int, /) -> bytes:
        """Return the next ``size`` bytes."""


class Frame(Struct, frozen=True):
    """One record: its position (bytes), its bytes in the stream, its payload, and its line if it is one."""

    offset: int
    framed: bytes
    payload: bytes | memoryview
    line: int | None = None


def masked_crc32c(data: bytes | memoryview) -> int:
    """Checksum of a TFRecord (docs/reference/sagemaker.md): CRC32C, rotated and moved."""
    crc: int = google_crc32c.value(bytes(data))
    return (((crc >> 15) | (crc << 17)) + _CRC_MASK_DELTA) & _U32


def tfrecord_frame(payload: bytes) -> bytes:
    """Write ``payload`` as one TFRecord."""
    length = struct.pack("<Q", len(payload))
    sums = [TFRECORD_TAIL.pack(masked_crc32c(each)) for each in (length, payload)]
    return b"".join((length, sums[0], payload, sums[1]))


def recordio_frame(payload: bytes) -> bytes:
    """Write ``payload``, less than 512 MB, as one RecordIO record of one part."""
    return RECORDIO_HEAD.pack(RECORDIO_MAGIC, len(payload)) + payload + bytes(-len(payload) % 4)


def tfrecords(stream: Readable, max_bytes: int | None = None) -> Iterator[Frame]:
    """Read every TFRecord of ``stream``, and verify both checksums.

    Raises BadInput naming record (from 1) and byte if a checksum is wrong or the stream ends
    inside a record, and PayloadTooLarge before reading one whose payload has over ``max_bytes``.
    """
    offset = 0
    number = 1
    while head := stream.read(TFRECORD_HEAD.size):
        record = f"TFRecord {number}, at byte {offset},"
        if len(head) < TFRECORD_HEAD.size:
            raise BadInput(f"{record} is cut off: the data ends inside it.")
        length, length_crc = TFRECORD_HEAD.unpack(head)
        if masked_crc32c(head[:8]) != length_crc:
            raise BadInput(
                f"{record} has a wrong checksum of its length: this is not a TFRecord file, or it is damaged."
            )
        _check_size(record, length, max_bytes)
        rest = stream.read(length + TFRECORD_TAIL.size)
        if len(rest) < length + TFRECORD_TAIL.size:
            raise BadInput(f"{record} is cut off: the data ends inside it.")
        framed = head + rest
        payload = memoryview(framed)[TFRECORD_HEAD.size : -TFRECORD_TAIL.size]
        if masked_crc32c(payload) != TFRECORD_TAIL.unpack_from(framed, len(framed) - TFRECORD_TAIL.size)[0]:
            raise BadInput(f"{record} has a wrong checksum of its data: it is damaged.")
        yield Frame(offset, framed, payload)
        offset += len(framed)
        number += 1


def recordio(stream: Readable, max_bytes: int | None = None) -> Iterator[Frame]:
    """Read every RecordIO record of ``stream``; divided ones are joined.

    Raises BadInput naming record (from 1) and byte if the magic number or the order of parts is
    wrong or the stream ends inside a record, and PayloadTooLarge before reading one of over
    ``max_bytes``.
    """
    offset = 0
    number = 1
    while head := stream.read(RECORDIO_HEAD.size):
        frame = _recordio_record(stream, head, offset, number, max_bytes)
        yield frame
        offset += len(frame.framed)
        number += 1


def _recordio_record(stream: Readable, head: bytes, offset: int, number: int, max_bytes: int | None) -> Frame:
    record = f"RecordIO record {number}, at byte {offset},"
    framed = []
    payloads = []
    size = 0
    wanted = (_WHOLE, _FIRST)
    while True:
        if len(head) < RECORDIO_HEAD.size:
            raise BadInput(f"{record} is cut off: the data ends inside it.")
        magic, word = RECORDIO_HEAD.unpack(head)
        if magic != RECORDIO_MAGIC:
            raise BadInput(f"{record} has no magic number: this is not RecordIO, or it is damaged.")
        flag = word >> _RECORDIO_LENGTH_BITS
        length = word & _RECORDIO_LENGTH_MASK
        if flag not in wanted:
            raise BadInput(f"{record} has a part out of order: the data is damaged.")
        size += length
        _check_size(record, size, max_bytes)
        padded = -(-length // 4) * 4
        body = stream.read(padded)
        if len(body) < padded:
            raise BadInput(f"{record} is cut off: the data ends inside it.")
        framed += [head, body]
        payloads.append(body[:length] if padded != length else body)
        if flag in {_WHOLE, _LAST}:
            return Frame(offset, b"".join(framed), _RECORDIO_MAGIC_BYTES.join(payloads))
        size = size + 4
        wanted = (_MIDDLE, _LAST)
        head = stream.read(RECORDIO_HEAD.size)


def _check_size(record: str, size: int, max_bytes: int | None) -> None:
    if max_bytes is not None and size > max_bytes:
        raise PayloadTooLarge(f"{record} has {size} bytes, over the limit of {max_bytes}.")
