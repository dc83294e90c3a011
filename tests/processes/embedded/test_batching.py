"""Batching in the embedded server: who shares threads, what is counted, and what goes around it."""

import json
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import requests

from support.gates import gate
from support.model_fixtures import EmbeddedServer, StartServer
from support.predict_messages import request_bytes, response_arrays
from tfs_proxy.wire import protos
from tfs_proxy.wire.protos.predict import model_spec
from tfs_proxy.wire.protos.tensors import numpy_type

pytestmark = pytest.mark.tensorflow


def start(
    model_server: StartServer, folder: Path, models: Path, parameters: str, *names: str
) -> EmbeddedServer:
    """A server that batches these models, and exports its metrics."""
    batching, config, monitoring = (
        folder / name for name in ("batching.txt", "models.txt", "monitoring.txt")
    )
    batching.write_text(parameters)
    entries = [f'config {{ name: "{name}" base_path: "{models / name}" }}' for name in names]
    config.write_text(f"model_config_list {{ {' '.join(entries)} }}")
    monitoring.write_text("prometheus_config { enable: true }")
    server = model_server(
        f"--model_config_file={config}",
        "--enable_batching",
        f"--batching_parameters_file={batching}",
        f"--monitoring_config_file={monitoring}",
    )
    for name in names:
        server.wait_available(name)
    return server


def predict(server: EmbeddedServer, model: str, rows: list[Any], signature: str = "") -> list[Any]:
    document = {"instances": rows} | ({"signature_name": signature} if signature else {})
    reply = requests.post(f"{server.rest}/v1/models/{model}:predict", data=json.dumps(document), timeout=60)
    assert reply.status_code == 200, reply.text
    return list(reply.json()["predictions"])


