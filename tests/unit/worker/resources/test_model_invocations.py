"""POST /invocations without a script, and with half of one, by the recorded behaviours."""

from collections.abc import Callable
from typing import Any

import falcon.testing
import pytest

from tfs_proxy.values.signature import Target

ErrorOf = Callable[[falcon.testing.Result], str]
ATTRIBUTES = "X_Amzn_SageMaker_Custom_Attributes"


def test_target_from_attributes(front: Any) -> None:
    """Model, version and signature come from the custom attributes."""
    front.post('{"instances": [1]}', **{ATTRIBUTES: "tfs-model-name=other,tfs-model-version=2,trace=x"})

    assert front.upstream.calls[0].target == Target("other", version=2)


@pytest.mark.parametrize("attributes", ["tfs-model-version=x", "tfs-model-name=../etc", "tfs-method=explain"])
def test_malformed_attributes(front: Any, error_of: ErrorOf, attributes: str) -> None:
    """The error names the attribute."""
    result = front.post('{"instances": [1]}', **{ATTRIBUTES: attributes})

    assert result.status_code == 400
    assert attributes.partition("=")[0] in error_of(result)


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_model_server_errors(make_front: Callable[..., Any], error_of: ErrorOf, status: int) -> None:
    """Status and text are the model server's."""
    front = make_front(status=status, body=b'{"error": "no such thing"}')

    result = front.post('{"instances": [1]}')

    assert (result.status_code, error_of(result)) == (status, "no such thing")


def test_only_output_handler(make_front: Callable[..., Any]) -> None:
    front = make_front(
        "def output_handler(response, context):\n"
        "    return f\"{response.json()['predictions'][0]:.1f}\", 'text/plain'"
    )

    result = front.post("1.0", Content_Type="text/csv", Accept="text/plain")

    assert (result.headers["content-type"], result.text) == ("text/plain", "2.5")
    assert front.upstream.calls[0].batch.records == 1


@pytest.mark.parametrize("name", ["[false]", "{}", "7", "null"])
def test_a_signature_name_that_is_no_text(make_front: Any, name: str) -> None:
    """The refusal is the model server's."""
    front = make_front(status=400, body=b'{"error": "must be a string value"}')

    result = front.post(f'{{"signature_name": {name}, "inputs": [1]}}')

    assert result.status_code == 400
    assert "must be a string value" in result.json["error"]


def test_only_input_handler(make_front: Callable[..., Any]) -> None:
    front = make_front("def input_handler(data, context): return '{\"instances\": [1.0]}'")

    result = front.post("pixels", Content_Type="image/png", Accept="text/csv")

    assert (result.headers["content-type"], result.text.strip()) == ("text/csv", "2.5")
    assert front.upstream.calls[0].body == b'{"instances": [1.0]}'
