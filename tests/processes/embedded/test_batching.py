"""Batching in the embedded server: who shares threads, and what goes around it."""

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.embedded_client import ask, call, predict_arrays
from support.embedded_client import predict as answered
from support.gates import gate
from support.grpc_calls import refusal
from support.model_fixtures import EmbeddedServer, Exported, serving_all
from tfs_proxy.wire import protos

pytestmark = pytest.mark.tensorflow

SHORTENED = """
import sys
import tensorflow as tf
module = tf.Module()
spec = tf.TensorSpec([None], tf.float32, name="x")
module.run = tf.function(lambda x: {"y": x[:1]}, input_signature=[spec])
tf.saved_model.save(module, sys.argv[1] + "/shortened", signatures=module.run)
"""
"""A model that answers with the first row, whatever it gets."""

SHAPES = "max_batch_size { value: 4 } num_batch_threads { value: 2 }"
MIXING = "max_batch_size { value: 8 } batch_timeout_micros { value: 20000 } num_batch_threads { value: 1 }"
AN_HOUR = (
    "max_batch_size { value: 8 } batch_timeout_micros { value: 3600000000 } num_batch_threads { value: 1 }"
)
MODELS = {
    "filled": ("half_plus_two", AN_HOUR),
    "bytes": ("bytes", MIXING),
    "echo": ("echo", ""),
    "untracked": ("untracked", ""),
    **{name: (name, SHAPES) for name in ("scalar", "multi_io", "mixed_batch", "regress_classify")},
    "shortened": ("", SHAPES),
    "none": ("half_plus_two", None),
}
"""Name, model, and batching parameters of its own; a model without them takes batches of any size."""


@pytest.fixture(scope="module")
def server(
    saved_models: Path, exported: Exported, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedServer]:
    """A server of all of them, whose own parameters replace the shared ones."""
    root, folder = tmp_path_factory.mktemp("models"), tmp_path_factory.mktemp("server")
    for name, (model, parameters) in MODELS.items():
        source = saved_models / model if model else exported(SHORTENED)
        shutil.copytree(source / ("1" if model else name), root / name / "1")
        if parameters is not None:
            (root / name / "1" / "batching_params.pbtxt").write_text(parameters)
    (folder / "batching.txt").write_text("max_batch_size { value: 1 }")
    flags = ("--enable_batching", f"--batching_parameters_file={folder / 'batching.txt'}")
    with serving_all(folder, root, *flags, "--enable_per_model_batching_parameters") as running:
        yield running


@pytest.fixture
def alone(request: pytest.FixtureRequest, saved_models: Path, tmp_path: Path) -> Iterator[EmbeddedServer]:
    """A server of one model, with batching parameters for all."""
    name, parameters = request.param
    (tmp_path / "batching.txt").write_text(parameters)
    flags = ("--enable_batching", f"--batching_parameters_file={tmp_path / 'batching.txt'}")
    with serving_all(tmp_path, saved_models, *flags, names=[name]) as running:
        yield running


def predict(server: EmbeddedServer, model: str, rows: list[Any], signature: str = "") -> Any:
    document = {"instances": rows} | ({"signature_name": signature} if signature else {})
    return answered(server, model, document)["predictions"]


def test_requests_of_one_shape_fill_a_batch(server: EmbeddedServer) -> None:
    """Eight of each shape fill one, which then does not wait, and no other request comes."""
    rows: list[Any] = [1.0, [1.0, 2.0], [[1.0]]]
    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda row: predict(server, "filled", [row]), rows * 8))
    assert answers == [[2.5], [[2.5, 3.0]], [[[2.5]]]] * 8


ONE_THREAD, TWO_THREADS = (("gate", f"num_batch_threads {{ value: {count} }}") for count in (1, 2))


