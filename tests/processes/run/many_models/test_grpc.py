"""gRPC with many models: a router of ours reads the model's name, and passes the bytes on."""

import contextlib
import gzip
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest
from grpc_health.v1.health_pb2_grpc import HealthStub
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from support import gates
from support.archives import NEEDS_NGINX, pack
from support.gates import gate
from support.grpc_calls import PREDICT, SECONDS, STATUS, hold, ones, predict, refusal
from support.multi_model import MultiModelStack, saying, script_model, serving_many
from support.predict_messages import request_bytes, response_arrays
from support.processes import descendants
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


def router_of(stack: MultiModelStack) -> int | None:
    """The process id of the router that runs now."""
    for pid in descendants(stack.process.pid):
        with contextlib.suppress(OSError):
            if b"tfs_proxy.worker.router" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    return None


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
        (request_bytes(model_spec("nope"), {}), "NOT_FOUND", "model nope is not loaded"),
        (request_bytes(model_spec("../half"), {}), "NOT_FOUND", "model ../half is not loaded"),
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


def test_messages_have_a_limit_packed_or_not(channel: grpc.Channel) -> None:
    """A packed message is unpacked up to the limit, and reaches the model."""
    small, large = (request_bytes(model_spec("half"), {"x": ones(count)}) for count in (1000, LIMIT_MB << 18))
    call = channel.unary_unary(PREDICT)

    packed = call(small, timeout=SECONDS, compression=grpc.Compression.Gzip)

    assert response_arrays(packed)["y"].shape == (1000,)
    for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
        with pytest.raises(grpc.RpcError) as refused:
            call(large, timeout=SECONDS, compression=compression)
        error: Any = refused.value
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert answers(channel, "half")


def test_calls_count_for_their_model(stack: MultiModelStack, channel: grpc.Channel) -> None:
    """By version and outcome, beside those over HTTP; one that nobody has is `other`."""

    def counted(*labels: str) -> float:
        wanted = set(labels)
        return sum(
            float(line.rpartition(" ")[2])
            for line in stack.ask("GET", "/metrics").body.decode().splitlines()
            if line.startswith("tfs_proxy_model_requests_total{") and all(label in line for label in wanted)
        )

    ok = ('model="half"', 'version="1"', 'outcome="ok"')
    unknown = ('model="other"', 'outcome="client_error"')
    before, unknown_before = counted(*ok), counted(*unknown)
    for _ in range(3):
        predict(channel, ones(1), "half", version=1)
    refusal(lambda: predict(channel, ones(1), "nope"))

    stack.wait_until(lambda: counted(*ok) == before + 3, "the calls are counted")
    stack.wait_until(lambda: counted(*unknown) == unknown_before + 1, "so is the one for no model")


def test_clients_do_not_see_what_the_router_tells_nginx(channel: grpc.Channel) -> None:
    """Neither in answers nor in refusals."""
    message = request_bytes(model_spec("half"), {"x": ones(1)})
    _, good = channel.unary_unary(PREDICT).with_call(message, timeout=SECONDS)
    with pytest.raises(grpc.RpcError) as refused:
        predict(channel, ones(1), "nope")
    bad: Any = refused.value

    for call in (good, bad):
        seen = {key for key, _ in (*call.initial_metadata(), *call.trailing_metadata())}
        assert not any(key.startswith("x-tfs-proxy") for key in seen)


def test_a_script_model_has_no_grpc_api(
    stack: MultiModelStack, channel: grpc.Channel, tmp_path: Path
) -> None:
    """The sentence says why."""
    stack.loaded("script", script_model(tmp_path / "a.tar.gz", saying("script")))

    code, text = refusal(lambda: predict(channel, ones(1), "script"))

    assert (code, text) == (
        "NOT_FOUND",
        "no model server has a model script: the archive loaded as script has others, or its script is the model",
    )
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


