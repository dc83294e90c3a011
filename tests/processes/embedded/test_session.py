"""How TensorFlow computes, as flags of the embedded server say: options of its sessions."""

import subprocess
import sys
from pathlib import Path

import pytest

from support.embedded_client import predict
from support.model_fixtures import Exported, Serve

pytestmark = pytest.mark.tensorflow

ONES = {"instances": [[1.0] * 64]}

EXPORT = """
import sys
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
v1 = tf.compat.v1
with tf.Graph().as_default(), v1.Session() as session:
    x = v1.placeholder(tf.float32, [None, 64], name="x")
    with tf.device("/CPU:1"):
        y = tf.matmul(x, tf.ones([64, 8]) * 1.001)
    builder = v1.saved_model.Builder(sys.argv[1] + "/second/1")
    signature = v1.saved_model.predict_signature_def({"x": x}, {"y": y})
    builder.add_meta_graph_and_variables(session, ["serve"], {"serving_default": signature})
    builder.save()
"""


CONFIG = """
from tfs_proxy.embedded.tensorflow import session
from tfs_proxy.embedded.flags import ModelServerFlags
print(session.session_config(ModelServerFlags(tensorflow_intra_op_parallelism=3)))
"""


@pytest.fixture(scope="module")
def second_device(exported: Exported) -> Path:
    """A model that needs a second CPU device: 64 times 1.001 times the mean of 64 numbers."""
    return exported(EXPORT) / "second"


def test_options_of_the_session(second_device: Path, tmp_path: Path, serve: Serve) -> None:
    options = tmp_path / "session.txt"
    options.write_text(
        'device_count { key: "CPU" value: 2 } graph_options { rewrite_options { constant_folding: OFF } }'
    )
    server = serve(second_device, f"--tensorflow_session_config_file={options}")
    assert predict(server, "second", ONES)["predictions"][0] == pytest.approx([64.064] * 8)
    assert "CPU:1" in predict(serve(second_device), "second", ONES)["error"]


def test_options_that_every_session_has() -> None:
    """One pass of TensorFlow's optimiser, as in the official server, and threads by the flag."""
    made = subprocess.run([sys.executable, "-c", CONFIG], capture_output=True, text=True, check=True).stdout
    assert "meta_optimizer_iterations: ONE" in made
    assert "intra_op_parallelism_threads: 3" in made
