"""The embedded server on models as people have them: of old and new TensorFlow, odd, and broken on the way."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.embedded_client import predict, predict_arrays
from support.grpc_calls import refusal
from support.model_fixtures import EmbeddedServer, Exported, serving_all

pytestmark = pytest.mark.tensorflow

EXPORT = """
import json, shutil, sys
from pathlib import Path
import numpy as np, tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

v1, root, served = tf.compat.v1, Path(sys.argv[1]), {}
v1.disable_resource_variables()
v1.disable_control_flow_v2()

def save(name, make, tags=("serve",), **more):
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None], name="x")
        signatures = {key: v1.saved_model.predict_signature_def(*each) for key, each in make(x).items()}
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        builder = v1.saved_model.Builder(str(root / name / "1"))
        more = {key: value() if callable(value) else value for key, value in more.items()}
        builder.add_meta_graph_and_variables(session, list(tags), signatures, **more)
        builder.save()

def edit(name, change):
    file = root / name / "1" / "saved_model.pb"
    model = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    change(model.meta_graphs[0])
    file.write_bytes(model.SerializeToString())

def double(x):
    return {"serving_default": ({"x": x}, {"y": x * v1.get_variable("w", initializer=2.0)})}

def branches(x):
    w = v1.get_variable("w", initializer=2.0)
    with v1.colocate_with(x):
        beside = x + 3.0
    with tf.control_dependencies([x]):
        after = w + x
    longer = v1.cond(tf.reduce_sum(x) > 0, lambda: x * w, lambda: x - w)
    turned = v1.while_loop(lambda at, _: at < 3, lambda at, y: (at + 1, y * w), [0, x])[1]
    outputs = {"beside": beside, "after": after, "longer": longer, "turned": turned}
    return {"serving_default": ({"x": x}, outputs), "inside": ({"beside": beside}, {"y": beside * 2.0})}

def unused(x):
    return {"serving_default": ({"x": x, "unused": v1.placeholder(tf.float32, [None])}, {"y": x + 1.0})}

def words(x):
    Path("colours.txt").write_text("red\\ngreen\\n")
    line, number = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
    table = tf.lookup.StaticHashTable(tf.lookup.TextFileInitializer("colours.txt", tf.string, line, tf.int64, number), -1)
    word = v1.placeholder(tf.string, [None])
    part = v1.get_variable("part", [4, 1], partitioner=v1.fixed_size_partitioner(2))
    picked = v1.nn.embedding_lookup(part, tf.nn.relu(table.lookup(word)), partition_strategy="div")
    return {"serving_default": ({"word": word}, {"id": table.lookup(word), "picked": picked})}

def assets():
    return v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS)

def count(x):
    counter = v1.get_variable("counter", initializer=0.0)
    return {"serving_default": ({"x": x}, {"count": tf.fill(tf.shape(x), counter.assign_add(1.0))})}

def held(x):
    w = v1.get_variable("w", initializer=[2.0, 3.0, 4.0])
    return {"serving_default": ({"x": x}, {"w": w, "y": x * w})}

def stream(x):
    fives = tf.data.Dataset.from_tensors(5.0).repeat()
    iterator = v1.data.make_initializable_iterator(fives)
    v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    return {"serving_default": ({"x": x}, {"y": x + iterator.get_next()})}

def odd(x):
    python = v1.py_func(lambda value: value, [x], tf.float32)
    serialized = v1.placeholder(tf.string, [None])
    parsed = v1.parse_example(serialized, {"a": v1.FixedLenFeature([], tf.float32)})
    return {"parsed": ({"examples": serialized}, {"a": parsed["a"]}), "serving_default": ({"x": x}, {"y": x * 2.0}), "python": ({"x": x}, {"y": python}),
            "list": ({"x": x}, {"y": tf.raw_ops.TensorListFromTensor(tensor=x, element_shape=tf.constant([], tf.int32))}),
            "same": ({"x": x}, {"x": x}), "sparse": ({"x": x}, {"y": tf.sparse.from_dense(x)})}

def bare(graph):
    for info in (*graph.signature_def["serving_default"].inputs.values(), *graph.signature_def["serving_default"].outputs.values()):
        info.name = info.name.partition(":")[0]

def stale(graph):
    graph.collection_def["losses"].node_list.value.append("no_such_node:0")
    graph.collection_def["variables"].bytes_list.value.append(b"\\x0a\\x04gone")

