"""Bodies as arrays where no signature names the types, and back."""

import io
import json
from typing import Any

import numpy as np
import pytest

from tfs_proxy.data.formats.npy import read_npy, write_npy
from tfs_proxy.data.registry import decode_array, encode_array
from tfs_proxy.values.errors import BadInput, UnsupportedMediaType


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b"[[1, 2], [3, 4]]", "application/json", [[1, 2], [3, 4]]),
        (b"[1.5]", None, [1.5]),
        (b"1,2\n3,4\n", "text/csv", [[1, 2], [3, 4]]),
        (b"1,2\n", "text/csv; charset=utf-8", [[1, 2]]),
        ("1;2", "application/csv; delimiter=;", [[1, 2]]),
        (b"a,b\n1,2\n", "text/csv; header=present", [[1, 2]]),
        (b'M,"0,5"\n', "text/csv", [["M", "0,5"]]),
        (write_npy(np.array([[1, 2]])), "application/x-npy", [[1, 2]]),
    ],
)
def test_json_csv_and_npy_become_arrays(body: bytes | str, content_type: str | None, expected: Any) -> None:
    """CSV keeps its two dimensions for one row, and its parameters count."""
    assert decode_array(body, content_type).tolist() == expected


@pytest.mark.parametrize(
    ("body", "content_type", "error", "words"),
    [
        (b"{", "application/json", BadInput, "not JSON"),
        (b"[[1], [2, 3]]", "application/json", BadInput, "not an array"),
        (b"[1]\n[2]", "application/json", BadInput, "2 JSON documents"),
        (b"1,2\n3\n", "text/csv", BadInput, "Row 2 has 1 columns, but row 1 has 2"),
        (b"\n", "text/csv", BadInput, "no records"),
        (b"a\xff", "text/csv", BadInput, "not UTF-8"),
        (b"", "image/png", UnsupportedMediaType, "image/png can't be read without an input_fn"),
    ],
)
def test_a_body_that_is_no_array_is_the_clients_mistake(
    body: bytes, content_type: str, error: type[Exception], words: str
) -> None:
    """Each error says what is wrong where."""
    with pytest.raises(error, match=words):
        decode_array(body, content_type)


class Frame:
    def __init__(self, name: str) -> None:
        setattr(self, name, lambda: np.array([[1, 2]]))


@pytest.mark.parametrize(
    ("value", "media_type", "expected"),
    [
        (np.array([[0.1, np.nan]], np.float32), "application/json", b"[[0.1,NaN]]"),
        (np.array([0.1, 2.0], np.float32), "text/csv", b"0.1\n2.0\n"),
        (np.array([["a,b", "c"]]), "text/csv", b'"a,b",c\n'),
        (np.array([[1, "x"]], object), "application/csv", b"1,x\n"),
        (np.float64(2.5), "text/csv", b"2.5\n"),
        (Frame("toarray"), "text/csv", b"1,2\n"),
        (Frame("to_numpy"), "application/json", b"[[1,2]]"),
    ],
)
def test_arrays_and_what_can_be_one_are_written(value: Any, media_type: str, expected: bytes) -> None:
    """Numbers are the shortest text of their own type, one line a record in CSV."""
    assert encode_array(value, media_type) == expected


def test_values_around_arrays_become_json() -> None:
    """Lists and objects may hold numpy's values at any depth."""
    value = {"scores": [np.float32(0.5), np.array([1, 2])], "name": "x"}

    assert json.loads(encode_array(value, "application/json")) == {"scores": [0.5, [1, 2]], "name": "x"}


def test_npy_holds_the_array() -> None:
    """Text too, as long as it is all of one kind."""
    assert read_npy(encode_array([[1, 2]], "application/x-npy")).tolist() == [[1, 2]]
    assert np.load(io.BytesIO(encode_array(["a", "bc"], "application/x-npy"))).tolist() == ["a", "bc"]
    with pytest.raises(TypeError, match="never pickled"):
        encode_array([1, {}], "application/x-npy")


def test_an_empty_cell_among_numbers_is_no_number() -> None:
    array = decode_array(b"1,,3\n", "text/csv")

    assert array.dtype == np.float64
    assert np.isnan(array).tolist() == [[False, True, False]]
