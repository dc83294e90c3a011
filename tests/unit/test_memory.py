"""The memory of one request: what JSON becomes, and when it is too much."""

import json
import sys
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.values.errors import PayloadTooLarge
from tfs_proxy.values.memory import MemoryBudget, json_bytes

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
ONE_VALUE_BYTES = 100


def held(value: Any) -> int:
    """The bytes of a value of JSON's kinds and of all that it holds."""
    inner: list[Any] = []
    if isinstance(value, dict):
        inner = [*value.keys(), *value.values()]
    elif isinstance(value, list):
        inner = value
    return sys.getsizeof(value) + sum(held(part) for part in inner)


@given(VALUES)
def test_json_never_becomes_more_than_is_counted(value: Any) -> None:
    """The count is taken from the text alone, before there is an object."""
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    assert held(orjson.loads(body)) <= json_bytes(body) + len(body) + ONE_VALUE_BYTES


@pytest.mark.parametrize(
    "body",
    [b"[" * 6_000_000, b"[" + b"[]," * 5_000_000 + b"[]]", b'[{"a":0}' + b',{"a":0}' * 1_000_000 + b"]"],
)
def test_json_that_becomes_too_much_is_refused_unread(body: bytes) -> None:
    """The error names what it needs, what is there, and the setting."""
    with pytest.raises(
        PayloadTooLarge,
        match=r"needs \d{3} MB of memory, and 200 MB are there: TFS_PROXY_MAX_DECODED_TOTAL_MB",
    ):
        MemoryBudget(200 << 20).take_json(body)


def test_what_was_taken_counts() -> None:
    """Parts of one request share its budget."""
    budget = MemoryBudget(100)
    budget.take(60)

    with pytest.raises(PayloadTooLarge, match=r"^Record 2 needs 101 bytes of memory, and 100 bytes"):
        budget.take(41, "Record 2")
    budget.take(40)


class Counter:
    """A ledger that only counts."""

    def __init__(self) -> None:
        self.reserved = 0

    def reserve(self, size_bytes: int) -> None:
        self.reserved += size_bytes

    def release(self, size_bytes: int) -> None:
        self.reserved -= size_bytes


def test_small_requests_are_not_reserved_and_large_ones_are_given_back() -> None:
    """A ledger hears of a request from its first megabyte on."""
    counter = Counter()
    with MemoryBudget(100 << 20, counter) as budget:
        budget.take(1000)
        assert counter.reserved == 0

        budget.take(2 << 20)
        assert counter.reserved == 1000 + (2 << 20)

    assert counter.reserved == 0
