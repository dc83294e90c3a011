"""Batch normalisation folded into convolutions when a model loads: the answers stay what they were."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import embedded_client as asking
from support.model_fixtures import EmbeddedServer, serving_all

pytestmark = pytest.mark.tensorflow

EXPORT = """
import json, sys
from pathlib import Path
import keras, numpy as np, tensorflow as tf

root, answers = Path(sys.argv[1]), {}
dice = np.random.default_rng(7)
image = tf.TensorSpec([None, 6, 6, 3], tf.float32, name="image")
pictures = dice.random((2, 6, 6, 3)).round(3).astype(np.float32)

def variable(*shape, low=0.4, high=1.6):
    return tf.Variable(dice.uniform(low, high, shape).astype(np.float32))

class Net(tf.Module):
    def __init__(self):
        self.kernel, self.bias = variable(3, 3, 3, 4, low=-1), variable(4, low=-1)
        self.depthwise = variable(3, 3, 4, 2, low=-1)
        self.four = [variable(4) for _ in range(4)]
        self.eight = [variable(8) for _ in range(4)]
        self.count = tf.Variable(0.0)
        rows = tf.lookup.KeyValueTensorInitializer([0, 1], [10.0, 20.0], tf.int64, tf.float32)
        self.table = tf.lookup.StaticHashTable(rows, -1.0)

    def plain(self, x):
        return tf.nn.conv2d(x, self.kernel, 1, "SAME") + self.bias

    def norm(self, x):
        gamma, beta, mean, var = self.four
        return tf.nn.batch_normalization(x, mean, var, beta, gamma, 1e-3)

    def deep(self, x):
        hidden = tf.nn.depthwise_conv2d(tf.nn.relu(self.norm(self.plain(x))), self.depthwise, [1, 1, 1, 1], "SAME")
        gamma, beta, mean, var = self.eight
        return tf.compat.v1.nn.fused_batch_norm(hidden, gamma, beta, mean, var, is_training=False)[0]

def flat(x):
    return tf.reduce_mean(x, [1, 2])

def save(name, **functions):
    net = Net()
    signatures = {}
    for key, make in functions.items():
        call = (lambda make: lambda image: make(net, image))(make)
        signatures[key] = tf.function(call, input_signature=[image])
        setattr(net, f"run_{key}", signatures[key])
    answers[name] = {
        key: {alias: value.numpy().tolist() for alias, value in call(pictures).items()}
        for key, call in signatures.items()
    }
    net.count.assign(0.0)
    tf.saved_model.save(net, str(root / name / "1"), signatures=signatures)

def count(net, x):
    return {"y": flat(net.deep(x)), "count": tf.fill([tf.shape(x)[0]], net.count.assign_add(1.0))}

def train(net, x):
    net.kernel.assign(net.kernel * 0.5)
    return {"y": flat(net.deep(x))}

def branch(net, x):
    y = tf.cond(tf.reduce_sum(x) > 0, lambda: net.deep(x), lambda: net.deep(x) * 2.0)
    turn = lambda at, z: (at + 1, net.norm(net.plain(z))[..., :3])
    return {"y": flat(y), "turned": flat(tf.while_loop(lambda at, _: at < 3, turn, (0, x))[1])}

def look_up(net, x):
    keys = tf.cast(flat(x)[:, 0] * 0.0, tf.int64)
    return {"y": flat(net.deep(x)), "row": net.table.lookup(keys)}

save("deep", serving_default=lambda net, x: {"y": flat(net.deep(x))},
     all=lambda net, x: {"y": flat(net.deep(x)), "inside": flat(net.norm(net.plain(x)))})
save("otherwise", serving_default=lambda net, x: {"y": flat(net.norm(net.plain(x)))},
     plain=lambda net, x: {"y": flat(net.plain(x))})
save("told", serving_default=lambda net, x: {"y": flat(net.deep(x)), "k": tf.tile(net.kernel[None, 0, 0, 0], [tf.shape(x)[0], 1])})
save("counts", serving_default=count)
save("trains", serving_default=lambda net, x: {"y": flat(net.deep(x))}, train=train)
save("branches", serving_default=branch)
save("table", serving_default=look_up)

layers = keras.layers
network = keras.Sequential([layers.Input((6, 6, 3)), layers.Conv2D(4, 3), layers.BatchNormalization(), layers.ReLU(),
    layers.DepthwiseConv2D(3), layers.BatchNormalization(), layers.GlobalAveragePooling2D()])
for each in network.weights:
    each.assign(dice.uniform(0.4, 1.6, each.shape))
archive = keras.export.ExportArchive()
archive.track(network)
archive.add_endpoint("serve", lambda image: {"y": network(image)}, input_signature=[image])
archive.write_out(str(root / "keras" / "1"))
answers["keras"] = {key: {"y": network(pictures).numpy().tolist()} for key in ("serve", "serving_default")}

