"""The embedded server as a process: versions, batching, files that it reads, and its end."""

import gzip
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1.health_pb2 import HealthCheckResponse

from support.embedded_client import ask, predicted
from support.gates import gate
from support.model_fixtures import EmbeddedServer, StartServer, serving_all
from support.predict_messages import request_bytes, response_arrays
from support.warmup_files import recorded, warm_up_with
from tfs_proxy.data.formats.framing import tfrecord_frame
from tfs_proxy.wire import protos
from tfs_proxy.wire.protos.predict import model_spec

pytestmark = pytest.mark.tensorflow

HALF = "/v1/models/half_plus_two:predict"


def copy_version(models: Path, name: str, version: int, to: Path) -> None:
    """Put a version of one of our models where a server looks, all at once."""
    partial = to.with_name(f"{to.name}.partial")
    shutil.copytree(models / name / str(version), partial)
    partial.rename(to)


def test_a_new_version_takes_over_without_a_failed_request(
    saved_models: Path, tmp_path: Path, model_server: StartServer
) -> None:
    base = tmp_path / "m"
    base.mkdir()
    copy_version(saved_models, "versions", 1, base / "1")
    server = model_server(f"--model_base_path={base}", "--model_name=m")
    server.wait_available("m", 1)
    answers: list[Any] = []
    stop = threading.Event()

    def steady() -> None:
        while not stop.is_set():
            answers.append(predicted(server, "m", [1.0]))

    with ThreadPoolExecutor(4) as pool:
        try:
            running = [pool.submit(steady) for _ in range(4)]
            server.wait_until(lambda: [2.5] in answers, "version 1 answers")
            copy_version(saved_models, "versions", 2, base / "2")
            server.wait_available("m", 2)
            server.wait_for_state("END", "m", 1)
            server.wait_until(lambda: [3.5] in answers, "version 2 answers")
            shutil.rmtree(base / "2")
            server.wait_for_state("END", "m", 2)
        finally:
            stop.set()
        for client in running:
            client.result()
    assert {json.dumps(answer) for answer in answers} == {"[2.5]", "[3.5]"}


def test_one_model_that_fails_leaves_the_others_alone(
    saved_models: Path, tmp_path: Path, model_server: StartServer
) -> None:
    """Its status tells the error; the others serve; a missing base path is no model at all."""
    broken = tmp_path / "broken" / "1"
    broken.mkdir(parents=True)
    (broken / "saved_model.pb").write_bytes(b"nonsense")
    (tmp_path / "empty" / "1").mkdir(parents=True)
    config = tmp_path / "models.config"
    config.write_text(
        "model_config_list {"
        f' config {{ name: "good" base_path: "{saved_models / "half_plus_two"}" }}'
        f' config {{ name: "broken" base_path: "{tmp_path / "broken"}" }}'
        f' config {{ name: "empty" base_path: "{tmp_path / "empty"}" }}'
        f' config {{ name: "gone" base_path: "{tmp_path / "gone"}" }} }}'
    )
    server = model_server(
        f"--model_config_file={config}", "--max_num_load_retries=1", "--load_retry_interval_micros=1"
    )
    server.wait_available("good", 1)
    server.wait_for_state("END", "broken")
    server.wait_for_state("END", "empty")
    assert '"error_code": "DATA_LOSS"' in server.state("broken")
    assert "Could not find SavedModel .pb or .pbtxt" in server.state("empty")
    assert "Could not find any versions of model gone" in server.state("gone")
    assert predicted(server, "good", [1.0]) == [2.5]


BATCHING = """
max_batch_size { value: 8 }
batch_timeout_micros { value: 3600000000 }
max_enqueued_batches { value: 2 }
num_batch_threads { value: 1 }
"""


