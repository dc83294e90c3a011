"""Answers as TF Serving writes them: large ones in pieces, which show nowhere."""

import json
import tracemalloc
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.data.serving_json import answer_text

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
    """The sentences are TF Serving's."""
    with pytest.raises(answer_text.NoRows, match="invalid batch size: 0"):
        answer_text.rows({"y": np.zeros((0, 2), np.float32)})
    with pytest.raises(answer_text.NoRows, match="inconsistent batch size: 2 expecting: 1"):
        answer_text.rows({"y": np.zeros(1, np.float32), "z": np.zeros(2, np.float32)})
    with pytest.raises(answer_text.NoText):
        answer_text.columns({"y": np.zeros(1, np.float16)})


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
