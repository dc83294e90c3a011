"""The document of a service: valid, and its schemas are what the conversion, or the script, reads and writes."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from support.openapi import operations, resolved
from support.openapi_documents import (
    ALL,
    CLASSIFY,
    COMPLEX,
    MIXED,
    NUMBERS,
    SCALAR,
    TEXT,
    Y,
    answer_types,
    document,
    request_types,
    signature,
)
from tfs_proxy.data.registry import FORMATS
from tfs_proxy.model.openapi.bodies import (
    DescribedModel,
    ScriptBodies,
    Service,
)
from tfs_proxy.model.openapi.description import Description
from tfs_proxy.model.openapi.document import document_text


@pytest.mark.parametrize("name", ALL)
def test_it_is_valid(name: str) -> None:
    """The specification's own validator takes it, whatever the model's types and shapes are."""
    validate(document(ALL[name], CLASSIFY))


def test_every_format_that_can_be_read_is_described() -> None:
    """A model of one input of strings takes them all; each kind has one type, with an example."""
    content = request_types(document(TEXT))

    readable = [row for row in FORMATS.values() if row.decode is not None]
    assert content.keys() == {row.name for row in readable}
    assert all("examples" in described for described in content.values())


def test_types_that_a_model_can_not_take_are_left_out() -> None:
    """Pictures are for models of one string, npy for those of one input, JSON not for complex numbers."""
    assert {"image/png", "application/octet-stream"} & request_types(document(NUMBERS)).keys() == set()
    assert "application/x-npy" not in request_types(document(MIXED))
    assert set(request_types(document(COMPLEX))) == {"application/x-npy", "application/x-npz"}


@pytest.mark.parametrize("name", ["numbers", "text", "mixed", "scalar", "no rank"])
def test_examples_fit_their_schemas(name: str) -> None:
    described = document(ALL[name])
    checked = 0
    for _, _, operation in operations(described):
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        own = [content["example"]] if "example" in content else []
        for value in own + [example["value"] for example in content.get("examples", {}).values()]:
            schema = {**content["schema"], "components": described["components"]}
            Draft202012Validator(schema).validate(value)
            checked += 1
    assert checked >= 3


@pytest.mark.parametrize(
    ("body", "fits"),
    [
        ({"instances": [[1, 2, 3]]}, True),
        ({"instances": [{"x": [1.5, 2, 3]}]}, True),
        ({"inputs": [[1, 2, 3]]}, True),
        ({"inputs": {"x": [[1, 2, 3]]}}, True),
        ([[1, 2, 3], [4, 5, 6]], True),
        ([1, 2, 3], True),
        ({"instances": [[1, 2]]}, False),
        ({"instances": [["a", "b", "c"]]}, False),
        ({"instances": []}, False),
        ({"x": [[[1]]]}, False),
        ("text", False),
    ],
)
def test_the_schema_of_a_request(body: Any, fits: bool) -> None:
    described = document(NUMBERS)
    schema = request_types(described)["application/json"]["schema"]

    assert Draft202012Validator({**schema, "components": described["components"]}).is_valid(body) is fits


def test_every_error_has_one_shape() -> None:
    """Each answer from 400 on is described, as {"error": text}."""
    described = document(NUMBERS)
    for path, _, operation in operations(described):
        replies = {status: resolved(described, reply) for status, reply in operation["responses"].items()}
        assert {"200", "400", "404", "503", "504"} <= replies.keys(), path
        for status, reply in replies.items():
            if status >= "400":
                assert reply["content"]["application/json"]["schema"] == {
                    "$ref": "#/components/schemas/Error"
                }


def test_a_large_model_has_a_small_document() -> None:
    """A body of megabytes is no example; its type is described all the same."""
    picture = signature({"image": ("DT_FLOAT", (None, 500, 500, 3))}, Y)

    text = document_text(Service((DescribedModel("m", (1,), {"serving_default": picture}),), "m"))
    content = request_types(json.loads(text))

    assert len(text) < 100_000
    assert "examples" not in content["application/x-npy"]


def test_definitions_of_a_schema_find_their_place() -> None:
    """References within a script's own schema lead to components, also from two schemas with the same names."""
    point = {"$defs": {"Point": {"type": "array"}}, "items": {"$ref": "#/$defs/Point"}}
    other = {"$defs": {"Point": {"type": "object"}}, "items": {"$ref": "#/$defs/Point"}}
    description = Description(accepts={"application/json": point}, returns={"application/json": other})
    described = document(NUMBERS, script=ScriptBodies(description=description))

    validate(described)
    sent = request_types(described)["application/json"]["schema"]["items"]
    answered = answer_types(described)["application/json"]["schema"]["items"]
    assert resolved(described, sent) == {"type": "array"}
    assert resolved(described, answered) == {"type": "object"}


def test_types_of_answers() -> None:
    """npy carries one output, and what has no records is JSON, npy or npz."""
    assert "application/x-npy" in answer_types(document(NUMBERS))
    assert "application/x-npy" not in answer_types(document(MIXED))
    assert set(answer_types(document(SCALAR))) == {
        *("application/json", "application/x-npy", "application/x-npz")
    }


def test_the_limit_of_bodies() -> None:
    described = document(NUMBERS, max_payload_bytes=6_291_456, default_accept="text/csv")

    assert "6,291,456 bytes" in described["components"]["responses"]["413"]["description"]
    answered = described["paths"]["/invocations"]["post"]["responses"]["200"]
    assert answered["description"].endswith("Without Accept it is text/csv.")
