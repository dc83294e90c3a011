"""The document of a multi-model endpoint: how its models are managed and reached."""

import re
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
        known = {"{name}": "half", "{model}": "half", "{version}": "1"}
        paths = [path for path, item in answer.json["paths"].items() if "get" in item]
        filled = [re.sub("{.*?}", lambda found: known[found[0]], path) for path in paths]
        statuses = {path: stack.ask("GET", path).status for path in filled}
    finally:
        stack.close()

    validate(answer.json)
    assert answer.headers["content-type"] == "application/json"
    assert {"/models/half", "/v1/models/half", "/v2/models/half/versions/1/ready"} <= statuses.keys()
    assert not {"/invocations", "/execution-parameters"} & answer.json["paths"].keys()
    assert set(statuses.values()) == {200}, statuses
