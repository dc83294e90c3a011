"""The document of a service: valid, and its examples are what the conversion reads."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from support.openapi import operations, resolved, samples
from tfs_proxy.memory import MemoryBudget
from tfs_proxy.open_inference.json_request import read_request
from tfs_proxy.openapi.document import document_of, document_of_many, document_text
from tfs_proxy.openapi.service import Conversion, DescribedModel, ScriptBodies, Service
from tfs_proxy.payload.decode import decode
from tfs_proxy.payload.registry import FORMATS, parse_media_type
from tfs_proxy.payload.shapes import misfits
from tfs_proxy.script.description import Description
from tfs_proxy.signature import CLASSIFY_METHOD, PREDICT_METHOD, Signature, TensorSpec


def signature(
    inputs: Mapping[str, tuple[str, tuple[int | None, ...] | None]],
    outputs: Mapping[str, tuple[str, tuple[int | None, ...] | None]],
    name: str = "serving_default",
    method: str = PREDICT_METHOD,
) -> Signature:
    """A signature of type and shape by alias."""
    ins, outs = (
        {alias: TensorSpec(alias, dtype, shape) for alias, (dtype, shape) in specs.items()}
        for specs in (inputs, outputs)
    )
    return Signature(name, method, ins, outs)


Y = {"y": ("DT_FLOAT", (None,))}
NUMBERS = signature({"x": ("DT_FLOAT", (None, 3))}, Y)
TEXT = signature({"text": ("DT_STRING", (None,))}, Y)
MIXED = signature(
    {"a": ("DT_INT64", (None,)), "b": ("DT_STRING", (None, 2)), "c": ("DT_BOOL", (None, 1, 2))},
    {"y": ("DT_HALF", (None,)), "z": ("DT_STRING", (None, 1))},
)
SCALAR = signature({"x": ("DT_FLOAT", ())}, {"y": ("DT_FLOAT", ())})
NO_RANK = signature({"x": ("DT_DOUBLE", None)}, {"y": ("DT_DOUBLE", None)})
COMPLEX = signature({"x": ("DT_COMPLEX64", (None,))}, {"y": ("DT_COMPLEX64", (None,))})
HALF = signature({"x": ("DT_BFLOAT16", (None,))}, {"y": ("DT_UINT8", (None,))})
QUANTIZED = signature({"x": ("DT_QINT8", (None,))}, Y)
NOTHING = signature({}, Y)
CLASSIFY = signature({"inputs": ("DT_STRING", (None,))}, Y, "labels", CLASSIFY_METHOD)
ALL = {
    "numbers": NUMBERS,
    "text": TEXT,
    "mixed": MIXED,
    "scalar": SCALAR,
    "no rank": NO_RANK,
    "complex": COMPLEX,
    "half": HALF,
    "quantized": QUANTIZED,
    "nothing": NOTHING,
}


def document(*signatures: Signature, **more: Any) -> dict[str, Any]:
    """The document of a model with these signatures, all protocols published, as a client parses it."""
    model = DescribedModel("m", (1, 20), {each.name: each for each in signatures})
    service = Service((model,), "m", **{"rest_api": True, "open_inference": "model", **more})
    parsed: dict[str, Any] = json.loads(document_text(document_of(service)))
    return parsed


def request_types(described: Mapping[str, Any]) -> dict[str, Any]:
    """The Media Type Objects of requests to /invocations."""
    content: dict[str, Any] = described["paths"]["/invocations"]["post"]["requestBody"]["content"]
    return content


def answer_types(described: Mapping[str, Any]) -> dict[str, Any]:
    """The Media Type Objects of answers of /invocations."""
    content: dict[str, Any] = described["paths"]["/invocations"]["post"]["responses"]["200"]["content"]
    return content


@pytest.mark.parametrize("name", ALL)
def test_it_is_valid(name: str) -> None:
    """The specification's own validator takes it, whatever the model's types and shapes are."""
    validate(document(ALL[name], CLASSIFY))


def test_a_multi_model_endpoint() -> None:
    """Its document is valid and names no model."""
    described = document_of_many(rest_api=True, open_inference=True)

    validate(described)
    assert {"/models", "/models/{name}", "/models/{name}/invoke"} <= described["paths"].keys()
    assert {"/v1/models/{model}:predict", "/v2/models/{model}/infer"} <= described["paths"].keys()
    assert "/v2/repository/models/{model}/load" in described["paths"]


@pytest.mark.parametrize("name", ALL)
def test_examples_are_read(name: str) -> None:
    """Each body of /invocations is one that the default conversion reads, in the declared shapes."""
    for sample in samples(document(ALL[name])):
        if sample.path == "/invocations" and sample.body is not None:
            batch = decode(sample.body, parse_media_type(sample.media_type), ALL[name])
            assert misfits(batch.inputs, ALL[name]) == {}, sample.media_type


@pytest.mark.parametrize("name", ALL)
def test_examples_of_the_open_inference_protocol_are_read(name: str) -> None:
    """Both forms carry every type that the protocol has; numbers of two bytes only travel as raw bytes."""
    sent = [sample for sample in samples(document(ALL[name])) if sample.path.endswith("/m/infer")]
    for sample in sent:
        size = int(sample.headers.get("Inference-Header-Content-Length", len(sample.body or b"")))
        batch = read_request(sample.body or b"", size, MemoryBudget()).batch(ALL[name])
        assert batch.inputs.keys() == ALL[name].inputs.keys()

    types = {sample.media_type for sample in sent}
    without = {"complex": set(), "quantized": set(), "nothing": set(), "half": {"application/octet-stream"}}
    assert types == without.get(name, {"application/json", "application/octet-stream"})


def test_every_format_that_can_be_read_is_described() -> None:
    """A model of one input of strings takes them all; each type has an example, its aliases the same."""
    content = request_types(document(TEXT))

    readable = [row for row in FORMATS.values() if row.decode is not None]
    assert content.keys() == {name for row in readable for name in (row.name, *row.aliases)}
    assert all("examples" in described for described in content.values())


def test_types_that_a_model_can_not_take_are_left_out() -> None:
    """Pictures are for models of one string, npy for those of one input, JSON not for complex numbers."""
    assert {"image/png", "application/octet-stream"} & request_types(document(NUMBERS)).keys() == set()
    assert "application/x-npy" not in request_types(document(MIXED))
    assert set(request_types(document(COMPLEX))) == {
        *("application/x-npy", "application/npy", "application/x-npz", "application/npz")
    }


def test_types_of_answers() -> None:
    """npy carries one output, and what has no records is JSON."""
    assert "application/x-npy" in answer_types(document(NUMBERS))
    assert "application/x-npy" not in answer_types(document(MIXED))
    assert set(answer_types(document(SCALAR))) == {"application/json"}


@pytest.mark.parametrize("name", ["numbers", "text", "mixed", "scalar", "no rank"])
def test_examples_fit_their_schemas(name: str) -> None:
    """What is given as an example of JSON is what the schema beside it says."""
    described = document(ALL[name])
    checked = 0
    for _, _, operation in operations(described):
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        for value in _values(content):
            schema = {**content["schema"], "components": described["components"]}
            Draft202012Validator(schema).validate(value)
            checked += 1
    assert checked >= 4


def _values(content: Mapping[str, Any]) -> list[Any]:
    own = [content["example"]] if "example" in content else []
    return own + [example["value"] for example in content.get("examples", {}).values()]


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
    """It has the signature's types and shapes, in row form, column form, and as bare records."""
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
    picture = signature({"image": ("DT_FLOAT", (None, 1000, 1000, 3))}, Y)

    text = document_text(
        document_of(Service((DescribedModel("m", (1,), {"serving_default": picture}),), "m"))
    )
    content = request_types(json.loads(text))

    assert len(text) < 100_000
    assert "examples" not in content["application/x-npy"]


