"""Formats over HTTP: content types in and out, packed bodies, and the statuses of what is refused."""

import gzip
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

ErrorOf = Callable[[Any], str]


def _npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def test_npy_in_and_out(front: Any) -> None:
    """An array goes in, the model server gets its records, an array comes out."""
    result = front.post(_npy(np.array([1.5])), Content_Type="application/x-npy", Accept="application/x-npy")
    assert front.upstream.calls[0].json == {"instances": [1.5]}
    assert (result.status_code, result.headers["content-type"]) == (200, "application/x-npy")
    assert np.load(io.BytesIO(result.content)).tolist() == [2.5]


def test_accept_by_quality(front: Any) -> None:
    """The best quality that can be given wins, npz among them."""
    accept = "image/png, application/x-npz;q=0.9, text/csv;q=0.5"
    result = front.post(b"1\n", Content_Type="text/csv", Accept=accept)
    assert result.headers["content-type"] == "application/x-npz"
    with np.load(io.BytesIO(result.content)) as arrays:
        assert arrays["y"].tolist() == [2.5]


def test_packed_bodies(front: Any) -> None:
    """A gzip body is converted, or passed on unpacked, as its content type says."""
    for body, media_type in ((b"1\n", "text/csv"), (b'{"instances": [1.0]}', "application/json")):
        result = front.post(gzip.compress(body), Content_Type=media_type, Content_Encoding="gzip")
        assert result.status_code == 200
        assert front.upstream.calls[-1].json == {"instances": [1.0]}


@pytest.mark.parametrize(
    ("body", "headers", "status", "says"),
    [
        (
            gzip.compress(bytes(1001), mtime=0),
            {"Content_Encoding": "gzip"},
            413,
            "unpacks to over 1000 bytes",
        ),
        (b"[1]", {"Content_Encoding": "gzip"}, 400, "not gzip"),
        (b"[1]", {"Content_Encoding": "br"}, 415, "only gzip"),
        (b"x", {"Content_Type": "application/octet-stream"}, 415, "script"),
        (b"x", {"Content_Type": "image/png"}, 415, "script"),
        (b"x", {"Content_Type": "image/gif"}, 415, "image/gif can't be read"),
        (
            b'{"instances": [1.0]}',
            {"Content_Type": "application/x-www-form-urlencoded"},
            415,
            "curl -d sends it by default: add -H 'Content-Type: application/json'.",
        ),
        (b"x", {"Content_Type": "application/x-npy"}, 400, "not an npy file"),
        (b"x", {"Content_Type": "application/x-npz"}, 400, "not an npz archive"),
        (b"x", {"Content_Type": "application/x-tfrecord"}, 400, "TFRecord 1, at byte 0"),
        (b"\xff", {"Content_Type": "application/x-recordio-protobuf"}, 400, "no RecordIO"),
        (b"1;x", {"Content_Type": "text/csv; delimiter=;"}, 400, "Row 1, column 2"),
        (_npy(np.array(["a"])), {"Content_Type": "application/x-npy"}, 400, "is strings, but DT_FLOAT takes"),
        (_npy(np.array([True])), {"Content_Type": "application/x-npy"}, 400, "is bool, but DT_FLOAT takes"),
        (b'["a"]', {"Content_Type": "application/jsonlines"}, 400, '"a" is a string, but DT_FLOAT takes'),
        (b'{"x": "1"}', {}, 400, '"1" is a string, but DT_FLOAT takes numbers'),
        (
            b"a",
            {"Content_Type": "text/csv"},
            400,
            '"a" can\'t be read: the column takes numbers (input "x" is DT_FLOAT)',
        ),
    ],
)
def test_refusals(
    front: Any, error_of: ErrorOf, body: bytes, headers: dict[str, str], status: int, says: str
) -> None:
    """Each is an error in JSON that says what is wrong, and the model server isn't asked to predict."""
    result = front.post(body, **headers)
    assert result.status_code == status
    assert says in error_of(result)
    assert not front.upstream.calls


def test_npz_bombs_are_too_large(front: Any) -> None:
    """What unpacks to over the limit of decoded values is a 413."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, x=np.zeros(4001, np.uint8))
    assert front.post(buffer.getvalue(), Content_Type="application/x-npz").status_code == 413
