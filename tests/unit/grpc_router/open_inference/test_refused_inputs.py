"""A request that a model server has refused, against the model's signature."""

from typing import Any

import pytest

from tfs_proxy.errors import BadInput
from tfs_proxy.grpc_router.open_inference.refused_inputs import check_against, request_id
from tfs_proxy.protos.open_inference import ModelInferRequest
from tfs_proxy.signature import PREDICT_METHOD, Signature, TensorSpec

FLOATS = TensorSpec("x:0", "DT_FLOAT", (None, 3))
TEXTS = TensorSpec("t:0", "DT_STRING", None)
SIGNATURE = Signature("serving_default", PREDICT_METHOD, {"x": FLOATS, "t": TEXTS}, {"y": FLOATS})
X = {"name": "x", "datatype": "FP32", "shape": [2, 3]}
T = {"name": "t", "datatype": "BYTES", "shape": [2]}


def message(*inputs: dict[str, Any], **fields: Any) -> bytes:
    """A request with raw contents, which are not looked at."""
    return ModelInferRequest(
        model_name="m", inputs=inputs, raw_input_contents=[b"any"] * len(inputs), **fields
    ).SerializeToString()


def test_what_fits_is_left_to_the_model_server() -> None:
    """Then it knows better why it refused."""
    check_against(message(X, T, outputs=[{"name": "y"}]), SIGNATURE)


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        ((T,), 'The input "x" is missing'),
        ((X, T, {**X, "name": "z"}), 'The input "z" is unknown'),
        (({**X, "datatype": "FP64"}, T), 'The input "x" has the datatype FP64, but the model takes FP32'),
        (({**X, "shape": [3]}, T), 'The input "x" has the shape [3], but the model takes [?, 3]'),
        (({**X, "shape": [2**30, 2**28]}, T), 'The input "x" has the shape [1073741824, 268435456]'),
    ],
)
def test_a_tensor_that_does_not_fit_is_named(inputs: tuple[dict[str, Any], ...], sentence: str) -> None:
    """By the name that clients know, with what the model takes; nothing is allocated for its shape."""
    with pytest.raises(BadInput) as caught:
        check_against(message(*inputs), SIGNATURE)
    assert sentence in str(caught.value)


def test_an_output_that_there_is_not_is_named() -> None:
    """With those that there are."""
    with pytest.raises(BadInput, match='The output "w" is unknown: the model gives y'):
        check_against(message(X, T, outputs=[{"name": "w"}]), SIGNATURE)


def test_the_id_of_a_request_that_failed() -> None:
    """The last one counts; none can be told of what is no message."""
    assert request_id(message(X, id="a")) == "a"
    assert request_id(message(X)) == ""
    assert request_id(message(X, id="a") + b"\x1a\x01b") == "b"
    assert request_id(b"\x1a\x01b\xff") == ""