def test_a_call_waits_for_a_load_and_others_do_not(
    stack: MultiModelStack, channel: grpc.Channel, saved_models: Path, tmp_path: Path
) -> None:
    """It is answered by the model once that is there."""
    with ThreadPoolExecutor(2) as pool, gate(tmp_path / "gate") as shut:
        script = f"{gates.SCRIPT}\nhold({shut.mark()!r})\n\ndef handler(data, context):\n    return data\n"
        models = {"half_plus_two": saved_models / "half_plus_two"}
        archive = pack(tmp_path / "late.tar.gz", {"code/inference.py": script}, models)
        loading = pool.submit(stack.load, "late", archive)
        shut.wait_for()
        waiting = pool.submit(predict, channel, ones(1), "late")
        assert wait([waiting], HELD_SECONDS).not_done
        assert answers(channel, "half")
        shut.open()
        assert loading.result().status == 200
        assert waiting.result()["y"].tolist() == [2.5]
    assert stack.unload("late").status == 200
    assert refusal(lambda: predict(channel, ones(1), "late")) == ("NOT_FOUND", "model late is not loaded")


def test_an_unload_waits_for_calls(
    stack: MultiModelStack, channel: grpc.Channel, saved_models: Path, tmp_path: Path
) -> None:
    """The call gets its answer; one that comes meanwhile is refused."""
    stack.loaded("busy", saved_models / "gate")
    with ThreadPoolExecutor(2) as pool, gate(tmp_path / "gate") as held:
        call = pool.submit(hold, channel, held.mark(), "busy")
        held.wait_for()
        unloading = pool.submit(stack.unload, "busy")
        stack.wait_until(lambda: stack.described("busy").status == 404, "the model is being unloaded")
        code, text = refusal(lambda: hold(channel, held.mark("other"), "busy"))
        assert (code, text) == ("UNAVAILABLE", "model busy is unloading")
        assert wait([unloading], HELD_SECONDS).not_done
        held.open()
        assert call.result()["y"].tolist() == [len(held.mark())]
        assert unloading.result().status == 200


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


def test_a_router_that_is_killed_comes_back(stack: MultiModelStack, channel: grpc.Channel) -> None:
    """Calls work again, and no model was loaded anew."""
    dead = router_of(stack)
    assert dead is not None
    os.kill(dead, signal.SIGKILL)

    stack.wait_until(lambda: router_of(stack) not in {dead, None}, "there is another router")
    stack.wait_until(lambda: answers(channel, "half"), "calls are answered")
    assert stack.is_ready()


def test_a_model_is_loaded_by_the_first_call_that_names_it(saved_models: Path, tmp_path: Path) -> None:
    """With --multi-model; SIGTERM lets the call in flight end, and refuses new ones."""
    (tmp_path / "many" / "team").mkdir(parents=True)
    pack(tmp_path / "many" / "team" / "half.tar.gz", {}, {"half_plus_two": saved_models / "half_plus_two"})
    pack(tmp_path / "many" / "gate.tar.gz", {}, {"gate": saved_models / "gate"})
    with serving_many(*WORDS, "--multi-model", str(tmp_path / "many"), env=GRPC) as stack:
        with (
            grpc.insecure_channel(stack.grpc) as opened,
            ThreadPoolExecutor(1) as pool,
            gate(tmp_path / "gate") as held,
        ):
            assert predict(opened, ones(1), "team--half")["y"].tolist() == [2.5]
            slow = pool.submit(hold, opened, held.mark())
            held.wait_for()
            stack.process.send_signal(signal.SIGTERM)
            stack.wait_for_log("requests in flight have")
            assert wait([slow], HELD_SECONDS).not_done
            held.open()
            assert slow.result()["y"].tolist() == [len(held.mark())]
        assert stack.wait() == 0
        assert list(stack.home.iterdir()) == []


def test_probes_and_tools_are_answered(channel: grpc.Channel) -> None:
    """Health of the run, and the published services by name."""
    assert HealthStub(channel).Check(HealthCheckRequest(), timeout=SECONDS).status == 1
    assert "tensorflow.serving.PredictionService" in ProtoReflectionDescriptorDatabase(channel).get_services()