def metric(server: EmbeddedServer, name: str) -> float:
    """The value of one line of the metrics, its labels in; 0 where it is not there."""
    text = requests.get(f"{server.rest}/monitoring/prometheus/metrics", timeout=60).text
    match = re.search(rf"^:tensorflow:serving:batching_session:{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(match[1]) if match else 0.0


@pytest.mark.parametrize("threads", [1, 2])
def test_batch_threads_count_per_model(
    saved_models: Path, tmp_path: Path, model_server: StartServer, threads: int
) -> None:
    """With one thread a quick signature waits for its model's slow one, with two it does not."""
    server = start(model_server, tmp_path, saved_models, f"num_batch_threads {{ value: {threads} }}", "gate")
    with ThreadPoolExecutor(2) as pool, gate(tmp_path / "gate") as held:
        slow = pool.submit(predict, server, "gate", [held.mark()])
        held.wait_for()
        quick = pool.submit(predict, server, "gate", ["quick"], "length")
        wait([quick], 0.3 if threads == 1 else None)
        assert quick.done() == (threads == 2)
        assert not slow.done()
        held.open()
        assert quick.result() == [5]


def test_signatures_of_one_model_never_mix(
    saved_models: Path, tmp_path: Path, model_server: StartServer
) -> None:
    """Both get the same rows at the same time, on shared threads, and each its own answers."""
    parameters = (
        "max_batch_size { value: 8 } batch_timeout_micros { value: 20000 } num_batch_threads { value: 1 }"
    )
    server = start(model_server, tmp_path, saved_models, parameters, "bytes")
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


def test_batches_are_counted_under_the_real_names(
    saved_models: Path, tmp_path: Path, model_server: StartServer
) -> None:
    """One that is held; meanwhile three of a row each, which fill one to four; one that fills a batch."""
    parameters = (
        "max_batch_size { value: 8 } batch_timeout_micros { value: 1000000 } num_batch_threads { value: 1 } "
        "allowed_batch_sizes: 4 allowed_batch_sizes: 8"
    )
    server = start(model_server, tmp_path, saved_models, parameters, "gate")
    began = time.monotonic()
    with ThreadPoolExecutor(4) as pool, gate(tmp_path / "gate") as held:
        first = pool.submit(predict, server, "gate", [held.mark()])
        held.wait_for()
        three = [pool.submit(predict, server, "gate", ["x" * at], "length") for at in range(3)]
        server.wait_until(
            lambda: metric(server, "input_batch_size_count{}") == 4, "four requests are counted"
        )
        all_wait = time.monotonic()
        assert metric(server, "wrapped_run_count{}") == 0
        held_seconds = time.monotonic() - all_wait
        held.open()
        assert [answer.result() for answer in three] == [[0], [1], [2]]
        first.result()
    all_seconds = time.monotonic() - began
    assert metric(server, "wrapped_run_count{}") == 2
    assert metric(server, "input_batch_size_count{}") == 4
    assert metric(server, "input_batch_size_sum{}") == 4
    assert metric(server, "processed_batch_size_sum{}") == 8
    assert metric(server, 'padding_size_sum{execution_batch_size="4"}') == 3 + 1
    assert metric(server, 'queuing_latency_count{thread_pool_name=""}') == 4
    waited = metric(server, 'queuing_latency_sum{thread_pool_name=""}')
    assert 3e6 * held_seconds < waited < 4e6 * all_seconds
    assert len(predict(server, "gate", ["x"] * 8, "length")) == 8
    assert metric(server, "wrapped_run_count{}") == 3
    assert metric(server, 'padding_size_sum{execution_batch_size="8"}') == 0
    assert metric(server, 'padding_size_count{execution_batch_size="8"}') == 1


def test_pieces_of_a_split_request_are_counted_each(
    saved_models: Path, tmp_path: Path, model_server: StartServer
) -> None:
    """Ten rows cut into batches of four run three times, the last one with two rows."""
    parameters = (
        "max_batch_size { value: 16 } max_execution_batch_size { value: 4 } "
        "enable_large_batch_splitting { value: true } num_batch_threads { value: 2 }"
    )
    server = start(model_server, tmp_path, saved_models, parameters, "half_plus_two")
    rows = [float(at) for at in range(10)]
    assert predict(server, "half_plus_two", rows) == [row * 0.5 + 2 for row in rows]
    assert metric(server, "wrapped_run_count{}") == 3
    assert metric(server, "processed_batch_size_sum{}") == 10
    assert metric(server, "input_batch_size_count{}") == 1
    assert metric(server, 'queuing_latency_count{thread_pool_name=""}') == 3


def test_batching_does_not_show_in_answers(
    saved_models: Path, tmp_path: Path, model_server: StartServer
) -> None:
    """A request without rows keeps its other dimensions, narrow types come back, a failing model says why."""
    server = start(model_server, tmp_path, saved_models, "", "echo", "untracked")
    with grpc.insecure_channel(server.grpc) as channel:
        run = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        spec = model_spec("echo", signature="float32")
        answer = response_arrays(run(request_bytes(spec, {"x": np.empty((0, 3), np.float32)})))
        for kind, number in (("qint8", 11), ("int4", 29), ("float8_e5m2", 24)):
            narrow = np.ones(2, numpy_type(number))
            sent = request_bytes(model_spec("echo", signature=kind), {"x": narrow})
            assert response_arrays(run(sent))["y"].tolist() == narrow.tolist()
    assert answer["y"].shape == (0, 3)
    reply = requests.post(f"{server.rest}/v1/models/untracked:predict", data='{"instances": [[1, 2, 3]]}')
    assert reply.status_code == 400
    text = reply.json()["error"]
    assert text.startswith("Could not find variable")
    assert "model.export(path)" in text
    assert "batched_" not in text
    assert "BatchFunction" not in text


SHAPES = "max_batch_size { value: 4 } num_batch_threads { value: 2 }"

NO_ROWS = "Batched output tensor has 0 dimensions"


def call(channel: grpc.Channel, model: str, signature: str, inputs: Any, outputs: Any = ()) -> Any:
    """The arrays of a predict, or its error's code and text."""
    run = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
    try:
        reply = run(request_bytes(model_spec(model, signature=signature), inputs, outputs), timeout=60)
    except grpc.RpcError as error:
        return error.code().name, error.details()
    return {name: array.tolist() for name, array in response_arrays(reply).items()}


def infer(channel: grpc.Channel, count: int) -> Any:
    """How many results a multi-inference of two signatures has for so many examples, or its error."""
    request = protos.MultiInferenceRequest()
    for method, name in (("regress", "regress_x_to_y"), ("classify", "classify_x_to_y")):
        task = request.tasks.add(method_name=f"tensorflow/serving/{method}")
        task.model_spec.name, task.model_spec.signature_name = "regress_classify", name
    for at in range(count):
        example = request.input.example_list.examples.add()
        example.features.feature["x"].float_list.value.append(at)
    run = channel.unary_unary("/tensorflow.serving.PredictionService/MultiInference")
    try:
        answer = protos.MultiInferenceResponse.FromString(run(request.SerializeToString(), timeout=60))
    except grpc.RpcError as error:
        return error.code().name, error.details()
    return [len(answer.results[0].regression_result.regressions), len(answer.results)]


def test_what_can_not_be_batched_fails_as_in_the_real_server(
    saved_models: Path, tmp_path: Path, model_server: StartServer
) -> None:
    """Every call goes through batches, those for some outputs and for several signatures too."""
    names = ("scalar", "multi_io", "mixed_batch", "regress_classify")
    server = start(model_server, tmp_path, saved_models, SHAPES, *names)
    x, one = np.ones(2, np.float32), np.float32(1)
    a, b = np.ones((2, 3), np.float32), np.ones(2, np.int64)
    with grpc.insecure_channel(server.grpc) as channel:
        assert call(channel, "scalar", "", {"x": np.array(one), "y": np.array(one)}) == (
            "INVALID_ARGUMENT",
            "Batching Run() input tensors must have at least one dimension",
        )
        assert call(channel, "scalar", "__saved_model_init_op", {}) == (
            "INVALID_ARGUMENT",
            "Batching Run() must have at least one input tensor",
        )
        assert call(channel, "multi_io", "", {"a": a, "b": b[:1]}) == (
            "INVALID_ARGUMENT",
            "Batching Run() input tensors must have equal 0th-dimension size",
        )
        assert call(channel, "mixed_batch", "", {"x": x}) == ("FAILED_PRECONDITION", NO_ROWS)
        assert call(channel, "mixed_batch", "", {"x": x}, ["total"]) == ("FAILED_PRECONDITION", NO_ROWS)
        assert call(channel, "mixed_batch", "", {"x": x}, ["per_row"]) == {"per_row": [2.0, 2.0]}
        for wanted in (["sum", "count"], ["count", "sum"]):
            assert call(channel, "multi_io", "", {"a": a, "b": b}, wanted) == {
                "sum": [[2.0] * 3] * 2,
                "count": [2, 2],
            }
        assert call(channel, "multi_io", "norm", {"a": a[0]}) == (
            "INVALID_ARGUMENT",
            unbatched_text(model_server, saved_models, a[0]),
        )
        assert infer(channel, 3) == [3, 2]
        assert infer(channel, 5) == (
            "INVALID_ARGUMENT",
            "Task size 5 is larger than maximum input batch size 4",
        )


def unbatched_text(model_server: StartServer, models: Path, a: Any) -> str:
    """The answer, without batching, to a request that fails in the model."""
    server = model_server(f"--model_base_path={models / 'multi_io'}", "--model_name=multi_io")
    server.wait_available("multi_io")
    with grpc.insecure_channel(server.grpc) as channel:
        return str(call(channel, "multi_io", "norm", {"a": a})[1])


def test_an_output_that_does_not_follow_the_batch_is_told_in_the_real_words(
    shortened: Path, model_server: StartServer, tmp_path: Path
) -> None:
    server = start(model_server, tmp_path, shortened, SHAPES, "shortened")
    with grpc.insecure_channel(server.grpc) as channel:
        assert call(channel, "shortened", "", {"x": np.ones(3, np.float32)}) == (
            "FAILED_PRECONDITION",
            (
                "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of "
                "the input tensors"
            ),
        )


@pytest.fixture(scope="module")
def shortened(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that answers with the first row, whatever it gets."""
    root = tmp_path_factory.mktemp("shortened")
    subprocess.run([sys.executable, "-c", SHORTENED, str(root)], check=True, capture_output=True)
    return root


SHORTENED = """
import sys
import tensorflow as tf
module = tf.Module()
spec = tf.TensorSpec([None], tf.float32, name="x")
module.run = tf.function(lambda x: {"y": x[:1]}, input_signature=[spec])
tf.saved_model.save(module, sys.argv[1] + "/shortened/1", signatures=module.run)
"""


def test_parameters_that_can_not_be_used_end_the_server(tmp_path: Path, model_server: StartServer) -> None:
    parameters = tmp_path / "batching.txt"
    parameters.write_text("max_batch_size { value: 4 } allowed_batch_sizes: 8")
    server = model_server(
        f"--model_base_path={tmp_path}", "--enable_batching", f"--batching_parameters_file={parameters}"
    )
    assert server.wait() == 2
    assert "last entry was 8; expected 4" in server.log
    assert "Traceback" not in server.log


def test_only_models_with_parameters_of_their_own_are_batched_where_the_flag_says_so(
    saved_models: Path, tmp_path: Path, model_server: StartServer
) -> None:
    """A version's file replaces the shared one; a version without a file takes batches of any size."""
    shutil.copytree(saved_models / "half_plus_two", tmp_path / "own")
    shutil.copytree(saved_models / "half_plus_two", tmp_path / "none")
    (tmp_path / "own" / "1" / "batching_params.pbtxt").write_text("max_batch_size { value: 2 }")
    config, parameters = tmp_path / "models.txt", tmp_path / "batching.txt"
    entries = [f'config {{ name: "{name}" base_path: "{tmp_path / name}" }}' for name in ("own", "none")]
    config.write_text(f"model_config_list {{ {' '.join(entries)} }}")
    parameters.write_text("max_batch_size { value: 1 }")
    server = model_server(
        f"--model_config_file={config}",
        "--enable_batching",
        f"--batching_parameters_file={parameters}",
        "--enable_per_model_batching_parameters",
    )
    for name in ("own", "none"):
        server.wait_available(name)
    assert predict(server, "none", [0.0] * 3) == [2.0] * 3
    assert predict(server, "own", [0.0] * 2) == [2.0] * 2
    with grpc.insecure_channel(server.grpc) as channel:
        assert call(channel, "own", "", {"x": np.zeros(3, np.float32)}) == (
            "INVALID_ARGUMENT",
            "Task size 3 is larger than maximum input batch size 2",
        )
