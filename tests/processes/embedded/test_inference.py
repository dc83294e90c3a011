"""Classify, regress and multi-inference on models whose signatures do not show what the graph takes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.embedded_client import ask, call, predicted
from support.model_fixtures import EmbeddedServer, Exported, serving_all
from tfs_proxy.wire import protos

pytestmark = pytest.mark.tensorflow

EXPORT = """
import sys
from pathlib import Path
import tensorflow as tf
from tensorflow.core.protobuf import meta_graph_pb2

root, v1 = Path(sys.argv[1]), tf.compat.v1
FLOAT = tf.float32.as_datatype_enum

def info(tensor):
    return meta_graph_pb2.TensorInfo(name=tensor.name, dtype=FLOAT)

def signature(method, inputs, outputs):
    shown = [{alias: info(tensor) for alias, tensor in tensors.items()} for tensors in (inputs, outputs)]
    return v1.saved_model.signature_def_utils.build_signature_def(*shown, f"tensorflow/serving/{method}")

with tf.Graph().as_default(), v1.Session() as session:
    examples = v1.placeholder(tf.string, name="tf_example")
    numbers = v1.placeholder(tf.float32, [None], name="numbers")
    x = tf.identity(v1.parse_example(examples, {"x": v1.FixedLenFeature([1], tf.float32)})["x"], name="x")
    y = tf.identity(x * v1.get_variable("a", initializer=0.5) + v1.get_variable("b", initializer=3.0), name="y")
    session.run(v1.global_variables_initializer())
    signatures = {
        "serving_default": signature("predict", {"x": x}, {"y": y}),
        "regress_x_to_y": signature("regress", {"inputs": examples}, {"outputs": y}),
        "classify_x_to_y": signature("classify", {"inputs": examples}, {"scores": y}),
        "numbers": signature("regress", {"inputs": numbers}, {"outputs": numbers + 1.0}),
    }
    builder = v1.saved_model.builder.SavedModelBuilder(str(root / "half_plus_three" / "1"))
    builder.add_meta_graph_and_variables(session, ["serve"], signature_def_map=signatures)
    builder.save()
"""


@pytest.fixture(scope="module")
def models(exported: Exported) -> Path:
    """`half_plus_three`, whose signatures say float and no shape for every tensor."""
    return exported(EXPORT)


@pytest.fixture(scope="module", params=["", "--enable_batching"])
def server(
    request: pytest.FixtureRequest, models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedServer]:
    """A server with it, with batching and without."""
    flags = [request.param] if request.param else []
    with serving_all(tmp_path_factory.mktemp("server"), models, *flags) as server:
        yield server


@pytest.mark.parametrize(
    ("method", "results"), [("regress", [3.5, 5.0]), ("classify", [[["", 3.5]], [["", 5.0]]])]
)
def test_examples_are_fed_whatever_type_is_declared(
    server: EmbeddedServer, method: str, results: list[Any]
) -> None:
    """As the sample half_plus_three declares float for the placeholder of its tf.Examples."""
    body = {"signature_name": f"{method}_x_to_y", "examples": [{"x": 1.0}, {"x": 4.0}]}
    status, answer, _ = ask(server, f"/v1/models/half_plus_three:{method}", body)
    assert (status, json.loads(answer)) == (200, {"results": results})
    assert predicted(server, "half_plus_three", [[1.0], [4.0]]) == [[3.5], [5.0]]


def test_a_placeholder_of_numbers_takes_no_examples(server: EmbeddedServer) -> None:
    body = {"signature_name": "numbers", "examples": [{"x": 1.0}]}
    status, answer, _ = ask(server, "/v1/models/half_plus_three:regress", body)
    error = json.loads(answer)["error"]
    assert (status, error) == (400, "Expects arg[0] to be float but string is provided")


def test_signatures_of_one_placeholder_share_it(server: EmbeddedServer) -> None:
    request = protos.MultiInferenceRequest()
    for method in ("regress", "classify"):
        task = request.tasks.add(method_name=f"tensorflow/serving/{method}")
        task.model_spec.name, task.model_spec.signature_name = "half_plus_three", f"{method}_x_to_y"
    for x in (1.0, 4.0):
        example = request.input.example_list.examples.add()
        example.features.feature["x"].float_list.value.append(x)
    answer = call(server, "MultiInference", request.SerializeToString())
    first, second = protos.MultiInferenceResponse.FromString(answer).results
    assert [result.value for result in first.regression_result.regressions] == [3.5, 5.0]
    assert len(second.classification_result.classifications) == 2
