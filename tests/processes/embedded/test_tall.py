"""Tensors of more dimensions than numpy has, in models that add some to them or would not take them."""

import subprocess
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import grpc
import pytest

from support.model_fixtures import EmbeddedServer, StartServer
from tfs_proxy import protos

pytestmark = pytest.mark.tensorflow

EXPORT = """
import sys
import tensorflow as tf

class Net(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec(None, tf.float32, name="x")])
    def any(self, x):
        wider = tf.expand_dims(tf.expand_dims(x, 0), 0)
        return {"stacked": tf.stack([x, x]), "wider": wider, "pairs": tf.tensordot(x, x, 0)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def row(self, x):
        return {"y": tf.expand_dims(x, 0)}

net = Net()
tf.saved_model.save(net, sys.argv[1], signatures={"any": net.any, "row": net.row})
"""

MANY = """
import sys
import tensorflow as tf

def wider(x, times):
    for _ in range(times):
        x = tf.expand_dims(x, 0)
    return x

@tf.function(input_signature=[tf.TensorSpec(None, tf.float32, name="x")])
def run(x):
    return {f"y{number}": wider(x, number % 3) + 1 for number in range(7)}

tf.saved_model.save(tf.Module(), sys.argv[1], signatures=run)
"""


@pytest.fixture(scope="module")
def adding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SavedModel whose outputs have more dimensions than its inputs."""
    base = tmp_path_factory.mktemp("adding")
    subprocess.run([sys.executable, "-c", EXPORT, str(base / "1")], check=True, capture_output=True)
    return base


def ask(server: EmbeddedServer, signature: str, rank: int, outputs: Sequence[str] = ()) -> dict[str, int]:
    """How many dimensions the outputs have for a tensor of ``rank``, or the code of the refusal and 0."""
    request = protos.PredictRequest(output_filter=outputs)
    request.model_spec.name, request.model_spec.signature_name = "default", signature
    tensor = protos.TensorProto(dtype="DT_FLOAT", float_val=[1.0])
    for _ in range(rank):
        tensor.tensor_shape.dim.add(size=1)
    request.inputs["x"].CopyFrom(tensor)
    with grpc.insecure_channel(server.grpc) as channel:
        run = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        try:
            answer = protos.PredictResponse.FromString(run(request.SerializeToString(), timeout=60))
        except grpc.RpcError as error:
            return {error.code().name: 0}
    return {alias: len(output.tensor_shape.dim) for alias, output in answer.outputs.items()}


@pytest.mark.parametrize("flags", [[], ["--enable_batching"]])
def test_a_model_that_adds_dimensions_does_not_end_the_server(
    adding: Path, model_server: StartServer, flags: list[str]
) -> None:
    """TensorFlow's kernels would, at more than 254 of them; what is left is answered."""
    server = model_server(f"--model_base_path={adding}", *flags)
    server.wait_for(lambda: "AVAILABLE" in server.state("default"))
    for rank in (254, 253, 241):
        assert ask(server, "any", rank) == {"INVALID_ARGUMENT": 0}
    for rank in (254, 241):
        assert ask(server, "row", rank) == {"INVALID_ARGUMENT": 0}
    assert ask(server, "any", 120) == {"pairs": 240, "stacked": 121, "wider": 122}
    assert ask(server, "any", 120, ["wider", "stacked"]) == {"stacked": 121, "wider": 122}
    assert ask(server, "row", 1) == {"y": 2}


def test_any_number_of_filters_is_answered(tmp_path: Path, model_server: StartServer) -> None:
    """Each gets its own outputs, in any order, and their calls do not grow with the requests."""
    subprocess.run([sys.executable, "-c", MANY, str(tmp_path / "1")], check=True, capture_output=True)
    server = model_server(f"--model_base_path={tmp_path}")
    server.wait_for(lambda: "AVAILABLE" in server.state("default"))
    names = [f"y{number}" for number in range(7)]
    wanted = [chosen for size in (1, 2, 3, 4) for chosen in combinations(names, size)]
    assert len(wanted) > 64
    for rank, asked in ((1, wanted), (70, wanted[::9])):
        for chosen in asked:
            found = ask(server, "serving_default", rank, chosen[::-1])
            assert found == {name: rank + int(name[1:]) % 3 for name in chosen}