@pytest.mark.parametrize("alone", [ONE_THREAD, TWO_THREADS], indirect=True, ids=["one", "two"])
def test_batch_threads_count_per_model(
    alone: EmbeddedServer, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """With one thread a quick signature waits for its model's slow one, with two it does not."""
    is_free = "two" in request.node.name
    with ThreadPoolExecutor(2) as pool, gate(tmp_path / "gate") as held:
        slow = pool.submit(predict, alone, "gate", [held.mark()])
        held.wait_for()
        quick = pool.submit(predict, alone, "gate", ["quick"], "length")
        wait([quick], None if is_free else 0.3)
        assert quick.done() == is_free
        assert not slow.done()
        held.open()
        assert quick.result() == [5]


@pytest.mark.parametrize("alone", [ONE_THREAD], indirect=True, ids=["one"])
def test_batches_do_not_hold_up_others(alone: EmbeddedServer, tmp_path: Path) -> None:
    """A model that is quick for some rows is slow for others: its state is answered meanwhile."""
    with gate(tmp_path / "opened") as opened:
        opened.open()
        for _ in range(20):
            predict(alone, "gate", [opened.mark()])
    with ThreadPoolExecutor(4) as pool, gate(tmp_path / "gate") as held:
        calls = [pool.submit(predict, alone, "gate", [held.mark()])]
        held.wait_for()
        calls += [pool.submit(predict, alone, "gate", [opened.mark()]) for _ in range(2)]
        for _ in range(5):
            assert "AVAILABLE" in alone.state("gate")
        assert not any(call.done() for call in calls)
        held.open()
        for call in calls:
            call.result()


def test_signatures_of_one_model_never_mix(server: EmbeddedServer) -> None:
    """Both get the same rows at the same time, on shared threads, and each its own answers."""
    with ThreadPoolExecutor(16) as pool:
        answers = [
            (rows, name, pool.submit(predict, server, "bytes", rows, name))
            for rows in ([f"one{at}", f"another{at}"] for at in range(40))
            for name in ("serving_default", "text")
        ]
        for rows, name, answer in answers:
            predictions = answer.result()
            if name == "text":
                assert predictions == [row.upper() for row in rows]
            else:
                assert [row["length"] for row in predictions] == [len(row) for row in rows]


PADDED = (
    "max_batch_size { value: 8 } num_batch_threads { value: 1 } allowed_batch_sizes: 4 allowed_batch_sizes: 8"
)


SPLIT = (
    "max_batch_size { value: 16 } max_execution_batch_size { value: 4 } "
    "enable_large_batch_splitting { value: true } num_batch_threads { value: 2 }"
)


@pytest.mark.parametrize(
    "alone", [("half_plus_two", PADDED), ("half_plus_two", SPLIT)], indirect=True, ids=["padded", "split"]
)
def test_padding_and_splitting_do_not_show_in_answers(alone: EmbeddedServer) -> None:
    """Three rows fill a batch of four; seven fill one of eight, or are cut into four and three."""
    for count in (3, 7):
        rows = [float(at) for at in range(count)]
        assert predict(alone, "half_plus_two", rows) == [row * 0.5 + 2 for row in rows]


def test_batching_does_not_show_in_answers(server: EmbeddedServer) -> None:
    """A request without rows keeps its other dimensions, a failing model says why."""
    empty = np.empty((0, 3), np.float32)
    assert predict_arrays(server, "echo", {"x": empty}, signature="float32")["y"].shape == (0, 3)
    status, body, _ = ask(server, "/v1/models/untracked:predict", {"instances": [[1, 2, 3]]})
    assert status == 400
    assert body.startswith(b'{\n    "error": "Could not find variable')
    assert b"model.export(path)" in body
    assert b"batched_" not in body
    assert b"BatchFunction" not in body


def outcome(server: EmbeddedServer, model: str, inputs: Any, outputs: Any = (), signature: str = "") -> Any:
    """The arrays of a predict, or its error's code and text."""
    try:
        arrays = predict_arrays(server, model, inputs, outputs, signature=signature)
    except Exception:  # noqa: BLE001 - asked again for its code
        return refusal(lambda: predict_arrays(server, model, inputs, outputs, signature=signature))
    return {name: array.tolist() for name, array in arrays.items()}


def infer(server: EmbeddedServer, count: int) -> list[int]:
    """How many results a multi-inference of two signatures has for so many examples."""
    request = protos.MultiInferenceRequest()
    for method, name in (("regress", "regress_x_to_y"), ("classify", "classify_x_to_y")):
        task = request.tasks.add(method_name=f"tensorflow/serving/{method}")
        task.model_spec.name, task.model_spec.signature_name = "regress_classify", name
    for at in range(count):
        example = request.input.example_list.examples.add()
        example.features.feature["x"].float_list.value.append(at)
    message = call(server, "MultiInference", request.SerializeToString())
    answer = protos.MultiInferenceResponse.FromString(message)
    return [len(answer.results[0].regression_result.regressions), len(answer.results)]


X = {"x": np.ones(2, np.float32)}
ONE = np.array(1, np.float32)
A, B = np.ones((2, 3), np.float32), np.ones(2, np.int64)
NO_FIRST_SIZE = "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the input tensors"
SUMS = {"sum": [[2.0] * 3] * 2, "count": [2, 2]}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (("scalar", {"x": ONE, "y": ONE}), "Batching Run() input tensors must have at least one dimension"),
        (("scalar", {}, (), "__saved_model_init_op"), "Batching Run() must have at least one input tensor"),
        (
            ("multi_io", {"a": A, "b": B[:1]}),
            "Batching Run() input tensors must have equal 0th-dimension size",
        ),
        (("mixed_batch", X), ("FAILED_PRECONDITION", "Batched output tensor has 0 dimensions")),
        (("mixed_batch", X, ["total"]), ("FAILED_PRECONDITION", "Batched output tensor has 0 dimensions")),
        (("mixed_batch", X, ["per_row"]), {"per_row": [2.0, 2.0]}),
        (("multi_io", {"a": A, "b": B}, ["sum", "count"]), SUMS),
        (("multi_io", {"a": A, "b": B}, ["count", "sum"]), SUMS),
        (("shortened", {"x": np.ones(3, np.float32)}), ("FAILED_PRECONDITION", NO_FIRST_SIZE)),
    ],
)
def test_what_can_not_be_batched_fails_as_in_the_real_server(
    server: EmbeddedServer, asked: Any, expected: Any
) -> None:
    """Every call goes through batches, those for some outputs too; the op would have more to say."""
    refused = ("INVALID_ARGUMENT", expected) if isinstance(expected, str) else expected
    assert outcome(server, *asked) == refused


def test_several_signatures_are_batched_together(
    server: EmbeddedServer, embedded_server: EmbeddedServer
) -> None:
    """And a failure within the model has the words that it has without batching."""
    assert infer(server, 3) == [3, 2]
    text = "Task size 5 is larger than maximum input batch size 4"
    assert refusal(lambda: infer(server, 5)) == ("INVALID_ARGUMENT", text)
    failing = [outcome(each, "multi_io", {"a": A[0]}, (), "norm") for each in (server, embedded_server)]
    assert failing[0][0] == "INVALID_ARGUMENT"
    assert failing[0] == failing[1]


def test_a_model_without_parameters_of_its_own_is_not_batched(server: EmbeddedServer) -> None:
    assert predict(server, "none", [0.0] * 9) == [2.0] * 9