@pytest.fixture(scope="module")
def batching(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    folder = tmp_path_factory.mktemp("batching")
    parameters, config = folder / "batching.txt", folder / "models.config"
    parameters.write_text(BATCHING)
    entries = [
        f'config {{ name: "{name}" base_path: "{saved_models / name}" }}'
        for name in ("half_plus_two", "gate")
    ]
    config.write_text(f"model_config_list {{ {' '.join(entries)} }}")
    flags = ["--enable_batching", f"--batching_parameters_file={parameters}"]
    server = EmbeddedServer(folder, [f"--model_config_file={config}", *flags])
    try:
        server.wait_available("half_plus_two", 1)
        server.wait_available("gate", 1)
        yield server
    finally:
        server.kill()


def test_requests_of_one_shape_fill_a_batch(batching: EmbeddedServer) -> None:
    """Eight of each shape fill one, which then does not wait, and no other request comes."""
    rows: list[Any] = [1.0, [1.0, 2.0], [[1.0]]]
    with ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(lambda row: predicted(batching, "half_plus_two", [row]), rows * 8))
    assert answers == [[2.5], [[2.5, 3.0]], [[[2.5]]]] * 8


def test_requests_that_find_the_queue_full_are_refused(batching: EmbeddedServer, tmp_path: Path) -> None:
    """Sixteen batches come while the first is held: some are 503, the others are answered."""
    with ThreadPoolExecutor(16) as pool, gate(tmp_path / "gate") as held:
        crowd = [
            pool.submit(ask, batching, "/v1/models/gate:predict", {"instances": [held.mark()] * 8})
            for _ in range(16)
        ]
        refused = next(as_completed(crowd)).result()
        held.open()
        statuses = {answer.result()[0] for answer in crowd}
    assert refused[0] == 503
    assert b"The batch scheduling queue to which this task was submitted is full" in refused[1]
    assert statuses == {200, 503}


def test_a_request_larger_than_a_batch_is_refused(batching: EmbeddedServer) -> None:
    status, body, _ = ask(batching, HALF, {"instances": [1.0] * 9})
    assert status == 400
    assert json.loads(body)["error"] == "Task size 9 is larger than maximum input batch size 8"


def test_slow_models_do_not_hold_up_others(embedded_server: EmbeddedServer, tmp_path: Path) -> None:
    for _ in range(5):
        predicted(embedded_server, "half_plus_two", [1.0])
    with ThreadPoolExecutor(4) as pool, gate(tmp_path / "gate") as held:
        slow = [
            pool.submit(predicted, embedded_server, "gate", [held.mark(f"{number}")]) for number in range(4)
        ]
        held.wait_for(4)
        for _ in range(5):
            assert predicted(embedded_server, "half_plus_two", [1.0]) == [2.5]
            assert "AVAILABLE" in embedded_server.state("gate")
        assert not any(call.done() for call in slow)


def test_batches_do_not_hold_up_others(saved_models: Path, tmp_path: Path, model_server: StartServer) -> None:
    """A model that is quick for some rows is slow for others: with batching its state is answered meanwhile."""
    parameters = tmp_path / "batching.txt"
    parameters.write_text("max_batch_size { value: 8 } num_batch_threads { value: 1 }")
    server = model_server(
        f"--model_base_path={saved_models / 'gate'}",
        "--model_name=gate",
        "--enable_batching",
        f"--batching_parameters_file={parameters}",
    )
    server.wait_available("gate", 1)
    with gate(tmp_path / "opened") as opened:
        opened.open()
        for _ in range(20):
            predicted(server, "gate", [opened.mark()])
    with ThreadPoolExecutor(4) as pool, gate(tmp_path / "gate") as held:
        calls = [pool.submit(predicted, server, "gate", [held.mark()])]
        held.wait_for()
        calls += [pool.submit(predicted, server, "gate", [opened.mark()]) for _ in range(2)]
        for _ in range(5):
            assert "AVAILABLE" in server.state("gate")
        assert not any(call.done() for call in calls)
        held.open()
        for call in calls:
            call.result()


def test_slow_calls_over_grpc_do_not_hold_up_others(embedded_server: EmbeddedServer, tmp_path: Path) -> None:
    """More calls under way than threads compute at a time, and a quick one is answered."""
    quick_request = request_bytes(model_spec("half_plus_two"), {"x": np.ones(1, np.float32)})
    with grpc.insecure_channel(embedded_server.grpc) as channel, gate(tmp_path / "gate") as held:
        run = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        marks = [np.array([held.mark(f"{number}").encode()], object) for number in range(12)]
        slow = [run.future(request_bytes(model_spec("gate"), {"mark": mark}), timeout=60) for mark in marks]
        held.wait_for(12)
        for _ in range(5):
            run(quick_request, timeout=60)
        assert not any(call.done() for call in slow)
        held.open()
        for call in slow:
            call.result()


