"""Where two answers differ, in the sentences of the report."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.tools.endpoint.shadows import body_difference

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@pytest.mark.parametrize(
    ("kind", "ours", "theirs", "found"),
    [
        ("application/json", '{"p": [1.0, 2.0]}', '{"p": [1.000001, 2]}', None),
        ("application/json; charset=utf-8", '{"p": [[1], [2]]}', '{"p": [[1], [3]]}', "$.p[1][0] is 2 and 3"),
        ("application/json", '{"p": [1]}', '{"p": [1, 2]}', "$.p[1] is missing and 2"),
        ("application/json", '{"p": 1}', '{"q": 1}', "$.p is 1 and missing"),
        ("application/json", '{"p": NaN}', '{"p": NaN }', None),
        ("application/json", '{"p": 1}', '{"p": true}', "$.p is 1 and true"),
        ("application/json", "[1", "[2", "byte 1 differs (of 2 and 2 bytes)"),
        ("text/csv", "a,1.0\n", "a,1\n", None),
        ("text/csv", "a,1.0\nb,2", "a,1\nb,3", "[1][1] is 2.0 and 3.0"),
        ("application/octet-stream", "abc", "ab", "byte 2 differs (of 3 and 2 bytes)"),
        ("application/json", "1" + "0" * 400, "2" + "0" * 400, "byte 0 differs (of 401 and 401 bytes)"),
    ],
)
def test_the_first_difference_is_named(kind: str, ours: str, theirs: str, found: str | None) -> None:
    assert body_difference(kind, ours.encode(), theirs.encode()) == found


def test_the_tolerance_is_chosen() -> None:
    assert body_difference("application/json", b"100", b"101") is not None
    assert body_difference("application/json", b"100", b"101", relative=0.02) is None


@given(JSON_VALUES)
def test_a_document_equals_itself_however_it_is_written(value: Any) -> None:
    assert (
        body_difference("application/json", json.dumps(value).encode(), json.dumps(value, indent=1).encode())
        is None
    )


@given(
    st.binary(max_size=50), st.binary(max_size=50), st.sampled_from(["application/json", "text/csv", "x/y"])
)
def test_any_bytes_can_be_compared(ours: bytes, theirs: bytes, kind: str) -> None:
    difference = body_difference(kind, ours, theirs)
    assert ours != theirs or difference is None
