"""POST /invocations without a script, and with half of one: what the recorded behaviours ask for."""

from collections.abc import Callable
from typing import Any

import falcon.testing
import pytest

from tfs_proxy.values.signature import Target

ErrorOf = Callable[[falcon.testing.Result], str]
ATTRIBUTES = "X_Amzn_SageMaker_Custom_Attributes"


def test_csv_of_mixed_types(front: Any, error_of: ErrorOf) -> None:
    """Text in a numeric column is the client's mistake, and the place is named."""
    result = front.post('1.0,hello,"world,earth"', Content_Type="text/csv")

    assert result.status_code == 400
    assert "row 1" in error_of(result).lower()


def test_target_from_attributes(front: Any) -> None:
    """Model, version and signature come from the custom attributes."""
    front.post('{"instances": [1]}', **{ATTRIBUTES: "tfs-model-name=other,tfs-model-version=2,trace=x"})

    assert front.upstream.calls[0].target == Target("other", version=2)


@pytest.mark.parametrize("attributes", ["tfs-model-version=x", "tfs-model-name=../etc", "tfs-method=explain"])
def test_malformed_attributes(front: Any, error_of: ErrorOf, attributes: str) -> None:
    """A malformed attribute is 400 and named."""
    result = front.post('{"instances": [1]}', **{ATTRIBUTES: attributes})

    assert result.status_code == 400
    assert attributes.partition("=")[0] in error_of(result)


@pytest.mark.parametrize(
    ("accept", "content_type", "text"),
    [
        ("application/jsonlines", "application/jsonlines", "2.5\n3.0\n"),
        ("text/csv", "text/csv", "2.5\n3.0\n"),
        ("application/jsonlines, application/json", "application/jsonlines", "2.5\n3.0\n"),
        ("application/json, application/jsonlines", "application/json", '{"predictions": [2.5, 3.0]}'),
        ("*/*", "application/json", '{"predictions": [2.5, 3.0]}'),
    ],
)
def test_accept(front: Any, accept: str, content_type: str, text: str) -> None:
    """Accept chooses the form of the answer, one record a line but in JSON."""
    front.says.body = b'{"predictions": [2.5, 3.0]}'

    result = front.post('{"instances": [1.0, 2.0]}', Accept=accept)

    assert result.headers["content-type"] == content_type
    assert result.text.replace("\r\n", "\n") == text


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"Content_Type": "application/x-unsupported"}, "x", 415),
        ({"Content_Type": "/"}, "x", 415),
        ({"Accept": "image/png"}, '{"instances": [1]}', 406),
        ({}, "", 400),
        ({}, "whatever", 400),
        ({"Content_Type": "text/csv"}, "", 400),
    ],
)
def test_bad_requests(front: Any, error_of: ErrorOf, headers: dict[str, str], body: str, status: int) -> None:
    """The client's mistakes are 4xx, each with a text."""
    result = front.post(body, **headers)

    assert result.status_code == status
    assert error_of(result)


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_model_server_errors(make_front: Callable[..., Any], error_of: ErrorOf, status: int) -> None:
    """The model server's own errors go out with their status and text."""
    front = make_front(status=status, body=b'{"error": "no such thing"}')

    result = front.post('{"instances": [1]}')

    assert (result.status_code, error_of(result)) == (status, "no such thing")


def test_only_input_handler(make_front: Callable[..., Any]) -> None:
    """With input_handler alone the answer is converted as it is without a script."""
    front = make_front("def input_handler(data, context): return '{\"instances\": [1.0]}'")

    result = front.post("pixels", Content_Type="image/png", Accept="text/csv")

    assert (result.headers["content-type"], result.text.strip()) == ("text/csv", "2.5")
    assert front.upstream.calls[0].body == b'{"instances": [1.0]}'


def test_only_output_handler(make_front: Callable[..., Any]) -> None:
    """With output_handler alone the request is converted as it is without a script."""
    front = make_front(
        "def output_handler(response, context):\n"
        "    return f\"{response.json()['predictions'][0]:.1f}\", 'text/plain'"
    )

    result = front.post("1.0", Content_Type="text/csv", Accept="text/plain")

    assert (result.headers["content-type"], result.text) == ("text/plain", "2.5")
    assert front.upstream.calls[0].batch.records == 1


@pytest.mark.parametrize("name", ["[false]", "{}", "7", "null"])
def test_a_signature_name_that_is_no_text(make_front: Any, name: str) -> None:
    """The model server refuses it, and so do we, in its words."""
    front = make_front(status=400, body=b'{"error": "must be a string value"}')

    result = front.post(f'{{"signature_name": {name}, "inputs": [1]}}')

    assert result.status_code == 400
    assert "must be a string value" in result.json["error"]
