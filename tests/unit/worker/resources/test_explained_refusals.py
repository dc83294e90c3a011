"""Sentences for clients when the model server refuses tensors or does not know the model."""

import json
from typing import Any

import pytest

from support.signatures import Shape, floats
from unit.worker.resources.conftest import MakeFront

WORDS = "Matrix size-incompatible: In[0]: [1,2], In[1]: [3,4]\n\t [[{{node dense/Relu}}]]"
REFUSAL = json.dumps({"error": WORDS}).encode()
SENTENCE = 'The input "x" has shape [1, 2], expected [?, 3].'
OWN = WORDS.partition("\n")[0]
EXPLAINED = f"{SENTENCE} The model server says: {OWN}"
ATTRIBUTES = "X_Amzn_SageMaker_Custom_Attributes"


@pytest.mark.parametrize(
    "values",
    [
        '"instances": [[1, 2]]',
        '"instances": [{"x": [1, 2]}]',
        '"inputs": [[1, 2]]',
        '"inputs": {"x": [[1, 2]]}',
    ],
)
def test_a_shape_that_does_not_fit(make_front: MakeFront, values: str) -> None:
    """What the model server refuses begins with the input and both shapes."""
    front = make_front(status=400, body=REFUSAL)
    front.takes(x=("DT_FLOAT", (None, 3)))

    assert front.refusal(400, f"{{{values}}}") == EXPLAINED


@pytest.mark.parametrize(
    ("shape", "body", "status"),
    [
        ((None, 2), '{"instances": [[1, 2]]}', 400),  # the shape fits
        (None, '{"instances": [[1, 2]]}', 400),  # an unknown rank fits every shape
        ((None, 3), '{"examples": []}', 400),  # it is not TF Serving's form for predict
        ((None, 3), '{"instances": [[1, 2]]}', 500),
        ((None, 3), '{"instances": [[1, 2]]}', 503),
    ],
)
def test_what_shapes_do_not_explain(make_front: MakeFront, shape: Shape, body: str, status: int) -> None:
    """The model server's error is passed on, byte for byte."""
    script = (
        "def input_handler(data, context): return data.read().decode()\n"
        "def output_handler(response, context): return response.content\n"
    )
    front = make_front(script, status=status, body=REFUSAL)
    front.takes(x=("DT_FLOAT", shape))

    result = front.post(body)

    assert (result.status_code, result.content) == (status, REFUSAL)


@pytest.mark.parametrize(
    "script",
    [
        "def handler(data, context): return str(context.predict([[1.0, 2.0]]))",
        "def input_handler(data, context): return {'x': [[1.0, 2.0]]}",
        "def input_handler(data, context): return '{\"instances\": [[1, 2]]}'",
        "def input_handler(data, context): return {'x': [[1.0, 2.0]]}\ndef output_handler(r, c): r.outputs",
        "def output_handler(response, context): return response.content",
        "def output_handler(response, context): raise ValueError(response.text)",
    ],
)
def test_a_scripts_call(make_front: MakeFront, script: str) -> None:
    front = make_front(script, status=400, body=REFUSAL)
    front.takes(x=("DT_FLOAT", (None, 3)))

    assert front.refusal(400, '{"instances": [[1, 2]]}') == EXPLAINED


@pytest.mark.parametrize(
    ("body", "content_type"), [('{"instances": [1]}', "application/json"), ("1\n", "text/csv")]
)
def test_an_unknown_model(make_front: MakeFront, body: str, content_type: str) -> None:
    """The names of the models come before the model server's words."""
    words = "Servable not found for request: Latest(nope)"
    front = make_front(status=404, body=json.dumps({"error": words}).encode())

    assert (
        front.refusal(404, body, Content_Type=content_type, **{ATTRIBUTES: "tfs-model-name=nope"})
        == f'There is no model "nope". Models here: half. The model server says: {words}'
    )


@pytest.mark.parametrize(
    ("picture", "sentence"),
    [
        ("/9j/4AAQSkZJRg==", 'String 2 of the input "x" is base64 as text: send it as {"b64": "..."}.'),
        ({"b64": "iVBORw0KGgoAAAAN"}, 'String 2 of the input "x" is a picture that is cut off.'),
    ],
)
def test_strings_that_are_no_pictures(make_front: MakeFront, picture: Any, sentence: str) -> None:
    """Base64 as text and a file that is cut off are named, without the names of a graph."""
    words = (
        "{{function_node __inference_1}} Unknown image file format.\n\t [[{{node decode_image}}]] [Op:Call]"
    )
    front = make_front(status=400, body=json.dumps({"error": words}).encode())
    front.takes(x=("DT_STRING", (None,)))

    says = front.refusal(400, json.dumps({"instances": ["no picture", picture]}))
    assert says == f"{sentence} The model server says: Unknown image file format."
    if isinstance(picture, str):
        given = {"name": "x", "shape": [1], "datatype": "BYTES", "data": [picture]}
        says = front.refusal(400, json.dumps({"inputs": [given]}), "/v2/models/half/infer")
        assert 'send it with "parameters": {"content_type": "base64"}.' in says


def test_strings_of_more_dimensions_than_numpys_iterators_have(make_front: MakeFront) -> None:
    """The model server's refusal of them reaches the client."""
    front = make_front(status=400, body=b'{"error": "33 dimensions"}')
    front.takes(x="DT_STRING")
    given = {"name": "x", "shape": [1] * 33, "datatype": "BYTES", "data": ["YQ=="]}

    for parameters in ({}, {"content_type": "base64"}):
        document = json.dumps({"inputs": [{**given, "parameters": parameters}]})
        assert front.refusal(400, document, "/v2/models/half/infer") == "33 dimensions"


def test_a_body_for_a_signature_that_is_not_there(make_front: MakeFront) -> None:
    """The error lists the model's signatures for TF Serving's own JSON, too."""
    front = make_front(status=400, body=b'{"error": "no such signature"}')
    front.upstream.signatures = dict.fromkeys(
        ("other", "third"), front.upstream.signatures["serving_default"]
    )

    says = 'has no signature "serving_default"; its signatures are other, third. Name one: tfs-'
    assert says in front.refusal(400, '{"instances": [1]}')


def test_a_signature_that_the_body_names(make_front: MakeFront) -> None:
    front = make_front(status=400, body=REFUSAL)
    front.takes(x=("DT_FLOAT", (None, 2)))
    front.upstream.signatures = {**front.upstream.signatures, "wide": floats(None, 3)}

    assert front.refusal(400, '{"signature_name": "wide", "instances": [[1, 2]]}') == EXPLAINED


@pytest.mark.parametrize("name", ["[false]", "{}", "7", "null"])
def test_a_signature_name_that_is_no_text(make_front: MakeFront, name: str) -> None:
    """The refusal is the model server's."""
    front = make_front(status=400, body=b'{"error": "must be a string value"}')

    body = f'{{"signature_name": {name}, "inputs": [1]}}'
    assert "must be a string value" in front.refusal(400, body)
