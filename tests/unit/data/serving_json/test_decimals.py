"""Numbers in the digits that TF Serving writes them in."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from tfs_proxy.data.serving_json.answer_text import DOUBLE_DIGITS, FLOAT_DIGITS, decimal, decimals, digits_of

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
