"""Lines of data capture: from a request and its answer, and back."""

import json

import pytest

from tfs_proxy.data.capture import CapturedRequest, captured_request, line_of
from tfs_proxy.values.errors import BadInput


@pytest.mark.parametrize(
    ("content_type", "body", "encoding"),
    [
        ("text/csv", b"1,2\n", "CSV"),
        ("text/csv", b"\xff", "BASE64"),
        ("Application/JSON; charset=utf-8", b"[1]", "JSON"),
        ("application/jsonlines", b"{}\n{}\n", "JSON"),
        (None, b"[1]", "JSON"),
        ("not a type", b"a", "BASE64"),
        ("application/json", b"", "JSON"),
    ],
)
def test_a_request_comes_back_as_it_was(content_type: str | None, body: bytes, encoding: str) -> None:
    request = CapturedRequest(body, content_type, "a=b,c=d")
    line = line_of(request, b"", None, None)

    assert json.loads(line)["captureData"]["endpointInput"]["encoding"] == encoding
    assert list(json.loads(line)) == ["captureData", "eventMetadata", "eventVersion"]
    assert captured_request(line) == request
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b'{"captureData": 1, "eventMetadata": {}}',
        b'{"captureData": {"endpointOutput": {}}, "eventMetadata": {}}',
        b'{"captureData": {"endpointInput": {"data": 1, "encoding": "CSV"}}, "eventMetadata": {}}',
        b'{"captureData": {"endpointInput": {"data": "=", "encoding": "BASE64"}}, "eventMetadata": {}}',
    ],
)
def test_a_line_without_a_request_is_refused_unless_it_is_torn(line: bytes) -> None:
    """Only a last line can lack its end: its worker was killed."""
    with pytest.raises(BadInput, match=r"no captured request, which is in captureData\.endpointInput"):
        captured_request(line + b"\n")
    assert captured_request(line) is None