def test_calls_without_a_message_do_not_hold_up_others(embedded_server: EmbeddedServer) -> None:
    """Eight callers have begun a call over gRPC and send nothing for now; a ninth is answered."""
    request = request_bytes(model_spec("half_plus_two"), {"x": np.ones(1, np.float32)})
    released = threading.Event()

    def later() -> Iterator[bytes]:
        released.wait(60)
        yield request

    predict = "/tensorflow.serving.PredictionService/Predict"
    with grpc.insecure_channel(embedded_server.grpc) as channel:
        begun = [channel.stream_unary(predict).future(later(), timeout=60) for _ in range(8)]
        # They go out before these, on the same connection.
        answers = [channel.unary_unary(predict)(request, timeout=30) for _ in range(5)]
        assert not any(call.done() for call in begun)
        released.set()
        answers += [call.result() for call in begun]
    assert all(response_arrays(answer)["y"] == [2.5] for answer in answers)


def test_bodies_may_be_gzipped(embedded_server: EmbeddedServer) -> None:
    packed = gzip.compress(b'{"instances": [1.0]}')
    assert ask(embedded_server, HALF, packed, headers={"Content-Encoding": "gzip"})[0] == 200
    assert ask(embedded_server, HALF, b"plain", headers={"Content-Encoding": "gzip"})[0] == 400


def test_strings_without_dimensions_come_back(embedded_server: EmbeddedServer) -> None:
    status, body, _ = ask(embedded_server, "/v1/models/bytes:predict", {"inputs": "text"})
    assert status == 200
    assert json.loads(body) == {"outputs": {"length": 4, "echo_bytes": {"b64": "dGV4dA=="}}}


def test_requests_that_take_too_long_are_given_up(
    saved_models: Path, tmp_path: Path, model_server: StartServer
) -> None:
    server = model_server(
        f"--model_base_path={saved_models / 'gate'}", "--model_name=gate", "--rest_api_timeout_in_ms=300"
    )
    server.wait_available("gate", 1)
    with gate(tmp_path / "gate") as held:
        document = {"instances": [held.mark()]}
        assert ask(server, "/v1/models/gate:predict", document)[0] == 504
        held.open()
        server.wait_until(
            lambda: ask(server, "/v1/models/gate:predict", document)[0] == 200, "a request is answered"
        )


def test_grpc_takes_more_than_four_megabytes(embedded_server: EmbeddedServer) -> None:
    x = np.ones(2_000_000, np.float32)
    limits = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    for address in (embedded_server.grpc, f"unix:{embedded_server.grpc_socket}"):
        with grpc.insecure_channel(address, limits) as channel:
            run = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
            reply = run(request_bytes(model_spec("half_plus_two"), {"x": x}), timeout=30)
        assert np.array_equal(response_arrays(reply)["y"], x * 0.5 + 2)


@pytest.mark.parametrize("method", ["Predict", "Classify", "Regress", "GetModelMetadata"])
def test_a_request_needs_a_model_spec(embedded_server: EmbeddedServer, method: str) -> None:
    nameless = protos.PredictRequest()
    nameless.model_spec.SetInParent()
    with grpc.insecure_channel(embedded_server.grpc) as channel:
        for request, text in ((b"", "Missing ModelSpec"), (nameless.SerializeToString(), "has no name")):
            if method == "GetModelMetadata" and request:
                continue
            with pytest.raises(grpc.RpcError) as caught:
                channel.unary_unary(f"/tensorflow.serving.PredictionService/{method}")(request, timeout=60)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert text in caught.value.details()


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ([2**45], "of 140,737,488,355,328 bytes, becomes more than 400 MB of values"),
        ([2**62, 4], "of 73,786,976,294,838,206,464 bytes, becomes more than 400 MB of values"),
        ([-1], "tensor parsing error: x"),
        ([3], "tensor parsing error: x"),
    ],
)
def test_tensors_that_can_not_be_are_refused(
    embedded_server: EmbeddedServer, sizes: list[int], text: str
) -> None:
    """Beyond all memory, beyond 64 bits, of no size, or of another one than their content."""
    request = protos.PredictRequest()
    request.model_spec.name = "half_plus_two"
    tensor = request.inputs["x"]
    tensor.MergeFrom(protos.TensorProto(dtype="DT_FLOAT", float_val=[1.0]))
    if sizes == [3]:
        tensor.tensor_content = b"\0" * 16
    for size in sizes:
        tensor.tensor_shape.dim.add(size=size)
    with grpc.insecure_channel(embedded_server.grpc) as channel:
        run = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        with pytest.raises(grpc.RpcError) as caught:
            run(request.SerializeToString(), timeout=60)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert text in caught.value.details()


