"""A tensor of the wrong rank or of no channels must not end the embedded server, whatever kernels TensorFlow has."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from support.embedded_client import ask, call
from support.model_fixtures import EmbeddedServer, Exported, Serve, serving_one
from tfs_proxy.wire import protos

pytestmark = pytest.mark.tensorflow

PREDICT = "/v1/models/m:predict"

EXPORT = """
import sys
import tensorflow as tf

class Net(tf.Module):
    def __init__(self):
        self.kernel = tf.Variable(tf.ones([3, 3, 1, 2]))
        self.groups = tf.Variable(tf.ones([3, 3, 2, 6]))

    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 1], tf.float32, name="image")])
    def run(self, image):
        hidden = tf.nn.relu(tf.nn.conv2d(image, self.kernel, 1, "SAME"))
        return {"score": tf.reduce_sum(tf.nn.max_pool2d(hidden, 2, 2, "VALID"), [1, 2, 3])}

    @tf.function(input_signature=[tf.TensorSpec([None, 8, 8, 6], tf.float32, name="image")])
    def grouped(self, image):
        return {"hidden": self.compiled(image)}

    @tf.function(jit_compile=True)
    def compiled(self, image):
        return tf.nn.conv2d(image, self.groups, 1, "SAME")

    @tf.function(input_signature=[tf.TensorSpec([None] * 4, tf.float32, name="image")])
    def undeclared(self, image):
        return {"hidden": self.compiled(image)}

net = Net()
signatures = {"serving_default": net.run, "grouped": net.grouped, "undeclared": net.undeclared}
tf.saved_model.save(net, sys.argv[1] + "/net/1", signatures=signatures)
"""


@pytest.fixture(scope="module")
def convolution(exported: Exported) -> Path:
    return exported(EXPORT) / "net"


@pytest.fixture(scope="module", params=[[], ["--enable_batching"]], ids=["plain", "batching"])
def server(
    request: pytest.FixtureRequest, convolution: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedServer]:
    """A server of that model, without batching and with it."""
    with serving_one(tmp_path_factory.mktemp("server"), convolution, *request.param) as started:
        yield started


def test_the_graphs_own_shapes_count_where_signatures_tell_none(
    convolution: Path, serve: Serve, tmp_path: Path
) -> None:
    """A signature without shapes refuses no image that the graph takes, and a wrong rank is still a 400."""
    target = tmp_path / "shapeless"
    shutil.copytree(convolution, target)
    file = target / "1" / "saved_model.pb"
    saved = protos.SavedModel.FromString(file.read_bytes())
    for signature in saved.meta_graphs[0].signature_def.values():
        for info in (*signature.inputs.values(), *signature.outputs.values()):
            info.ClearField("tensor_shape")
    file.write_bytes(saved.SerializeToString())
    server = serve(target, name="m")

    assert b"tensor_shape" not in ask(server, "/v1/models/m/metadata")[1]
    refuses_wrong_ranks(server)


def refuses_wrong_ranks(server: EmbeddedServer) -> None:
    """Images are answered, and what has another rank is a 400 that does not end the server."""
    image = [[[0.5]] * 8] * 8
    for instances in ([1.0], [[1.0, 2.0]], image, [[image]]):
        status, body, _ = ask(server, PREDICT, {"instances": instances})
        assert status == 400, body
        assert "error" in json.loads(body)
    assert ask(server, PREDICT, {"instances": [image, image]})[0] == 200
    assert server.process.poll() is None


def test_wrong_ranks_and_sizes_are_400_and_the_server_lives(server: EmbeddedServer) -> None:
    """oneDNN's kernels would end the process, and so would XLA's where a size of the model's is nought."""
    refuses_wrong_ranks(server)
    assert ask(server, PREDICT, {"inputs": []})[0] == 400
    channels = {"signature_name": "grouped", "instances": [[[[1.0] * 6] * 8] * 8]}
    nothing = {"signature_name": "grouped", "instances": [[[[]] * 8] * 8]}
    assert ask(server, PREDICT, channels)[0] == 200
    assert ask(server, PREDICT, nothing)[0] == 400
    assert ask(server, PREDICT, channels)[0] == 200


def test_no_channels_where_none_are_declared(server: EmbeddedServer) -> None:
    """They are refused where XLA compiles a convolution; an empty batch or an empty image is not."""
    statuses = [
        asked(server, sizes)
        for sizes in ([1, 8, 8, 6], [1, 8, 8, 0], [0, 8, 8, 6], [1, 0, 8, 6], [1, 8, 8, 6])
    ]
    assert statuses == ["OK", "INVALID_ARGUMENT", "OK", "OK", "OK"]


def asked(server: EmbeddedServer, sizes: list[int]) -> str:
    tensor = protos.TensorProto(dtype="DT_FLOAT", float_val=[1.0] if all(sizes) else [])
    for size in sizes:
        tensor.tensor_shape.dim.add(size=size)
    request = protos.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "m", "undeclared"
    request.inputs["image"].CopyFrom(tensor)
    try:
        call(server, "Predict", request.SerializeToString())
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"
