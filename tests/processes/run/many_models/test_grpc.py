"""gRPC with many models: nginx passes it to the model servers, each of which has all models."""

import gzip
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from support.archives import NEEDS_NGINX, pack
from support.gates import gate
from support.grpc_calls import PREDICT, SECONDS, STATUS, hold, ones, predict, refusal
from support.multi_model import MultiModelStack, saying, script_model, serving_many
from support.predict_messages import request_bytes, response_arrays
from tfs_proxy.wire import protos
from tfs_proxy.wire.protos.predict import model_spec

pytestmark = [
    pytest.mark.tensorflow,
    NEEDS_NGINX,
]
LIMIT_MB = 2
HELD_SECONDS = 0.5
GRPC = {"TFS_PROXY_GRPC_PORT": "0"}
WORDS = ("--model-server", "embedded")


@pytest.fixture(scope="module")
def stack(saved_models: Path) -> Iterator[MultiModelStack]:
    """Two models that come from SageMaker's calls, each on two model servers, behind a small limit."""
    env = {**GRPC, "SAGEMAKER_MAX_PAYLOAD_IN_MB": str(LIMIT_MB), "SAGEMAKER_TFS_INSTANCE_COUNT": "2"}
    with serving_many(*WORDS, env=env) as running:
        running.loaded("half", saved_models / "half_plus_two")
        running.loaded("gate", saved_models / "gate")
        yield running


@pytest.fixture
def channel(stack: MultiModelStack) -> Iterator[grpc.Channel]:
    """A client of the published port."""
    with grpc.insecure_channel(stack.grpc) as opened:
        yield opened


def answers(channel: grpc.Channel, model: str) -> bool:
    """Whether a Predict goes well."""
    try:
        return bool(predict(channel, ones(1), model)["y"].tolist() == [2.5])
    except grpc.RpcError:
        return False


def test_each_model_answers_by_its_name(channel: grpc.Channel, tmp_path: Path) -> None:
    """Predict reaches the model that the request names, as bytes that nobody rewrites."""
    with gate(tmp_path / "gate") as held:
        held.open()
        assert hold(channel, held.mark())["y"].tolist() == [len(held.mark())]
    assert predict(channel, ones(2), "half")["y"].tolist() == [2.5, 2.5]


def test_status_and_metadata_are_the_model_servers(channel: grpc.Channel) -> None:
    """GetModelStatus of the other service, and GetModelMetadata."""
    status = protos.GetModelStatusRequest()
    status.model_spec.name = "half"
    metadata = protos.GetModelMetadataRequest(metadata_field=["signature_def"])
    metadata.model_spec.name = "half"

    states = protos.GetModelStatusResponse.FromString(
        channel.unary_unary(STATUS)(status.SerializeToString(), timeout=SECONDS)
    ).model_version_status
    described = channel.unary_unary("/tensorflow.serving.PredictionService/GetModelMetadata")(
        metadata.SerializeToString(), timeout=SECONDS
    )

    assert [(status.version, status.state) for status in states] == [(1, 30)]
    assert b"serving_default" in described


@pytest.mark.parametrize(
    ("message", "code", "sentence"),
    [
        (request_bytes(model_spec("nope"), {}), "NOT_FOUND", "Servable not found for request: Latest(nope)"),
        (
            request_bytes(model_spec("../half"), {}),
            "NOT_FOUND",
            "Servable not found for request: Latest(../half)",
        ),
        (request_bytes(model_spec(""), {}), "INVALID_ARGUMENT", "ModelSpec has no name specified."),
        (b"", "INVALID_ARGUMENT", "Missing ModelSpec"),
        (b"\x0a\x7f", "INVALID_ARGUMENT", "The request is not a message of Predict"),
        (gzip.compress(b"x")[:-9], "INVALID_ARGUMENT", "The gzip body is cut off: it ends inside its data."),
    ],
    ids=["unknown", "a path", "empty", "none", "broken", "cut off"],
)
def test_calls_for_no_model_are_refused_in_a_sentence(
    channel: grpc.Channel, message: bytes, code: str, sentence: str
) -> None:
    """A name that nobody has loaded, no name, and bytes that are not a message."""
    assert refusal(lambda: channel.unary_unary(PREDICT)(message, timeout=SECONDS)) == (code, sentence)


def test_messages_have_a_limit_as_they_are_sent(channel: grpc.Channel) -> None:
    """A packed message reaches the model."""
    small, large = (request_bytes(model_spec("half"), {"x": ones(count)}) for count in (1000, LIMIT_MB << 18))
    call = channel.unary_unary(PREDICT)

    packed = call(small, timeout=SECONDS, compression=grpc.Compression.Gzip)

    assert response_arrays(packed)["y"].shape == (1000,)
    assert refusal(lambda: call(large, timeout=SECONDS))[0] == "RESOURCE_EXHAUSTED"
    assert answers(channel, "half")


def test_a_script_model_has_no_grpc_api(
    stack: MultiModelStack, channel: grpc.Channel, tmp_path: Path
) -> None:
    """No model server knows it."""
    stack.loaded("script", script_model(tmp_path / "a.tar.gz", saying("script")))

    assert refusal(lambda: predict(channel, ones(1), "script"))[0] == "NOT_FOUND"
    assert stack.unload("script").status == 200