def test_metadata_that_there_is_not_is_refused(embedded_server: EmbeddedServer) -> None:
    request = protos.GetModelMetadataRequest(metadata_field=["signature_def", "nope"])
    request.model_spec.name = "scalar"
    with grpc.insecure_channel(embedded_server.grpc) as channel:
        run = channel.unary_unary("/tensorflow.serving.PredictionService/GetModelMetadata")
        with pytest.raises(grpc.RpcError) as caught:
            run(request.SerializeToString(), timeout=60)
    assert caught.value.details() == "Metadata field nope is not supported"


def test_health_waits_for_the_first_models(
    saved_models: Path, tmp_path: Path, model_server: StartServer
) -> None:
    folder = tmp_path / "m" / "1"
    shutil.copytree(saved_models / "gate" / "1", folder)
    with gate(tmp_path / "gate") as held:
        warm_up_with(folder, recorded("mark", [held.mark().encode()]))
        server = model_server(
            f"--model_base_path={folder.parent}", "--model_name=m", "--enable_grpc_healthcheck_service"
        )
        held.wait_for()
        with grpc.insecure_channel(server.grpc) as channel:
            early = health(channel)
            held.open()
            server.wait_available("m", 1)
            server.wait_until(lambda: health(channel) != early, "another health is reported")
            assert health(channel) == "SERVING"
    assert early == "NOT_SERVING"


def health(channel: grpc.Channel) -> str:
    check = channel.unary_unary("/grpc.health.v1.Health/Check")
    try:
        status = HealthCheckResponse.FromString(check(b"", timeout=60, wait_for_ready=True)).status
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"
    return str(HealthCheckResponse.ServingStatus.Name(status))


def test_a_lost_variable_is_explained(embedded_server: EmbeddedServer) -> None:
    status, body, _ = ask(embedded_server, "/v1/models/untracked:predict", {"instances": [[1, 2, 3]]})
    assert status == 400
    assert b"Could not find variable" in body
    assert b"model.export(path)" in body


def under_another_name() -> bytes:
    """A recorded request for several signatures of a model that was called otherwise."""
    log = protos.PredictionLog()
    request = log.multi_inference_log.request
    for method, signature in (("regress", "regress_x_to_y"), ("classify", "classify_x_to_y")):
        task = request.tasks.add(method_name=f"tensorflow/serving/{method}")
        task.model_spec.name, task.model_spec.signature_name = "recorded", signature
    request.input.example_list.examples.add().features.feature["x"].float_list.value.append(1.0)
    return log.SerializeToString()


RECORDS = {
    "good": ("half_plus_two", tfrecord_frame(recorded("x", [1.0]))),
    "bad": ("half_plus_two", tfrecord_frame(recorded("nope", [1.0]))),
    "nothing": ("half_plus_two", tfrecord_frame(protos.PredictionLog().SerializeToString())),
    "session": (
        "half_plus_two",
        tfrecord_frame(protos.PredictionLog(session_run_log={}).SerializeToString()),
    ),
    "text": ("half_plus_two", b"no record"),
    "checksum": ("half_plus_two", tfrecord_frame(b"")[:-1] + b"?"),
    "renamed": ("regress_classify", tfrecord_frame(under_another_name())),
}
"""By the name that it is served by: a model, and the file of its recorded requests."""


