"""Answers as TF Serving writes them: large ones in pieces, which show nowhere."""

import json
import math
import tracemalloc
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tfs_proxy.data.serving_json import answer_text
from tfs_proxy.data.serving_json.answer_text import DOUBLE_DIGITS, FLOAT_DIGITS, decimal, decimals, digits_of

SHAPES = st.lists(st.integers(0, 4), max_size=3).map(lambda shape: (3, *shape))


def _array(shape: tuple[int, ...]) -> npt.NDArray[Any]:
    return (np.arange(prod(shape), dtype=np.float32) / 4).reshape(shape)


@given(st.lists(SHAPES, min_size=1, max_size=3), st.integers(1, 40))
def test_pieces_make_the_same_text(shapes: list[tuple[int, ...]], piece: int) -> None:
    outputs = {f"y{number}": _array(shape) for number, shape in enumerate(shapes)}
    whole, by_column = answer_text.rows(outputs), answer_text.columns(outputs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answer_text, "PIECE_ELEMENTS", piece)
        assert answer_text.rows(outputs) == whole
        assert answer_text.columns(outputs) == by_column

    rows = json.loads(whole)["predictions"]
    columns = {name: array.tolist() for name, array in outputs.items()}
    expected = [{name: column[row] for name, column in columns.items()} for row in range(3)]
    assert rows == (columns["y0"] if len(columns) == 1 else expected)
    assert json.loads(by_column)["outputs"] == (columns["y0"] if len(columns) == 1 else columns)


def test_a_column_of_any_shape_is_its_tensor() -> None:
    for array in (np.array(7), np.zeros((0, 2), np.int64), np.zeros((1, 0), np.float16)):
        assert json.loads(answer_text.columns({"y": array})) == {"outputs": array.tolist()}


def test_outputs_need_the_same_rows_and_types_that_json_has() -> None:
    """The sentences are TF Serving's; no rows at all are rows."""
    none = {"y": np.zeros((0, 2), np.float32), "z": np.zeros(0, object)}
    assert answer_text.rows(none) == answer_text.rows({"y": none["y"]}) == b'{\n    "predictions": []\n}'
    with pytest.raises(answer_text.NoRows, match="inconsistent batch size: 1 expecting: 0"):
        answer_text.rows({"y": np.zeros(0, np.float32), "z": np.zeros(1, np.float32)})
    with pytest.raises(answer_text.NoRows, match="inconsistent batch size: 2 expecting: 1"):
        answer_text.rows({"y": np.zeros(1, np.float32), "z": np.zeros(2, np.float32)})
    with pytest.raises(answer_text.NoText):
        answer_text.columns({"y": np.zeros(1, np.float16)})


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1_000_000,), (1, 1_000_000), (1000, 1000)])
def test_a_large_answer_takes_little_more_than_its_text(shape: tuple[int, ...]) -> None:
    """The text is written in pieces: Python's strings of all its numbers would take ten times as much."""
    array = _array(shape)
    tracemalloc.start()
    try:
        text = answer_text.rows({"y": array})
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak_bytes < 4 * len(text) + 40_000_000


EDGES = [0.0, -0.0, 1e-4, 1e6, 999999.5, 9.9999995, 1e9, 1e-45, 3.4028234663852886e38, math.nan, -math.inf]


@pytest.mark.parametrize(
    ("value", "as_float", "as_double"),
    [
        (1111111.0, "1111111.0", "1111111.0"),
        (0.3333333333, "0.333333343", "0.33333333329999998"),
        (1764093056.0, "1.76409306e+09", "1764093056.0"),
        (0.1, "0.1", "0.1"),
        (1e-5, "1e-05", "1e-05"),
        (9000000.0, "9e+06", "9e+06"),
        (-0.0, "-0.0", "-0.0"),
        (123456789.0, "123456792.0", "123456789.0"),
        (math.nan, "NaN", "NaN"),
        (-math.inf, "-Infinity", "-Infinity"),
    ],
)
def test_six_digits_are_written_if_they_give_the_value_back(
    value: float, as_float: str, as_double: str
) -> None:
    """Nine or seventeen if they do not, alone and among many."""
    single = float(np.float32(value))
    assert decimal(single, FLOAT_DIGITS) == as_float
    assert decimals(np.full(3, value, np.float32)) == [as_float] * 3
    assert decimal(value, DOUBLE_DIGITS) == as_double
    assert decimals(np.full(3, value)) == [as_double] * 3


def arrays(dtype: npt.DTypeLike) -> st.SearchStrategy[npt.NDArray[Any]]:
    """Arrays of numbers with many and few digits, and at the edges of each form."""
    numbers = (
        st.sampled_from(EDGES)
        | st.integers(-(10**7), 10**7).map(lambda number: number / 1000)
        | st.floats(-3e38, 3e38)
    )
    kept = numbers.map(lambda number: np.array(number, dtype).item())
    return npst.arrays(np.dtype(dtype), st.integers(1, 80), elements=kept)


@given(arrays(np.float32) | arrays(np.float64))
def test_many_numbers_are_written_as_one_is(array: npt.NDArray[Any]) -> None:
    texts = decimals(array)
    assert texts == [decimal(value, digits_of(array.dtype)) for value in array.tolist()]
    np.testing.assert_array_equal(np.array([float(text) for text in texts]).astype(array.dtype), array)
