"""Content-Encoding: gzip bodies within and over the limit, whole and damaged."""

import gzip
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.values.errors import BadInput, PayloadTooLarge, RequestError, UnsupportedMediaType
from tfs_proxy.wire.packed_body import LEAST_PACKED_BYTES, decoded_body, packed

LIMIT_BYTES = 100_000


@given(
    st.lists(st.binary(max_size=300), min_size=1, max_size=4), st.sampled_from(["gzip", "x-gzip", " GZip "])
)
def test_what_was_packed_comes_back(parts: list[bytes], name: str) -> None:
    """One member or several are one body."""
    assert decoded_body(b"".join(map(gzip.compress, parts)), name, LIMIT_BYTES) == b"".join(parts)


@given(st.binary(max_size=300))
def test_deflate(body: bytes) -> None:
    packed_once = zlib.compress(body)
    assert decoded_body(packed_once, "Deflate", LIMIT_BYTES) == body
    for broken in (packed_once[:-1], packed_once + b"x"):
        with pytest.raises(BadInput, match="deflate body"):
            decoded_body(broken, "deflate", LIMIT_BYTES)
    with pytest.raises(PayloadTooLarge, match="deflate body unpacks to over 10 bytes"):
        decoded_body(zlib.compress(bytes(11)), "deflate", 10)


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip", "gzip"),
        ("deflate", "deflate"),
        ("gzip, deflate, br", "gzip"),
        ("gzip;q=0.5, deflate", "deflate"),
        ("gzip;q=0", None),
        ("identity", None),
        ("*", None),
        ("br", None),
        ("", None),
        (None, None),
        ("gzip;q=x", None),
    ],
)
def test_answers_are_packed_as_the_client_takes_them(accepted: str | None, encoding: str | None) -> None:
    """Small ones stay as they are."""
    body = b"ab" * LEAST_PACKED_BYTES

    sent, name = packed(body, accepted)

    assert name == encoding
    assert decoded_body(sent, name, len(body)) == body
    assert packed(b"ab", accepted) == (b"ab", None)


def test_bombs() -> None:
    """More than the limit is refused, by its declaration or, where that is false, as it unpacks."""
    bomb = gzip.compress(bytes(LIMIT_BYTES + 1))
    lying = gzip.compress(bytes(3 << 20))[:-4] + bytes(4)
    parted = gzip.compress(bytes(LIMIT_BYTES)) + gzip.compress(b"x")
    for body in (bomb, lying, parted):
        with pytest.raises(PayloadTooLarge, match="100000 bytes"):
            decoded_body(body, "gzip", LIMIT_BYTES)


def test_many_members() -> None:
    """A body of nothing but empty members is refused before it takes long."""
    with pytest.raises(BadInput, match="10000 members"):
        decoded_body(gzip.compress(b"") * 10_001, "gzip", LIMIT_BYTES)


def test_damaged() -> None:
    whole = gzip.compress(b"[1, 2, 3]")
    for body, says in (
        (b"[1]", "not gzip"),
        (whole[:-9], "cut off"),
        (whole[:5], "cut off"),
        (whole + b"x" * 20, "not gzip"),
        (zlib.compress(b"x"), "not gzip"),
        (whole[:-5] + b"x" + whole[-4:], "not gzip, or damaged"),
    ):
        with pytest.raises(BadInput, match=says):
            decoded_body(body, "gzip", LIMIT_BYTES)
    assert decoded_body(b"", "gzip", LIMIT_BYTES) == b""


@given(st.binary(max_size=60), st.integers(0, 60))
def test_random_bytes(junk: bytes, place: int) -> None:
    """Damage anywhere raises nothing but a RequestError."""
    whole = gzip.compress(bytes(1000) + b"end")
    for body in (junk, whole[:place] + junk + whole[place + len(junk) :]):
        with suppress(RequestError):
            assert len(decoded_body(body, "gzip", LIMIT_BYTES)) <= LIMIT_BYTES


@pytest.mark.parametrize("size", [1, 65_536, 1 << 20, (1 << 20) + 1, 5 << 20])
def test_large_bodies(size: int) -> None:
    """Bodies of many pieces, also where a piece ends with the data."""
    body = (bytes(range(251)) * (size // 251 + 1))[:size]
    assert decoded_body(gzip.compress(body), "gzip", size) == body
    assert decoded_body(gzip.compress(bytes(size)), "gzip", size) == bytes(size)


def test_no_encoding() -> None:
    """None, an empty one, identity and a charset leave the body as it is."""
    for encoding in (None, "", "identity", " , ", "UTF-8"):
        assert decoded_body(b"x", encoding, 1) == b"x"


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "gzip, br", "deflate, gzip"])
def test_other_encodings(encoding: str) -> None:
    """Any other is a 415 that says what is read."""
    with pytest.raises(UnsupportedMediaType, match="only gzip"):
        decoded_body(b"", encoding, 1)
