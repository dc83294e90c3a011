"""The quick reader of plain numbers takes nothing that is not exactly one JSON list of them."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tfs_proxy.data.serving_json.numbers import json_array, parse
from tfs_proxy.values.memory import MemoryBudget
from tfs_proxy.values.signature import TensorSpec

FLOATS = TensorSpec("x", "DT_FLOAT", None)
WHOLES = TensorSpec("x", "DT_INT64", None)
SEED = "[[1,2,3],[4.5,5,-6]]"


@given(st.text(alphabet="[],0123.-e \n", max_size=30))
@example("[1]2")
@example("1[2]")
@example("[1,2]3")
@example("7[[1,2,3],[4,5,6]]")
@example("[[1,2,3],[4,5,6]]7")
@example("[[1]2,[3]]")
@example("[1[,2,3],[4,5,6]]")
@example("[[1,2]3]")
@example("[[1][,2]]")
def test_what_is_no_json_is_not_read(text: str) -> None:
    """Digits beside brackets never melt together; what is read is what the standard library reads."""
    check(text)


@given(st.lists(st.tuples(st.integers(0, len(SEED)), st.sampled_from("[],0123.-e ")), max_size=3), st.data())
def test_nearly_json_is_not_read(inserted: list[tuple[int, str]], data: st.DataObject) -> None:
    """A list with characters put in and taken out."""
    text = SEED
    for position, character in inserted:
        text = text[:position] + character + text[position:]
    if data.draw(st.booleans()) and text:
        position = data.draw(st.integers(0, len(text) - 1))
        text = text[:position] + text[position + 1 :]
    check(text)


def check(text: str) -> None:
    """The quick reader agrees with json, or leaves the text alone."""
    for spec in (FLOATS, WHOLES):
        array = json_array(text.encode(), spec, MemoryBudget())
        if array is not None:
            np.testing.assert_array_equal(array, np.array(json.loads(text), array.dtype))


def document(number: int, size: int = 400_000) -> bytes:
    """A list of equal numbers, over a megabyte if there are so many."""
    return b"[%b]" % b",".join([b"%d" % number] * size)


@pytest.mark.parametrize("size", [400_000, 900_000])
def test_a_document_outlives_the_next_one(size: int) -> None:
    """The second is parsed anew; after that the parser takes another."""
    first, second = parse(document(100, size)), parse(document(200, size))

    assert (first[size - 1], second[size - 1]) == (100, 200)
    del first
    assert parse(document(300, size))[0] == 300


def test_threads_do_not_meet() -> None:
    """Each sees the document that it has given."""

    def last(number: int) -> int:
        value: int = parse(document(number))[399_999]
        return value

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(last, range(100, 132))) == list(range(100, 132))
