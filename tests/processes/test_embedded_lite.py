"""TensorFlow Lite models behind the embedded server: what their interpreter reads as it is, right or wrong."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest
import requests

from plugins_models import EmbeddedServer, serving_all
from tfs_proxy.protos.predict import model_spec, request_bytes, response_arrays

pytestmark = pytest.mark.tensorflow

EXPORT = """
import sys
from pathlib import Path
import tensorflow as tf

root = Path(sys.argv[1])

def save(name, function, spec):
    module = tf.Module()
    module.run = tf.function(function, input_signature=[spec])
    folder = root / name / "1"
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.run})
    (folder / "model.tflite").write_bytes(tf.lite.TFLiteConverter.from_saved_model(str(folder)).convert())

image = tf.TensorSpec([None, None, None, 2], tf.float32, name="x")
save("word", lambda x: {"y": x}, tf.TensorSpec([], tf.string, name="x"))
save("twice", lambda x: {"y": x * 2.0 + 1.0}, tf.TensorSpec([None, 3], tf.float32, name="x"))
save("any", lambda x: {"y": x * 2.0 + 1.0}, tf.TensorSpec([], tf.float32, name="x"))
save("pooled", lambda x: {"y": tf.nn.max_pool2d(x, 2, 2, "VALID")}, image)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """A server with all of them."""
    models = tmp_path_factory.mktemp("lite")
    subprocess.run([sys.executable, "-c", EXPORT, str(models)], check=True, capture_output=True)
    with serving_all(tmp_path_factory.mktemp("server"), models, "--prefer_tflite_model") as server:
        yield server


def predicted(server: EmbeddedServer, model: str, value: Any) -> tuple[int, Any]:
    """Status and document of a prediction by column."""
    reply = requests.post(f"{server.rest}/v1/models/{model}:predict", json={"inputs": value}, timeout=60)
    return reply.status_code, reply.json()


@pytest.mark.parametrize("text", ["a", "", "a word or two", "a\0", "\0"])
def test_a_string_without_dimensions_comes_back(server: EmbeddedServer, text: str) -> None:
    """The interpreter took the address of Python's bytes for the string."""
    assert predicted(server, "word", text) == (200, {"outputs": text})


def nested(depth: int) -> Any:
    """A number in so many lists."""
    value: Any = 1.0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("model", "value", "said"),
    [
        ("twice", [1.0], "input x must be 2-dimensional: [1]"),
        ("twice", 1.0, "input x must be 2-dimensional: []"),
        ("twice", nested(8), "input x must be 2-dimensional: [1,1,1,1,1,1,1,1]"),
        ("twice", nested(70), "input x must be 2-dimensional: ["),
        ("twice", [[1.0]], "input x must be of shape [-1,3]: [1,1]"),
        ("any", nested(8), "TensorFlow Lite takes 6 dimensions at most: [1,1,1,1,1,1,1,1]"),
        ("pooled", [[[]]], "input x must be 4-dimensional: [1,1,0]"),
        ("pooled", [[[[]]]], "input x must be of shape [-1,-1,-1,2]: [1,1,1,0]"),
    ],
)
def test_shapes_that_would_end_the_process_are_refused(
    server: EmbeddedServer, model: str, value: Any, said: str
) -> None:
    """The interpreter does not look whether a tensor is of the shape that its model was made for."""
    status, answer = predicted(server, model, value)
    assert (status, answer["error"][: len(said)]) == (400, said)
    assert predicted(server, "twice", [[1.0, 2.0, 3.0]] * 2) == (200, {"outputs": [[3.0, 5.0, 7.0]] * 2})


@pytest.mark.parametrize("shape", [(0, 4, 4, 2), (1, 0, 4, 2)])
def test_no_images_are_refused(server: EmbeddedServer, shape: tuple[int, ...]) -> None:
    """Pooling divides by how many there are; a tensor of rows may be empty."""
    with grpc.insecure_channel(server.grpc) as channel:
        run = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        with pytest.raises(grpc.RpcError) as caught:
            run(request_bytes(model_spec("pooled"), {"x": np.zeros(shape, np.float32)}), timeout=60)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert caught.value.details() == f"input x has no elements: [{','.join(map(str, shape))}]"
        answer = run(request_bytes(model_spec("twice"), {"x": np.zeros((0, 3), np.float32)}), timeout=60)
    assert response_arrays(answer)["y"].shape == (0, 3)
