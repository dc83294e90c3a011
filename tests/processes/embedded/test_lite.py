"""TensorFlow Lite models behind the embedded server: what their interpreter reads as it is, right or wrong."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from support.embedded_client import ask, predict, predict_arrays
from support.grpc_calls import refusal
from support.model_fixtures import EmbeddedServer, Exported, serving_all

pytestmark = pytest.mark.tensorflow

EXPORT = """
import sys
from pathlib import Path
import tensorflow as tf
from flatbuffers import flexbuffers
from tensorflow.core.protobuf import meta_graph_pb2
from tensorflow.lite.python import schema_py_generated as schema
from tensorflow.lite.tools import flatbuffer_utils

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
weights = tf.constant([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
save("dense", lambda x: {"y": tf.matmul(x, weights)}, tf.TensorSpec([None, 3], tf.float32, name="x"))
save("power", lambda x: {"y": tf.pow(x, 2.0)}, tf.TensorSpec([None, 3], tf.float32, name="x"))
save("turned", lambda x: {"y": tf.transpose(x)}, tf.TensorSpec([None, 3], tf.float32, name="x"))

class Serialized(bytes):
    def encode(self, _):
        return bytes(self)

def with_signatures(name, signatures):
    found = flexbuffers.Builder()
    with found.Map():
        for key, value in signatures.items():
            found.String(key, Serialized(value))
    model = flatbuffer_utils.read_model(str(root / "twice" / "1" / "model.tflite"))
    holder, entry = schema.BufferT(), schema.MetadataT()
    holder.data = list(found.Finish())
    entry.name, entry.buffer = "signature_defs_metadata", len(model.buffers)
    model.buffers.append(holder)
    model.metadata.append(entry)
    (root / name / "1").mkdir(parents=True)
    flatbuffer_utils.write_model(model, str(root / name / "1" / "model.tflite"))

def signature(method, inputs, outputs):
    message = meta_graph_pb2.SignatureDef(method_name=f"tensorflow/serving/{method}")
    for shown, names in ((message.inputs, inputs), (message.outputs, outputs)):
        for alias, name in names.items():
            shown[alias].name, shown[alias].dtype = name, tf.float32.as_datatype_enum
    return message.SerializeToString()

details = tf.lite.Interpreter(str(root / "twice" / "1" / "model.tflite"))
x, y = (listed[0]["name"] for listed in (details.get_input_details(), details.get_output_details()))
with_signatures("described", {
    "serving_default": signature("predict", {"features": x}, {"score": y}),
    "older": signature("predict", {"rows": x}, {"result": y + ("" if ":" in y else ":0")}),
})
with_signatures("astray", {"serving_default": signature("predict", {"features": "nowhere:0"}, {"score": y})})
with_signatures("garbled", {"serving_default": b"\\xff\\xff"})
"""


@pytest.fixture(scope="module")
def server(exported: Exported, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    flags = ("--prefer_tflite_model", "--max_num_load_retries=0")
    folder = tmp_path_factory.mktemp("server")
    with serving_all(folder, exported(EXPORT), *flags, until=("AVAILABLE", "END")) as server:
        yield server


def predicted(server: EmbeddedServer, model: str, value: Any) -> tuple[int, Any]:
    status, body, _ = ask(server, f"/v1/models/{model}:predict", {"inputs": value})
    return status, json.loads(body)


@pytest.mark.parametrize("text", ["a", "", "a word or two", "a\0", "\0"])
def test_a_string_without_dimensions_comes_back(server: EmbeddedServer, text: str) -> None:
    assert predicted(server, "word", text) == (200, {"outputs": text})


def nested(depth: int) -> Any:
    value: Any = 1.0
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("model", "value", "said"),
    [
        ("turned", [1.0], "input x must be 2-dimensional: [1]"),
        ("turned", 1.0, "input x must be 2-dimensional: []"),
        ("power", nested(5), "input x must be 2-dimensional: [1,1,1,1,1]"),
        ("twice", nested(8), "input x must be 2-dimensional: [1,1,1,1,1,1,1,1]"),
        ("twice", nested(70), 'Input "x" nests deeper than 64 levels'),
        ("turned", [[1.0]], "input x must be of shape [-1,3]: [1,1]"),
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


@pytest.mark.parametrize(
    ("model", "value", "outputs"),
    [
        ("twice", [1.0, 2.0], [3.0, 5.0]),
        ("twice", 1.0, 3.0),
        ("twice", [[1.0]], [[3.0]]),
        ("twice", [[[1.0], [2.0]]], [[[3.0], [5.0]]]),
        ("power", nested(4), nested(4)),
        ("dense", [1.0, 2.0, 3.0], [[4.0, 5.0]]),
    ],
)
def test_another_shape_than_declared_is_computed(
    server: EmbeddedServer, model: str, value: Any, outputs: Any
) -> None:
    """A model of operations that look at their input's shape is resized for it, and back again."""
    assert predicted(server, model, value) == (200, {"outputs": outputs})
    assert predicted(server, model, [[1.0, 1.0, 1.0]])[0] == 200


def test_a_shape_that_an_operation_refuses(server: EmbeddedServer) -> None:
    status, answer = predicted(server, "dense", [1.0, 2.0])
    assert status == 400
    assert "failed to prepare" in answer["error"]
    assert predicted(server, "dense", [[1.0, 2.0, 3.0]]) == (200, {"outputs": [[4.0, 5.0]]})


def test_signatures_of_the_metadata_are_served(server: EmbeddedServer) -> None:
    """They name the tensors as TF Serving reads them, `:0` behind a name or not."""
    assert predicted(server, "described", [[1.0, 2.0, 3.0]]) == (200, {"outputs": [[3.0, 5.0, 7.0]]})
    body = {"signature_name": "older", "inputs": {"rows": [[1.0]]}}
    assert predict(server, "described", body) == {"outputs": [[3.0]]}
    shown = server.ask("GET", "/v1/models/described/metadata").json["metadata"]["signature_def"][
        "signature_def"
    ]
    assert {name: [*each["inputs"], *each["outputs"]] for name, each in shown.items()} == {
        "serving_default": ["features", "score"],
        "older": ["rows", "result"],
    }


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("astray", "Unknown tensor 'nowhere:0'.\n\tSignature input features references an unknown tensor"),
        (
            "garbled",
            "Invalid SignatureDefs found in TfLite model: Cannot parse signature def found in flatbuffer.",
        ),
    ],
)
def test_signatures_that_fit_no_tensors_fail_the_load(server: EmbeddedServer, model: str, said: str) -> None:
    (version,) = server.ask("GET", f"/v1/models/{model}").json["model_version_status"]
    assert (version["state"], version["status"]["error_message"]) == ("END", said)


@pytest.mark.parametrize("shape", [(0, 4, 4, 2), (1, 0, 4, 2)])
def test_no_images_are_refused(server: EmbeddedServer, shape: tuple[int, ...]) -> None:
    refused = refusal(lambda: predict_arrays(server, "pooled", {"x": np.zeros(shape, np.float32)}))
    assert refused == ("INVALID_ARGUMENT", f"input x has no elements: [{','.join(map(str, shape))}]")
    assert predict_arrays(server, "twice", {"x": np.zeros((0, 3), np.float32)})["y"].shape == (0, 3)