def test_what_is_published() -> None:
    """Protocols that are off are not described, and a script's model without a server has neither."""
    model = DescribedModel("m", (1,), {"serving_default": NUMBERS})

    assert not [path for path in document_of(Service((model,), "m"))["paths"] if path.startswith("/v")]
    assert "/metrics" not in document_of(Service((model,), "m", has_metrics=False))["paths"]


def test_a_script_reads_what_it_describes() -> None:
    """Its own words replace what the conversion would say, for requests and for answers."""
    description = Description(
        accepts={"text/plain": {"type": "string"}},
        returns={"application/json": {"type": "object", "properties": {"label": {"type": "integer"}}}},
        examples={"text/plain": b"hello"},
    )
    described = document(NUMBERS, script=ScriptBodies(description=description))

    validate(described)
    assert request_types(described) == {
        "text/plain": {"schema": {"type": "string"}, "examples": {"sample": {"value": "hello"}}}
    }
    assert answer_types(described)["application/json"]["schema"]["properties"] == {
        "label": {"type": "integer"}
    }


def test_a_script_that_says_nothing() -> None:
    """Anything may come and go; the media types that its text names are listed."""
    described = document(NUMBERS, script=ScriptBodies(mentions=("image/png", "text/csv")))

    validate(described)
    assert list(request_types(described)) == ["image/png", "text/csv", "*/*"]
    assert list(answer_types(described)) == ["*/*"]


def test_half_a_script() -> None:
    """Where the script has no half of its own, the conversion's types stand."""
    reads = document(NUMBERS, script=ScriptBodies(writes=Conversion.BY_SIGNATURE))
    writes = document(NUMBERS, script=ScriptBodies(reads=Conversion.BY_SIGNATURE))

    assert "text/csv" in answer_types(reads)
    assert list(request_types(reads)) == ["*/*"]
    assert "text/csv" in request_types(writes)
    assert list(answer_types(writes)) == ["*/*"]


def test_a_script_model() -> None:
    """Without functions of its own it takes and gives arrays in three types."""
    arrays = ScriptBodies(Conversion.OF_ARRAYS, Conversion.OF_ARRAYS)
    described = document_of(Service((), "", script=arrays))

    validate(described)
    assert {"application/json", "text/csv", "application/x-npy"} <= request_types(described).keys()
    assert {"application/json", "text/csv", "application/x-npy"} <= answer_types(described).keys()


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