@pytest.fixture(scope="module")
def warmed_models(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("warmed")
    for name, (model, records) in RECORDS.items():
        extra = root / name / "1" / "assets.extra"
        shutil.copytree(saved_models / model / "1", extra.parent)
        extra.mkdir()
        (extra / "tf_serving_warmup_requests").write_bytes(records)
    return root


@pytest.fixture(scope="module")
def warmed(warmed_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """A server of them, once each load has ended, well or not."""
    folder = tmp_path_factory.mktemp("warmed-server")
    monitoring = folder / "monitoring.config"
    monitoring.write_text("prometheus_config { enable: true }")
    flags = f"--monitoring_config_file={monitoring}", "--max_num_load_retries=0"
    with serving_all(folder, warmed_models, *flags, until=("AVAILABLE", "END")) as server:
        yield server


def test_recorded_requests_warm_a_model_up(warmed: EmbeddedServer) -> None:
    """They run before the version is available; one that fails keeps it from being."""
    warmed.wait_for_log("Warmed up {name: good version: 1} with 1 requests")
    assert '"AVAILABLE"' in warmed.state("good")
    assert '"END"' in warmed.state("bad")
    assert "not found in request" in warmed.state("bad")


def test_loads_and_warm_ups_are_counted(warmed: EmbeddedServer, warmed_models: Path) -> None:
    """A load counts as one whatever the requests behind it do; a warm-up counts where it went well."""
    metrics = ask(warmed, "/monitoring/prometheus/metrics")[1].decode()
    loads, warmed_up = ":tensorflow:cc:saved_model:load_attempt_count", "model_warmup_latency_count"
    for name in RECORDS:
        path = warmed_models / name / "1"
        assert f'{loads}{{model_path="{path}",status="success"}} 1\n' in metrics
        counted = f':tensorflow:serving:{warmed_up}{{model_path="{path}",status="OK"}} 1\n' in metrics
        assert counted == ('"AVAILABLE"' in warmed.state(name))


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("nothing", '"AVAILABLE"'),
        ("session", "Unsupported log_type for warmup: 5"),
        ("text", "Please verify your warmup data is in TFRecord format."),
        ("checksum", "has a wrong checksum of its data"),
    ],
)
def test_records_of_no_request(warmed: EmbeddedServer, name: str, outcome: str) -> None:
    """An empty record is passed over; a session's run, which is not supported, or a broken TFRecord fails the load."""
    assert outcome in warmed.state(name)


def test_warm_up_requests_may_be_recorded_under_another_name(warmed: EmbeddedServer) -> None:
    assert '"AVAILABLE"' in warmed.state("renamed"), warmed.state("renamed")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs openssl on PATH")
    folder = tmp_path_factory.mktemp("tls")
    command = (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    )
    subprocess.run(
        [openssl, *command.split(), "-keyout", str(folder / "key"), "-out", str(folder / "cert")],
        check=True,
        capture_output=True,
    )
    return (folder / "key").read_text(), (folder / "cert").read_text()


@pytest.fixture(scope="module")
def flagged_server(
    saved_models: Path, tmp_path_factory: pytest.TempPathFactory, certificate: tuple[str, str]
) -> Iterator[EmbeddedServer]:
    """A server whose options each need a flag: TLS, health, metrics, CORS and TensorFlow Lite."""
    folder = tmp_path_factory.mktemp("flagged")
    key, cert = map(json.dumps, certificate)
    ssl, monitoring = folder / "ssl.txt", folder / "monitoring.txt"
    ssl.write_text(f"server_key: {key} server_cert: {cert} custom_ca: {cert} client_verify: true")
    monitoring.write_text("prometheus_config { enable: true }")
    flags = [
        f"--model_base_path={saved_models / 'lite'}",
        "--model_name=lite",
        "--prefer_tflite_model=true",
        f"--ssl_config_file={ssl}",
        f"--monitoring_config_file={monitoring}",
        "--enable_grpc_healthcheck_service=true",
        "--rest_api_enable_cors_support=true",
        "--grpc_channel_arguments=grpc.max_connection_age_ms=60000",
        "--host=localhost",
    ]
    server = EmbeddedServer(folder, flags)
    try:
        server.wait_available("lite", 1)
        yield server
    finally:
        server.kill()


LITE_ROW, LITE_SUM = {"a": [1, 2, 3], "b": 1}, [102.0, 103.0, 104.0]


def test_prefer_tflite_model_serves_the_lite_file(flagged_server: EmbeddedServer) -> None:
    assert predicted(flagged_server, "lite", [LITE_ROW]) == [LITE_SUM]


def test_cors_support_answers_a_browsers_preflight(flagged_server: EmbeddedServer) -> None:
    origin = {"Origin": "http://localhost:3000"}
    status, _, headers = ask(flagged_server, "/v1/models/lite:predict", method="OPTIONS", headers=origin)
    assert (status, headers["access-control-allow-origin"]) == (200, "*")