def test_models_of_one_archive_are_called_by_their_own_names(
    stack: MultiModelStack, channel: grpc.Channel, saved_models: Path, tmp_path: Path
) -> None:
    """That of the archive is none of them."""
    folders = {"two": saved_models / "half_plus_two", "three": saved_models / "half_plus_three"}
    stack.loaded("pair", pack(tmp_path / "pair.tar.gz", {}, folders))

    assert predict(channel, ones(1), "pair.two")["y"].tolist() == [2.5]
    assert refusal(lambda: predict(channel, ones(1), "pair"))[0] == "NOT_FOUND"
    assert stack.unload("pair").status == 200
    assert refusal(lambda: predict(channel, ones(1), "pair.two"))[0] == "NOT_FOUND"


def test_an_unload_waits_for_calls(
    stack: MultiModelStack, channel: grpc.Channel, saved_models: Path, tmp_path: Path
) -> None:
    """The call gets its answer; one that comes after it is refused."""
    stack.loaded("busy", saved_models / "gate")
    with ThreadPoolExecutor(2) as pool, gate(tmp_path / "gate") as held:
        call = pool.submit(hold, channel, held.mark(), "busy")
        held.wait_for()
        unloading = pool.submit(stack.unload, "busy")
        stack.wait_until(lambda: stack.described("busy").status == 404, "the model is being unloaded")
        assert wait([unloading], HELD_SECONDS).not_done
        held.open()
        assert call.result()["y"].tolist() == [len(held.mark())]
        assert unloading.result().status == 200
        assert refusal(lambda: hold(channel, held.mark(), "busy"))[0] == "NOT_FOUND"


def test_a_model_server_that_dies_is_passed_by(stack: MultiModelStack, channel: grpc.Channel) -> None:
    """The model's other one answers meanwhile; both do once it is back."""

    def first() -> list[int]:
        """The first model server of each stack."""
        lines = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in stack.children()["embedded"]}
        return [pid for pid, line in lines.items() if b"tfs0.sock" in line]

    dead = first()
    for pid in dead:
        os.kill(pid, signal.SIGKILL)

    stack.wait_until(lambda: all(answers(channel, "half") for _ in range(20)), "the other one answers")
    stack.wait_until(
        lambda: len(first()) == len(dead) and set(dead).isdisjoint(first()), "they are started again"
    )
    stack.wait_until(stack.is_ready, "they have their models again")
    assert all(answers(channel, "half") for _ in range(20))


def test_a_call_loads_no_model(saved_models: Path, tmp_path: Path) -> None:
    """With --multi-model; SIGTERM lets the call in flight end, and refuses new ones."""
    (tmp_path / "many").mkdir()
    pack(tmp_path / "many" / "gate.tar.gz", {}, {"gate": saved_models / "gate"})
    with serving_many(*WORDS, "--multi-model", str(tmp_path / "many"), env=GRPC) as stack:
        with (
            grpc.insecure_channel(stack.grpc) as opened,
            ThreadPoolExecutor(1) as pool,
            gate(tmp_path / "gate") as held,
        ):
            assert refusal(lambda: hold(opened, held.mark()))[0] == "NOT_FOUND"
            stack.loaded("gate", tmp_path / "many" / "gate.tar.gz")
            slow = pool.submit(hold, opened, held.mark())
            held.wait_for()
            stack.process.send_signal(signal.SIGTERM)
            stack.wait_for_log("requests in flight have")
            assert wait([slow], HELD_SECONDS).not_done
            held.open()
            assert slow.result()["y"].tolist() == [len(held.mark())]
        assert stack.wait() == 0
        assert list(stack.home.iterdir()) == []


@pytest.mark.slow
def test_a_model_that_is_used_by_grpc_alone_is_not_unloaded(saved_models: Path, tmp_path: Path) -> None:
    """The model servers count its requests; another one, which was loaded later, makes room for a third."""
    for name in ("busy", "idle", "third"):
        pack(tmp_path / f"{name}.tar.gz", {}, {"half_plus_two": saved_models / "half_plus_two"})
    env = {**GRPC, "TFS_PROXY_MAX_LOADED_MODELS": "2"}
    with (
        serving_many(*WORDS, "--multi-model", str(tmp_path), env=env) as stack,
        grpc.insecure_channel(stack.grpc) as opened,
    ):
        for name in ("busy", "idle"):
            stack.loaded(name, tmp_path / f"{name}.tar.gz")
        for _ in range(12):
            time.sleep(0.5)
            assert answers(opened, "busy")
        stack.loaded("third", tmp_path / "third.tar.gz")
        assert stack.described("idle").status == 404
        assert answers(opened, "busy")


def test_probes_and_tools_are_answered(channel: grpc.Channel) -> None:
    """Health of the run, and the published services by name."""
    assert HealthStub(channel).Check(HealthCheckRequest(), timeout=SECONDS).status == 1
    assert "tensorflow.serving.PredictionService" in ProtoReflectionDescriptorDatabase(channel).get_services()
