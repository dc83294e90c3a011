"""TFRecord and RecordIO framing, against bytes written down by hand and any bytes at all."""

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.data.formats.framing import masked_crc32c, recordio, recordio_frame, tfrecord_frame, tfrecords
from tfs_proxy.values.errors import BadInput, PayloadTooLarge

Frame = Callable[[bytes], bytes]
Read = Callable[..., Iterator[Any]]

MAGIC = bytes.fromhex("0a23d7ce")
PAYLOADS = st.lists(
    st.lists(st.one_of(st.binary(max_size=40), st.just(MAGIC)), max_size=4).map(b"".join), max_size=6
)


BOTH = pytest.mark.parametrize(("frame", "read"), [(tfrecord_frame, tfrecords), (recordio_frame, recordio)])


def test_the_checksum_is_that_of_rfc_3720() -> None:
    """CRC32C of 32 zero bytes is 0x8a9136aa (RFC 3720, B.4), masked as TFRecord does."""
    crc = 0x8A9136AA
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    assert masked_crc32c(bytes(32)) == masked


@BOTH
@given(payloads=PAYLOADS)
def test_records_come_back(frame: Frame, read: Read, payloads: list[bytes]) -> None:
    data = b"".join(map(frame, payloads))
    frames = list(read(io.BytesIO(data)))
    assert [bytes(each.payload) for each in frames] == payloads
    assert b"".join(each.framed for each in frames) == data
    assert all(data[each.offset :].startswith(each.framed) for each in frames)


@given(st.binary(max_size=200), st.integers(0, 199), st.integers(1, 255))
def test_damage_is_noticed(payload: bytes, place: int, change: int) -> None:
    """One changed byte anywhere in a TFRecord is found by its checksums."""
    data = bytearray(tfrecord_frame(payload))
    data[place % len(data)] ^= change
    with pytest.raises(BadInput, match="TFRecord 1, at byte 0,"):
        list(tfrecords(io.BytesIO(bytes(data))))


@BOTH
def test_a_cut_stream(frame: Frame, read: Read) -> None:
    """A stream that ends inside its second record gives the first and then names the second."""
    data = frame(b"first") + frame(b"second")
    for cut in range(len(frame(b"first")) + 1, len(data)):
        frames = read(io.BytesIO(data[:cut]))
        assert bytes(next(frames).payload) == b"first"
        with pytest.raises(
            BadInput, match=rf"record 2, at byte {len(frame(b'first'))}, is cut off|Record 2, at"
        ):
            next(frames)


@BOTH
def test_a_record_over_the_limit(frame: Frame, read: Read) -> None:
    stream = io.BytesIO(frame(bytes(1000)))
    with pytest.raises(PayloadTooLarge, match="1000 bytes, over the limit of 999"):
        next(read(stream, 999))
    assert stream.tell() < 20


def test_parts_of_a_record() -> None:
    """As MXNet divides it where the magic number is at a word's border; one that continues nothing is damage."""
    first, middle, last = (MAGIC + (flag << 29 | 4).to_bytes(4, "little") + b"abcd" for flag in (1, 2, 3))
    (frame,) = recordio(io.BytesIO(first + middle + last))
    assert frame.payload == MAGIC.join([b"abcd"] * 3)
    for data in (middle, first + first, first + middle):
        with pytest.raises(BadInput, match=r"out of order|cut off"):
            list(recordio(io.BytesIO(data)))