def test_a_monitoring_config_publishes_the_count_of_requests(flagged_server: EmbeddedServer) -> None:
    before = requests_counted(flagged_server)
    predicted(flagged_server, "lite", [LITE_ROW])
    assert requests_counted(flagged_server) == before + 1


def requests_counted(server: EmbeddedServer) -> int:
    """How many requests the server says that it has answered."""
    status, body, _ = ask(server, "/monitoring/prometheus/metrics")
    assert status == 200
    counter = ':tensorflow:serving:request_count{model_name="lite",status="OK"} '
    return sum(
        int(line.removeprefix(counter)) for line in body.decode().splitlines() if line.startswith(counter)
    )


@pytest.mark.parametrize("socket", ["port", "unix"])
def test_a_client_with_a_certificate_is_served_over_tls(
    flagged_server: EmbeddedServer, certificate: tuple[str, str], socket: str
) -> None:
    key, cert = (text.encode() for text in certificate)
    trusted = grpc.ssl_channel_credentials(cert, key, cert)
    name = [("grpc.ssl_target_name_override", "localhost")]
    port = f"localhost:{flagged_server.grpc_port}"
    address = port if socket == "port" else f"unix:{flagged_server.grpc_socket}"
    with grpc.secure_channel(address, trusted, name) as channel:
        assert health(channel) == "SERVING"


def test_a_client_without_a_certificate_is_refused(
    flagged_server: EmbeddedServer, certificate: tuple[str, str]
) -> None:
    """`client_verify` ends the connection before any call."""
    stranger = grpc.ssl_channel_credentials(certificate[1].encode())
    with grpc.secure_channel(f"localhost:{flagged_server.grpc_port}", stranger) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=60)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_method_names_are_checked_where_that_is_asked_for(
    saved_models: Path, model_server: StartServer
) -> None:
    server = model_server(
        f"--model_base_path={saved_models / 'half_plus_two'}",
        "--model_name=m",
        "--enable_signature_method_name_check",
    )
    server.wait_available("m", 1)
    inputs = {"x": np.ones(1, np.float32)}
    with grpc.insecure_channel(server.grpc) as channel:
        run = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        assert response_arrays(run(request_bytes(model_spec("m"), inputs), timeout=60))["y"] == [2.5]
        with pytest.raises(grpc.RpcError) as caught:
            run(request_bytes(model_spec("m", signature="__saved_model_init_op"), inputs), timeout=60)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert caught.value.details().endswith("tensorflow/serving/regress}. Was: ")


def test_one_interpreter_serves_callers_of_both_doors(saved_models: Path, model_server: StartServer) -> None:
    """Each gets its own answer, and whoever finds the only interpreter busy waits for it."""
    server = model_server(
        f"--model_base_path={saved_models / 'lite'}",
        "--model_name=lite",
        "--prefer_tflite_model",
        "--num_tflite_pools=1",
    )
    server.wait_available("lite", 1)

    def over_rest(at: int) -> Any:
        return predicted(server, "lite", [{"a": [at, 0, 0], "b": 1}])

    with grpc.insecure_channel(server.grpc) as channel, ThreadPoolExecutor(8) as pool:
        run = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")

        def over_grpc(at: int) -> Any:
            inputs = {"a": np.array([[at, 0, 0]], np.float32), "b": np.ones(1, np.float32)}
            return response_arrays(run(request_bytes(model_spec("lite"), inputs), timeout=60))["s"].tolist()

        for ask_one in (over_rest, over_grpc):
            assert ask_one(0) == [[101.0, 101.0, 101.0]]
        answers = [(at, pool.submit(over_rest if at % 2 else over_grpc, at)) for at in range(400)]
        for at, answer in answers:
            assert answer.result() == [[at + 101.0, 101.0, 101.0]]


def test_what_can_not_be_served_ends_at_once(tmp_path: Path, model_server: StartServer) -> None:
    """A flag or a file that can't be used is one sentence and status 2; --version is a line and 0."""
    server = model_server("--model_config_file=/nowhere/models.config")
    assert server.wait() == 2
    assert "Can't read /nowhere/models.config" in server.log
    assert "Traceback" not in server.log
    version = model_server("--version")
    assert version.wait() == 0
    assert "TensorFlow ModelServer: 2.20" in version.log