v1 = tf.compat.v1
with tf.Graph().as_default(), v1.Session() as session:
    x = v1.placeholder(tf.float32, [None, 6, 6, 3], name="image")
    def v1_variable(name, *shape):
        start = dice.uniform(0.4, 1.6, shape).astype(np.float32)
        return v1.get_variable(name, initializer=start, use_resource=True)
    convolved = tf.nn.conv2d(x, v1_variable("kernel", 3, 3, 3, 4), 1, "SAME")
    of_norm = [v1_variable(name, 4) for name in ("gamma", "beta", "mean", "variance")]
    normed = v1.nn.fused_batch_norm(convolved, *of_norm, is_training=False)[0]
    outputs = {"normed": flat(normed), "y": flat(tf.nn.relu(normed))}
    halves = {"y": flat(tf.nn.relu(normed)) * 0.5}
    session.run(v1.global_variables_initializer())
    answers["old"] = {
        key: {alias: value.tolist() for alias, value in session.run(each, {x: pictures}).items()}
        for key, each in (("serving_default", outputs), ("half", halves))
    }
    builder = v1.saved_model.Builder(str(root / "old" / "1"))
    predict = v1.saved_model.predict_signature_def
    signatures = {"serving_default": predict({"image": x}, outputs), "half": predict({"image": x}, halves)}
    builder.add_meta_graph_and_variables(session, ["serve"], signatures)
    builder.save()

hidden = tf.Module()
hidden.model = keras.Sequential([layers.Input((6, 6, 3)), layers.Conv2D(2, 3), layers.BatchNormalization()])
hidden.run = tf.function(lambda image: {"y": hidden.model(image)}, input_signature=[image])
tf.saved_model.save(hidden, str(root / "untracked" / "1"), signatures=hidden.run)
(root / "answers.json").write_text(json.dumps({"pictures": pictures.tolist(), "answers": answers}))
"""

FOLDED = {"deep": 5, "told": 1, "table": 2, "keras": 4, "old": 1}
"""How many convolutions can be folded; elsewhere a variable is written, used otherwise too, or in a branch."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SavedModels with convolutions and batch normalisation, and what TensorFlow itself answers."""
    base = tmp_path_factory.mktemp("convolutions")
    subprocess.run([sys.executable, "-c", EXPORT, str(base)], check=True, capture_output=True)
    return base


@pytest.fixture(scope="module", params=["--enable_batching=false", "--enable_batching"])
def server(
    request: pytest.FixtureRequest, models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedServer]:
    """A server with all of them."""
    with serving_all(tmp_path_factory.mktemp("server"), models, request.param) as server:
        yield server


def predict(server: EmbeddedServer, model: str, signature: str, pictures: Any) -> Any:
    """The answer's outputs by name, or its error."""
    document = {"signature_name": signature, "inputs": {"image": pictures}}
    answer = asking.predict(server, model, document)
    return answer.get("outputs") or answer["error"]


def expected(models: Path) -> Any:
    """What the models were built with: pictures, and the answers by model and signature."""
    return json.loads((models / "answers.json").read_text())


@pytest.mark.parametrize("model", ["deep", "otherwise", "told", "branches", "table", "keras", "old"])
def test_answers_are_those_of_the_model(server: EmbeddedServer, models: Path, model: str) -> None:
    """Whatever was folded, every signature answers what TensorFlow answers, batch sizes included."""
    known = expected(models)
    for signature, outputs in known["answers"][model].items():
        wanted = next(iter(outputs.values())) if len(outputs) == 1 else outputs
        answer = predict(server, model, signature, known["pictures"])
        first = predict(server, model, signature, known["pictures"][:1])

        assert _close(answer, wanted), (signature, answer, wanted)
        assert not isinstance(first, str)


def _close(one: Any, two: Any) -> bool:
    if isinstance(two, dict):
        return set(one) == set(two) and all(_close(one[key], two[key]) for key in two)
    return bool(pytest.approx(two[0], rel=1e-4, abs=1e-5) == one[0]) and len(one) == len(two)


def test_only_what_is_safe_is_folded(server: EmbeddedServer) -> None:
    """A convolution whose weights are used in no other way, in a model that writes none."""
    folded = re.findall(r"Folded batch normalisation into (\d+) convolution", server.log.read_text())

    assert sorted(map(int, folded)) == sorted(FOLDED.values())


def test_a_model_that_counts_goes_on_counting(server: EmbeddedServer, models: Path) -> None:
    """A signature that writes a variable is served as it came."""
    known = expected(models)
    counts = [predict(server, "counts", "serving_default", known["pictures"])["count"][0] for _ in range(3)]

    assert counts == [1.0, 2.0, 3.0]


def test_weights_that_a_signature_changes_change(server: EmbeddedServer, models: Path) -> None:
    """Another signature's writing is seen by all."""
    known = expected(models)
    before = predict(server, "trains", "serving_default", known["pictures"])
    predict(server, "trains", "train", known["pictures"])
    after = predict(server, "trains", "serving_default", known["pictures"])

    assert before != after


def test_missing_variables_are_still_explained(server: EmbeddedServer, models: Path) -> None:
    """A model saved without its weights loads, and its requests say why they fail."""
    answer = predict(server, "untracked", "serving_default", expected(models)["pictures"])

    assert "Could not find variable" in answer
    assert "tf.Module" in answer
