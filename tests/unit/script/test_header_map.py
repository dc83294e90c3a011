"""Headers as scripts see them."""

import pytest

from tfs_proxy.script.values import HeaderMap


def test_upper_and_lower_case_are_the_same() -> None:
    """A header keeps the form that it was set in last."""
    headers = HeaderMap({"Content-Type": "a/b", "X-One": "1"})
    headers["CONTENT-TYPE"] = "c/d"
    del headers["x-one"]

    assert headers["content-type"] == headers.get("Content-type") == "c/d"
    assert "content-TYPE" in headers
    assert "X-One" not in headers
    assert dict(headers) == {"CONTENT-TYPE": "c/d"}
    with pytest.raises(KeyError):
        headers["X-One"]


def test_headers_are_compared_by_their_names_without_case() -> None:
    """With any mapping, in any order."""
    headers = HeaderMap({"A": "1", "B": "2"})

    assert headers == {"b": "2", "a": "1"}
    assert headers != {"a": "1"}
    assert headers != [("A", "1"), ("B", "2")]
    assert repr(headers) == "{'A': '1', 'B': '2'}"


def test_a_copy_is_changed_apart() -> None:
    """As with a dict."""
    headers = HeaderMap({"A": "1"})
    copy = headers.copy()
    copy["a"] = "2"

    assert (headers["A"], copy["A"], len(copy)) == ("1", "2", 1)