def on_gpu(graph):
    for node in graph.graph_def.node:
        node.device = "/device:GPU:0"

def unknown(graph):
    for node in graph.graph_def.node:
        node.op = "FancyMul" if node.op == "Mul" else node.op

def newer(graph):
    graph.graph_def.versions.producer = graph.graph_def.versions.min_consumer = 99999

save("branches", branches)
save("unused", unused)
save("words", words, assets_collection=assets, main_op=v1.tables_initializer)
save("counts", count)
save("held", held)
save("stream", stream, main_op=v1.tables_initializer)
save("odd", odd)
for name, change in {"bare": bare, "stale": stale, "gpu": on_gpu, "unknown": unknown, "newer": newer}.items():
    save(name, double)
    edit(name, change)
save("tagged", double, tags=("train", "gpu"))
for name in ("lost", "pointer", "cut", "empty", "text", "shardless", "assetless", "chunked"):
    save(name, words if name == "assetless" else double, **({"assets_collection": assets, "main_op": v1.tables_initializer} if name == "assetless" else {}))
folder = lambda name: root / name / "1"
shutil.rmtree(folder("lost") / "variables")
(folder("pointer") / "saved_model.pb").write_text("version https://git-lfs.github.com/spec/v1\\noid sha256:1f\\nsize 9\\n")
(folder("cut") / "saved_model.pb").write_bytes((folder("cut") / "saved_model.pb").read_bytes()[:-30])
(folder("empty") / "saved_model.pb").write_bytes(b"")
(folder("text") / "saved_model.pb").rename(folder("text") / "saved_model.pbtxt")
(folder("chunked") / "saved_model.pb").rename(folder("chunked") / "saved_model.cpb")
next((folder("shardless") / "variables").glob("*.data*")).unlink()
shutil.rmtree(folder("assetless") / "assets")

