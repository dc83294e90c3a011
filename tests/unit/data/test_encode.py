"""Encoding: outputs as JSON lines and CSV, one record a line."""

import csv
import io
import json
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fake_upstream import FakeUpstream
from tfs_proxy.data.formats import outputs as outputs_of_models
from tfs_proxy.data.registry import OUTPUT_TYPES, encode, encode_values
from tfs_proxy.serving.plane import DataPlane
from tfs_proxy.values.errors import NotAcceptable
from tfs_proxy.wire.media_types import CSV, JSON_LINES
from tfs_proxy.wire.protos.tensors import numpy_type

PLANE = DataPlane(FakeUpstream())
NAN, INF = float("nan"), float("inf")


def _bytes(values: list[bytes]) -> npt.NDArray[Any]:
    return np.array(values, object)


def _floats(*values: Any) -> npt.NDArray[Any]:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("outputs", "lines", "table"),
    [
        ({"y": _floats(0.1, 16777217, 1e-7)}, "0.1\n16777216.0\n1e-7\n", "0.1\n16777216.0\n1e-7\n"),
        ({"y": _floats([1, 2], [3, 4])}, "[1.0,2.0]\n[3.0,4.0]\n", "1.0,2.0\n3.0,4.0\n"),
        ({"y": _floats([[1, 2], [3, 4]])}, "[[1.0,2.0],[3.0,4.0]]\n", "1.0,2.0,3.0,4.0\n"),
        ({"y": _floats([INF, -INF])}, "[Infinity,-Infinity]\n", "Infinity,-Infinity\n"),
        ({"y": np.array([True, False])}, "true\nfalse\n", "true\nfalse\n"),
        ({"y": _bytes(["é".encode(), b'a,"b"'])}, '"é"\n"a,\\"b\\""\n', 'é\n"a,""b"""\n'),
        ({"y": _bytes([b"\xff"])}, '{"b64":"/w=="}\n', "/w==\n"),
        ({"y_bytes": _bytes([b"abc"])}, '{"b64":"YWJj"}\n', "YWJj\n"),
        ({"y": _bytes([b""])}, '""\n', '""\n'),
        (
            {"b": np.array([1, 2]), "a": _floats([1, 2], [NAN, 4]), "c": _bytes([b"x", b"y z"])},
            '{"a":[1.0,2.0],"b":1,"c":"x"}\n{"a":[NaN,4.0],"b":2,"c":"y z"}\n',
            "1.0,2.0,1,x\nNaN,4.0,2,y z\n",
        ),
    ],
)
def test_outputs_by_record(outputs: dict[str, npt.NDArray[Any]], lines: str, table: str) -> None:
    """One line a record: bare for one output, by name or side by side for several."""
    records = len(next(iter(outputs.values())))
    assert encode(outputs, records, JSON_LINES).decode() == lines
    assert encode(outputs, records, CSV).decode() == table


@pytest.mark.parametrize("array", [_floats(1, 2, 3), np.array(1.0), _floats([1, 2])])
def test_not_one_output_per_record(array: npt.NDArray[Any]) -> None:
    with pytest.raises(NotAcceptable, match=r'"total" has (3|none|1) for 2.*ask for application/json'):
        encode({"total": array}, 2, JSON_LINES)
    with pytest.raises(NotAcceptable, match="1 for 2"):
        encode_values([1], 2, CSV)


@given(st.lists(st.lists(st.floats(width=32), min_size=3, max_size=3), min_size=1, max_size=5))
def test_floats_survive(values: list[list[float]]) -> None:
    """A float32 read back from either text is the same float32."""
    array = np.array(values, np.float32)
    lines = [json.loads(line) for line in encode({"y": array}, len(values), JSON_LINES).splitlines()]
    table = list(csv.reader(io.StringIO(encode({"y": array}, len(values), CSV).decode())))
    for read in (lines, table):
        np.testing.assert_array_equal(np.array(read).astype(np.float64).astype(np.float32), array)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=5))
def test_texts_survive(values: list[str]) -> None:
    """Any text comes back from JSON lines and from CSV."""
    array = _bytes([value.encode() for value in values])
    lines = encode({"y": array}, len(values), JSON_LINES).decode().split("\n")
    table = list(csv.reader(io.StringIO(encode({"y": array}, len(values), CSV).decode(), newline="")))
    assert [json.loads(line) for line in lines[:-1]] == values
    assert table == [[value] for value in values]


@pytest.mark.parametrize("media_type", OUTPUT_TYPES)
def test_scripts_arrays_are_written(media_type: str) -> None:
    """Lists, text, other byte orders and no records at all are written in each type."""
    for array in ([1.5], np.array(["é"]), np.array([b"x"]), np.array([1], ">i4"), np.empty((0, 2))):
        body, given = PLANE.encode({"y": np.asarray(array)}, media_type)
        assert given == media_type
        assert isinstance(body, bytes)


def test_bfloat16_is_written_as_float() -> None:
    """A type of its own in numpy, floats in every answer."""
    array = np.array([1.5], numpy_type(14))
    assert PLANE.encode({"y": array}, "text/csv")[0] == b"1.5\n"
    assert PLANE.encode({"y": array}, None)[0] == b'{"predictions":[1.5]}'


@pytest.mark.parametrize("array", [np.array([1j]), np.array([None]), np.array(["2026"], "M8[Y]")])
def test_what_text_can_not_carry(array: npt.NDArray[Any]) -> None:
    """Complex numbers, objects and dates are a 406 that names the output."""
    for media_type in ("application/json", "text/csv", "application/jsonlines"):
        with pytest.raises(NotAcceptable, match='"y"'):
            PLANE.encode({"y": array}, media_type)


def test_arrays_of_complex_numbers() -> None:
    """npy carries complex numbers."""
    body, _ = PLANE.encode({"y": np.array([1j])}, "application/x-npy")
    assert np.load(io.BytesIO(body)).tolist() == [1j]


@pytest.mark.parametrize("media_type", [CSV, JSON_LINES])
@pytest.mark.parametrize("shapes", [[(7,)], [(7, 2)], [(7, 2), (7,)], [(7, 0)]])
def test_pieces_make_the_same_body(
    media_type: str, shapes: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = [np.arange(math.prod(shape), dtype=np.float32).reshape(shape) for shape in shapes]
    outputs = {f"y{number}": array for number, array in enumerate(arrays)}
    whole = encode(outputs, 7, media_type)

    monkeypatch.setattr(outputs_of_models, "PIECE_ELEMENTS", 3)

    assert encode(outputs, 7, media_type) == whole


def test_results_of_classify_and_regress() -> None:
    """Results are JSON values a line, and in CSV the flattened labels and scores."""
    values = [[["low", 7.5], ["hi,gh", 2.5]], [["low", NAN]]]
    assert encode_values(values, 2, JSON_LINES) == b'[["low",7.5],["hi,gh",2.5]]\n[["low",NaN]]\n'
    assert encode_values(values, 2, CSV) == b'low,7.5,"hi,gh",2.5\nlow,NaN\n'
