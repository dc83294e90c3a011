"""Media types: how Content-Type is read and what Accept picks."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.data.registry import OUTPUT_TYPES, negotiate, parse_media_type
from tfs_proxy.values.errors import NotAcceptable, UnsupportedMediaType


def test_type_and_parameters_are_parsed() -> None:
    """Case, white space, quotes and empty parameters are those of RFC 9110."""
    parsed = parse_media_type('Text/CSV ; Charset="utf\\-8";; header=Present ')
    assert parsed.type == "text/csv"
    assert parsed.parameters == {"charset": "utf-8", "header": "Present"}


@pytest.mark.parametrize(
    "name", ["application/x-ndjson", "application/json-lines", "application/x-jsonlines"]
)
def test_other_names_of_json_lines(name: str) -> None:
    """The names that JSON lines go by are one type, and the name sent is kept."""
    parsed = parse_media_type(name)
    assert (parsed.type, parsed.name) == ("application/jsonlines", name)


@pytest.mark.parametrize("header", ["json", "text/", "/csv", "text/csv; =x", "text/csv; a b", 'a/b; c="d'])
def test_what_is_no_media_type(header: str) -> None:
    """A header that is no media type is refused, and named."""
    with pytest.raises(UnsupportedMediaType, match="is not a media type"):
        parse_media_type(header)


@pytest.mark.parametrize(
    ("accept", "picked"),
    [
        (None, "application/json"),
        ("", "application/json"),
        ("*/*", "application/json"),
        ("application/*", "application/json"),
        ("text/csv", "text/csv"),
        ("text/*", "text/csv"),
        ("TEXT/CSV; charset=utf-8", "text/csv"),
        ("application/json, application/jsonlines", "application/json"),
        ("application/jsonlines, application/json", "application/jsonlines"),
        ("application/jsonlines;q=0.5, text/csv;q=0.6", "text/csv"),
        ("text/csv, */*", "text/csv"),
        ("*/*, text/csv", "text/csv"),
        ("*/*;q=0.1, text/csv;q=0.2, application/json;q=0.15", "text/csv"),
        ("application/json;q=0, */*", "application/jsonlines"),
        ("application/xml, application/x-ndjson", "application/x-ndjson"),
        ("nonsense, text/csv", "text/csv"),
        ("text/csv;q=7, application/jsonlines", "application/jsonlines"),
        ("text/html, image/gif, *; q=.2, */*; q=.2", "application/json"),
        ("*;q=.2, text/csv;q=.25", "text/csv"),
        (" * ", "application/json"),
    ],
)
def test_accept_picks(accept: str | None, picked: str) -> None:
    """Quality counts first, then how specific a range is, then its place."""
    assert negotiate(accept, OUTPUT_TYPES) == picked


@pytest.mark.parametrize("accept", ["application/xml", "text/html, image/*", "*/*;q=0", "nonsense"])
def test_nothing_acceptable(accept: str) -> None:
    with pytest.raises(NotAcceptable) as refused:
        negotiate(accept, OUTPUT_TYPES)
    assert accept in str(refused.value)
    assert "application/json, application/jsonlines" in str(refused.value)


@given(st.text(max_size=60))
def test_any_header_is_read_or_refused(header: str) -> None:
    """No header text raises anything but the errors for it."""
    with contextlib.suppress(UnsupportedMediaType):
        assert "/" in parse_media_type(header).type
    with contextlib.suppress(NotAcceptable):
        assert negotiate(header, OUTPUT_TYPES) in OUTPUT_TYPES
