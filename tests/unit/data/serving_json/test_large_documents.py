"""Documents over a megabyte share one parser, which gives way as long as what it has parsed is in use."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tfs_proxy.data.serving_json.numbers import parse


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
