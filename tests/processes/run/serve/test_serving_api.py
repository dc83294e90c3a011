"""TF Serving's own doors, as its clients use them: REST under /v1/ and gRPC on a port of its own."""

import contextlib
import gzip
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from support.archives import NEEDS_NGINX, pack, stand_in_words
from support.gates import gate
from support.grpc_calls import SECONDS, hold, ones, predict, refusal
from support.stack import Stack, ended, serving
from tfs_proxy.wire import protos

pytestmark = [pytest.mark.tensorflow, NEEDS_NGINX]

SCRIPT = """
def handler(data, context):
    return "the script", "text/plain"
"""
LIMIT_MB = 2
LOADING = ("UNAVAILABLE", "no model server is ready: starting, or being restarted")


@pytest.fixture(scope="module")
def stack(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Models on two model servers, behind a script and a small body limit."""
    folders = {name: saved_models / name for name in ("half_plus_two", "versions", "gate")}
    archive = pack(tmp_path_factory.mktemp("doors") / "model.tar.gz", {"code/inference.py": SCRIPT}, folders)
    env = {
        "SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "half_plus_two",
        "SAGEMAKER_MAX_PAYLOAD_IN_MB": str(LIMIT_MB),
        "SAGEMAKER_TFS_VERSION_LABELS": "stable=1",
        "SAGEMAKER_TFS_INSTANCE_COUNT": "2",
        "TFS_PROXY_GRPC_PORT": "0",
    }
    with serving(str(archive), "--model-server", "embedded", env=env) as running:
        yield running


@pytest.fixture
def channel(stack: Stack) -> Iterator[grpc.Channel]:
    """A client of the published gRPC port."""
    with grpc.insecure_channel(stack.grpc) as opened:
        yield opened


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/v1/models/versions/versions/1:predict", [2.5]),
        ("/v1/models/versions/labels/stable:predict", [2.5]),
        ("/v1/models/versions:predict", [3.5]),
        ("/V1/Models/versions:Predict", None),
    ],
)
def test_versions_and_labels_are_chosen_by_the_path(stack: Stack, path: str, answer: object) -> None:
    """As clients of TensorFlow Serving write it, in any case of letters; the script sees none of it."""
    reply = stack.ask("POST", path, '{"instances": [1.0]}')

    assert reply.json.get("predictions") == answer
    assert stack.invoke('{"instances": [1.0]}').body == b"the script"


@pytest.mark.parametrize(
    "path",
    [
        "/monitoring/prometheus/metrics",
        "/v2/models/half_plus_two/metadata",
        "/v1",
        "/x/../v1/models/half_plus_two",
        "//v1/models/half_plus_two",
        "/monitoring/prometheus/metrics/../../../v1/models/half_plus_two",
    ],
)
def test_nothing_but_v1_is_published(stack: Stack, path: str) -> None:
    """Other paths of the model server stay inside, also where dots lead to them; JSON says so."""
    reply = stack.raw(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    head, _, body = reply.partition(b"\r\n\r\n")
    status, error = int(head.split()[1]), json.loads(body)["error"]

    assert status == 404
    assert error


def test_bodies_are_limited_packed_or_not(stack: Stack) -> None:
    """413 names the setting, also for a small body that unpacks to a large one; gzip as such is fine."""
    path, packed = "/v1/models/half_plus_two:predict", {"Content-Encoding": "gzip"}
    large = json.dumps({"instances": [1.0] * (LIMIT_MB << 18)}).encode()

    assert stack.ask("POST", path, gzip.compress(b'{"instances": [1.0]}'), packed).json == {
        "predictions": [2.5]
    }
    refused = stack.ask("POST", path, large)
    assert (refused.status, stack.ask("POST", path, gzip.compress(large), packed).status) == (413, 413)
    assert "SAGEMAKER_MAX_PAYLOAD_IN_MB" in refused.json["error"]


def test_what_the_model_server_refuses_over_grpc_is_its_own(stack: Stack, channel: grpc.Channel) -> None:
    """The words of its REST API, which the log has, too; a label reaches it."""
    assert predict(channel, ones(1), "versions", label="stable")["y"].tolist() == [2.5]
    code, text = refusal(lambda: predict(channel, ones(1), "nope"))
    assert (code, text) == ("NOT_FOUND", stack.ask("GET", "/v1/models/nope/metadata").json["error"])
    stack.wait_for_log(f"reason={text}")


@pytest.mark.parametrize(
    "method",
    [
        "/tensorflow.serving.ModelService/HandleReloadConfigRequest",
        "/tensorflow.serving.ModelService/../tensorflow.serving.ModelService/HandleReloadConfigRequest",
        "/tensorflow.serving.PredictionService/../tensorflow.serving.ModelService/HandleReloadConfigRequest",
        "/tensorflow.serving.PredictionService/%2e%2e/tensorflow.serving.ModelService/HandleReloadConfigRequest",
        "/tensorflow.serving.ModelService/GetModelStatus/../HandleReloadConfigRequest",
        "/tensorflow.serving.SessionService/SessionRun",
        "/tensorflow.ProfilerService/Profile",
        "/tensorflow.ProfilerService/Monitor",
        "/tensorflow.ProfileAnalysis/EnumSessions",
        "/grpc.health.v1.Health/List",
        "/.refused/12",
        "/",
    ],
)
def test_what_is_not_for_clients_stays_inside(stack: Stack, channel: grpc.Channel, method: str) -> None:
    """Loading any path, the profiler and all else are refused in gRPC's own way, and nothing happened."""
    request = protos.ReloadConfigRequest()
    request.config.model_config_list.config.add(name="evil", base_path="/etc", model_platform="tensorflow")

    code, text = refusal(lambda: channel.unary_unary(method)(request.SerializeToString(), timeout=SECONDS))

    assert code == "UNIMPLEMENTED"
    assert "PredictionService" in text
    assert stack.ask("GET", "/v1/models/evil").status == 404
    assert predict(channel, ones(1))["y"].tolist() == [2.5]


def test_grpc_takes_large_messages_up_to_the_limit(stack: Stack, channel: grpc.Channel) -> None:
    """Past 4 MB only the client's own limit counts; above ours RESOURCE_EXHAUSTED names the setting."""
    most = (LIMIT_MB << 18) - 100
    assert predict(channel, ones(most))["y"].shape == (most,)

    code, text = refusal(lambda: predict(channel, ones(LIMIT_MB << 18)))

    assert code == "RESOURCE_EXHAUSTED"
    assert "SAGEMAKER_MAX_PAYLOAD_IN_MB" in text
    stack.wait_for_log(f"reason={text}")
    assert predict(channel, ones(1))["y"].tolist() == [2.5]


def test_a_clients_own_deadline_holds(channel: grpc.Channel, tmp_path: Path) -> None:
    """The client is answered when its time is over, whatever the model still does."""
    with gate(tmp_path / "gate") as held:
        code, _ = refusal(lambda: hold(channel, held.mark(), seconds=0.2))

    assert code == "DEADLINE_EXCEEDED"


def test_many_calls_share_one_channel(channel: grpc.Channel) -> None:
    """More calls at once than a connection of the model server would carry."""
    with ThreadPoolExecutor(200) as pool:
        answers = list(pool.map(lambda number: predict(channel, ones(1) * number)["y"][0], range(1000)))

    assert answers == [number / 2 + 2 for number in range(1000)]


def test_calls_are_told_that_models_load(tmp_path: Path) -> None:
    """gRPC says UNAVAILABLE, with a reason."""
    with (
        gate(tmp_path / "gate") as held,
        contextlib.closing(
            Stack(*stand_in_words(tmp_path), env={"STAND_IN_GATE": held.mark(), "TFS_PROXY_GRPC_PORT": "0"})
        ) as stack,
        grpc.insecure_channel(stack.grpc) as opened,
    ):
        stack.wait_until(lambda: refusal(lambda: predict(opened, ones(1), "m")) == LOADING, "calls are told")


def test_the_usual_port_is_done_without_where_it_is_taken(tmp_path: Path) -> None:
    """As with a second container on the host's network: it says so, and serves."""
    with socket.socket() as holder:
        # Connections that have ended may keep it from being bound, though no process listens.
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with contextlib.suppress(OSError):  # somebody else has it: as good
            holder.bind(("127.0.0.1", 8500))
            holder.listen()
        env = {"TFS_PROXY_GRPC_PORT": "auto"}
        with serving(*stand_in_words(tmp_path), env=env) as stack:
            assert stack.invoke('{"instances": [1]}').status == 200
            stack.wait_for_log("gRPC API is not published: can't listen on 127.0.0.1:8500")


def test_a_port_that_is_taken_ends_the_start(tmp_path: Path) -> None:
    """The sentence names the port and the setting."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        status, log = ended(*stand_in_words(tmp_path), env={"TFS_PROXY_GRPC_PORT": str(port)})
    assert status == 2
    assert f"can't listen on 127.0.0.1:{port}" in log
    assert "TFS_PROXY_GRPC_PORT" in log


def test_a_model_servers_headers_are_no_orders_to_nginx(tmp_path: Path) -> None:
    """Neither past the workers nor through them does an answer become another page."""
    env = {"STAND_IN_HEADERS": '{"X-Accel-Redirect": "/metrics", "X-Accel-Limit-Rate": "1"}'}
    with serving(*stand_in_words(tmp_path), env=env) as stack:
        answers = [
            stack.ask("POST", "/invocations", "{}", {"Content-Type": "application/json"}),
            stack.ask("POST", "/v1/models/m:predict", "{}"),
            stack.ask("POST", "/v1/models/m:predict", "{}", {"X-Tfs-Proxy-Timing": "1"}),
        ]
    assert [(each.status, b'"predictions"' in each.body) for each in answers] == [(200, True)] * 3
    assert not [name for each in answers for name in each.headers if name.startswith("x-accel")]


def test_an_answer_that_never_ends_does_not_fill_a_worker(tmp_path: Path) -> None:
    """It is a 502 whose sentence names the setting, and the worker goes on."""
    through_a_worker = {"X-Tfs-Proxy-Timing": "1"}
    with serving(*stand_in_words(tmp_path), env={"TFS_PROXY_MAX_ANSWER_MB": "1"}) as stack:
        workers = stack.workers()
        answers = [
            stack.ask("POST", "/v1/models/m:predict", body, through_a_worker) for body in ("endless", "{}")
        ]
        assert stack.workers() == workers
    assert [each.status for each in answers] == [502, 200]
    assert b"answer is over 1 MB. TFS_PROXY_MAX_ANSWER_MB" in answers[0].body
