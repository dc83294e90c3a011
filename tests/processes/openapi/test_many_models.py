"""The document of a multi-model endpoint: how its models are managed and reached."""

from pathlib import Path

import pytest
from openapi_spec_validator import validate

from support.multi_model import MultiModelStack

pytestmark = [pytest.mark.tensorflow, pytest.mark.nginx]


def test_the_document_of_an_endpoint(saved_models: Path) -> None:
    """It is there before any model, and its paths lead to those that are loaded."""
    stack = MultiModelStack()
    try:
        stack.wait_ready()
        answer = stack.ask("GET", "/openapi.json")
        stack.loaded("half", saved_models / "half_plus_two")
        paths = ("/models", "/models/{name}", "/v1/models/{model}", "/v2/models/{model}", "/v2", "/ping", "/")
        filled = [path.replace("{name}", "half").replace("{model}", "half") for path in paths]
        statuses = {path: stack.ask("GET", path).status for path in filled}
    finally:
        stack.close()

    validate(answer.json)
    assert answer.headers["content-type"] == "application/json"
    assert set(paths) <= answer.json["paths"].keys()
    assert set(statuses.values()) == {200}, statuses