module = tf.Module()
module.run = tf.function(lambda x: {"y": x * 2.0}, input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
tf.saved_model.save(module, str(folder("frozen")), signatures=module.run)

WORDS = {"word": ["green", "blue", "red"]}
X = {"x": [1.5, -4.0, 2.0]}
for name, signature, inputs in [("branches", "serving_default", X), ("branches", "serving_default", {"x": [3.0]}),
        ("branches", "inside", {"beside": [1.0, 2.0]}), ("unused", "serving_default", {**X, "unused": [1.0, 2.0, 3.0]}),
        ("words", "serving_default", WORDS), ("odd", "serving_default", X), ("stream", "serving_default", X),
        ("held", "serving_default", X), ("bare", "serving_default", X), ("frozen", "serving_default", X)]:
    with tf.Graph().as_default(), v1.Session() as session:
        known = v1.saved_model.load(session, ["serve"], str(folder(name))).signature_def[signature]
        full = lambda info: info.name if ":" in info.name else info.name + ":0"
        fed = {full(known.inputs[alias]): value for alias, value in inputs.items()}
        outputs = session.run({alias: full(info) for alias, info in known.outputs.items()}, fed)
        served.setdefault(name, []).append((signature, inputs, {alias: value.tolist() for alias, value in outputs.items()}))
shutil.rmtree(folder("frozen") / "variables")
served["stale"] = [("serving_default", X, {"y": [3.0, -8.0, 4.0]})]
(root / "served.json").write_text(json.dumps(served))
"""


@pytest.fixture(scope="module")
def models(exported: Exported) -> Path:
    """The SavedModels, with what a plain session of TensorFlow answers for those that it can run."""
    return exported(EXPORT)


@pytest.fixture(scope="module", params=["--enable_batching=false", "--enable_batching"])
def server(
    request: pytest.FixtureRequest, models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedServer]:
    """A server with all of them, those that can't be loaded as well."""
    flags = ("--max_num_load_retries=0", request.param)
    with serving_all(tmp_path_factory.mktemp("server"), models, *flags, until=("AVAILABLE", "END")) as server:
        yield server


def over_grpc(server: EmbeddedServer, model: str, signature: str, inputs: Any) -> Any:
    arrays = {alias: np.array(value) for alias, value in inputs.items()}
    sent = {
        alias: each if each.dtype.kind in "US" else each.astype(np.float32) for alias, each in arrays.items()
    }
    return predict_arrays(server, model, sent, signature=signature)


@pytest.mark.parametrize(
    "model", ["branches", "unused", "words", "held", "stream", "odd", "bare", "stale", "frozen"]
)
def test_models_of_all_kinds_answer_as_in_a_plain_session(
    server: EmbeddedServer, models: Path, model: str
) -> None:
    """By row, by column and over gRPC.

    TF1 control flow and placement, inputs that nothing uses, vocabularies, variables as outputs, iterators, partitioned variables, names
    without an output, collections of nodes that are gone, no variables at all.
    """
    for signature, inputs, outputs in json.loads((models / "served.json").read_text())[model]:
        asked = {"signature_name": signature}
        columns = predict(server, model, {**asked, "inputs": inputs})["outputs"]
        rows = [dict(zip(inputs, row, strict=True)) for row in zip(*inputs.values(), strict=True)]
        by_row = predict(server, model, {**asked, "instances": rows})["predictions"]
        arrays = over_grpc(server, model, signature, inputs)

        for alias, values in outputs.items():
            alone = len(outputs) == 1
            assert np.allclose(columns if alone else columns[alias], values)
            assert np.allclose(by_row if alone else [row[alias] for row in by_row], values)
            assert np.allclose(arrays[alias], values)


def test_a_model_that_counts_counts_each_request_once(server: EmbeddedServer) -> None:
    counts = [predict(server, "counts", {"instances": [0.0, 0.0]})["predictions"] for _ in range(3)]

    assert counts == [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]


@pytest.mark.parametrize(
    ("model", "signature", "said", "advice"),
    [
        ("odd", "python", "py trampoline", "tf.py_function"),
        ("odd", "same", "both fed and fetched", "tf.identity"),
        ("odd", "sparse", "was not found in the Graph", "sparse or ragged"),
        ("odd", "list", "Failed to write JSON value", "tensor type: variant"),
        ("lost", "serving_default", "uninitialized value w", "variables/variables.index"),
    ],
)
def test_requests_that_no_server_can_answer_are_explained(
    server: EmbeddedServer, model: str, signature: str, said: str, advice: str
) -> None:
    error = predict(server, model, {"signature_name": signature, "instances": [1.0]})["error"]

    assert said in error
    assert advice in error


def test_errors_may_have_bytes_in_them(server: EmbeddedServer) -> None:
    code, text = refusal(lambda: over_grpc(server, "odd", "parsed", {"examples": [b"\xff\xd8"]}))
    assert (code, "Could not parse example input" in text) == ("INVALID_ARGUMENT", True)


@pytest.mark.parametrize(
    ("model", "code", "said"),
    [
        ("gpu", "INVALID_ARGUMENT", ["Cannot assign a device", "clear_devices=True"]),
        ("unknown", "NOT_FOUND", ["FancyMul", "Other ops cannot be served"]),
        ("newer", "INVALID_ARGUMENT", ["min consumer version 99999", "Please upgrade TensorFlow"]),
        ("tagged", "NOT_FOUND", ["supplied tags: { serve }", "{ gpu train }", "with the tag serve"]),
        ("empty", "NOT_FOUND", ["supplied tags: { serve }", "0 bytes"]),
        ("pointer", "DATA_LOSS", ["Can't parse", "saved_model.pb as binary proto", "git lfs pull"]),
        ("cut", "DATA_LOSS", ["Can't parse", "saved_model.pb as binary proto", "incomplete"]),
        ("text", "DATA_LOSS", ["Can't parse", "saved_model.pbtxt as text proto"]),
        ("chunked", "NOT_FOUND", ["Could not find SavedModel", "saved_model.cpb"]),
        ("shardless", "NOT_FOUND", ["variables.data-00000-of-00001; No such file", "incomplete"]),
        ("assetless", "NOT_FOUND", ["assets/colours.txt; No such file"]),
    ],
)
def test_models_that_can_not_be_loaded_say_why(
    server: EmbeddedServer, model: str, code: str, said: list[str]
) -> None:
    """The status carries TF Serving's code and words, and what to do; nothing of Python's own."""
    (status,) = json.loads(server.state(model))["model_version_status"]
    text = status["status"]["error_message"]

    assert status["state"] == "END"
    assert status["status"]["error_code"] == code, text
    assert all(phrase in text for phrase in said), text
    assert "Graph execution error" not in text
    assert "Restoring from checkpoint failed" not in text
