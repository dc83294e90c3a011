"""The embedded server as a process: slow calls, warm-up, flags, and files that it reads."""

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1.health_pb2 import HealthCheckResponse

from support.certificates import Authority
from support.embedded_client import ask, predict_arrays, predicted
from support.gates import gate
from support.grpc_calls import PREDICT, ones, refusal
from support.model_fixtures import EmbeddedServer, Serve, StartServer, serving_all
from support.predict_messages import request_bytes
from support.warmup_files import recorded
from tfs_proxy.data.formats.framing import tfrecord_frame
from tfs_proxy.wire import protos
from tfs_proxy.wire.protos.predict import model_spec

pytestmark = pytest.mark.tensorflow

HEALTH = "/grpc.health.v1.Health/Check"


def test_slow_calls_do_not_hold_up_others(embedded_server: EmbeddedServer, tmp_path: Path) -> None:
    """More are under way than threads compute at a time, over both doors: status and a quick model answer."""
    for _ in range(5):
        predicted(embedded_server, "half_plus_two", [1.0])
    with (
        grpc.insecure_channel(embedded_server.grpc) as channel,
        ThreadPoolExecutor(4) as pool,
        gate(tmp_path / "gate") as held,
    ):
        slow: list[Any] = [
            pool.submit(predicted, embedded_server, "gate", [held.mark(f"{number}")]) for number in range(4)
        ]
        for number in range(4, 16):
            inputs = {"mark": np.array([held.mark(f"{number}").encode()], object)}
            message = request_bytes(model_spec("gate"), inputs)
            slow.append(channel.unary_unary(PREDICT).future(message, timeout=60))
        held.wait_for()  # the others may wait for their turn
        for _ in range(5):
            assert predicted(embedded_server, "half_plus_two", [1.0]) == [2.5]
            assert predict_arrays(embedded_server, "half_plus_two", {"x": ones(1)})["y"] == [2.5]
            assert "AVAILABLE" in embedded_server.state("gate")
        assert not any(call.done() for call in slow)
        held.open()
        for call in slow:
            call.result()


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


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("nothing", '"AVAILABLE"'),
        ("renamed", '"AVAILABLE"'),
        ("session", "Unsupported log_type for warmup: 5"),
        ("text", "Please verify your warmup data is in TFRecord format."),
        ("checksum", "has a wrong checksum of its data"),
    ],
)
def test_records_of_no_request(warmed: EmbeddedServer, name: str, outcome: str) -> None:
    """An empty record is passed over, another model's name counts for nothing; other kinds and broken files fail the load."""
    assert outcome in warmed.state(name)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str, str]:
    """A key, its certificate, and that of the CA."""
    authority = Authority(tmp_path_factory.mktemp("tls"))
    key = authority.sign("server")
    return key.read_text(), key.with_suffix(".crt").read_text(), authority.path.read_text()


@pytest.fixture(scope="module")
def flagged_server(
    saved_models: Path, tmp_path_factory: pytest.TempPathFactory, certificates: tuple[str, str, str]
) -> Iterator[EmbeddedServer]:
    """A server whose options each need a flag: TLS, health and CORS."""
    folder = tmp_path_factory.mktemp("flagged")
    key, cert, authority = map(json.dumps, certificates)
    ssl = folder / "ssl.txt"
    ssl.write_text(f"server_key: {key} server_cert: {cert} custom_ca: {authority} client_verify: true")
    flags = [
        f"--model_base_path={saved_models / 'half_plus_two'}",
        "--model_name=half_plus_two",
        f"--ssl_config_file={ssl}",
        "--enable_grpc_healthcheck_service=true",
        "--rest_api_enable_cors_support=true",
        "--grpc_channel_arguments=grpc.max_connection_age_ms=60000",
        "--host=localhost",
    ]
    server = EmbeddedServer(folder, flags)
    try:
        server.wait_available("half_plus_two", 1)
        yield server
    finally:
        server.kill()


def test_pages_of_any_origin_may_call(flagged_server: EmbeddedServer) -> None:
    origin, path = {"Origin": "http://localhost:3000"}, "/v1/models/half_plus_two:predict"
    status, _, headers = ask(flagged_server, path, method="OPTIONS", headers=origin)
    assert (status, headers["access-control-allow-origin"]) == (200, "*")


def test_tls_is_for_clients_with_a_certificate(
    flagged_server: EmbeddedServer, certificates: tuple[str, str, str]
) -> None:
    """On the port and on the unix socket; `client_verify` ends another's connection before any call."""
    key, cert, authority = (text.encode() for text in certificates)
    trusted = grpc.ssl_channel_credentials(authority, key, cert)
    name = [("grpc.ssl_target_name_override", "localhost")]
    port = f"localhost:{flagged_server.grpc_port}"
    for address in (port, f"unix:{flagged_server.grpc_socket}"):
        with grpc.secure_channel(address, trusted, name) as channel:
            answer = channel.unary_unary(HEALTH)(b"", timeout=60, wait_for_ready=True)
            assert HealthCheckResponse.FromString(answer).status == HealthCheckResponse.SERVING
    with grpc.secure_channel(port, grpc.ssl_channel_credentials(authority)) as channel:
        assert refusal(lambda: channel.unary_unary(HEALTH)(b"", timeout=60))[0] == "UNAVAILABLE"


def test_method_names_are_checked_where_that_is_asked_for(serve: Serve) -> None:
    server = serve("half_plus_two", "--enable_signature_method_name_check")
    assert predict_arrays(server, "half_plus_two", {"x": ones(1)})["y"] == [2.5]
    signature = "__saved_model_init_op"
    code, said = refusal(lambda: predict_arrays(server, "half_plus_two", {"x": ones(1)}, signature=signature))
    assert (code, said.endswith("tensorflow/serving/regress}. Was: ")) == ("INTERNAL", True)


def test_a_file_that_can_not_be_used_ends_the_server(tmp_path: Path, model_server: StartServer) -> None:
    """At once, with status 2 and a sentence that names the file."""
    file = tmp_path / "file.txt"
    file.write_text("device_count: many")
    server = model_server(f"--model_base_path={tmp_path}", f"--tensorflow_session_config_file={file}")
    assert server.wait() == 2
    assert f"Invalid protobuf file: '{file}'" in server.log
    assert "Traceback" not in server.log
