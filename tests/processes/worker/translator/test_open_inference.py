"""The Open Inference Protocol over gRPC, on real stacks: one archive, and models that come and go."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from support.archives import NEEDS_NGINX, pack, without_nginx
from support.grpc_calls import SECONDS, refusal
from support.multi_model import MultiModelStack, saying, script_model, serving_many
from support.scraping import scrape
from support.stack import Stack, serving
from support.waiting import wait_until
from tfs_proxy.wire.protos import open_inference as messages
from tfs_proxy.wire.protos.open_inference import ModelInferRequest, ModelInferResponse

pytestmark = [pytest.mark.tensorflow, NEEDS_NGINX]
GRPC = {"TFS_PROXY_GRPC_PORT": "0"}
WORDS = ("--model-server", "embedded")
CALLS = "tfs_proxy_grpc_requests_total"
MODEL = "half_plus_two"


@pytest.fixture(scope="module")
def single(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two models and a label, on two model servers."""
    folders = {name: saved_models / name for name in (MODEL, "half_plus_three")}
    archive = pack(tmp_path_factory.mktemp("single") / "model.tar.gz", {}, folders)
    env = {**GRPC, "SAGEMAKER_TFS_VERSION_LABELS": "stable=1", "SAGEMAKER_TFS_INSTANCE_COUNT": "2"}
    env = {**env, "SAGEMAKER_TFS_DEFAULT_MODEL_NAME": MODEL}
    with serving(str(archive), *WORDS, env=env) as running:
        yield running


@pytest.fixture(scope="module")
def many(saved_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MultiModelStack]:
    """A folder of a model that is loaded by its first call, and of a script that is the model."""
    folder = tmp_path_factory.mktemp("archives")
    pack(folder / f"{MODEL}.tar.gz", {}, {MODEL: saved_models / MODEL})
    script_model(folder / "words.tar.gz", saying("words"))
    with serving_many("--multi-model", str(folder), *WORDS, env=GRPC) as running:
        yield running


@pytest.fixture
def channel(single: Stack) -> Iterator[grpc.Channel]:
    """A client of the single archive."""
    with grpc.insecure_channel(single.grpc) as opened:
        yield opened


@pytest.fixture
def many_channel(many: MultiModelStack) -> Iterator[grpc.Channel]:
    """A client of the many models."""
    with grpc.insecure_channel(many.grpc) as opened:
        yield opened


def call(channel: grpc.Channel, name: str, /, **fields: Any) -> Any:
    """A call by its name; ``fields`` are those of its request."""
    kinds = vars(messages)
    request, answer = (kinds.get(f"{name}{part}") for part in ("Request", "Response"))
    assert request is not None
    assert answer is not None
    method = channel.unary_unary(f"/inference.GRPCInferenceService/{name}")
    return answer.FromString(method(request(**fields).SerializeToString(), timeout=SECONDS))


def asking(x: Any, model: str = MODEL, **fields: Any) -> ModelInferRequest:
    """A request with the raw floats ``x``."""
    array = np.asarray(x, np.float32)
    tensor = {"name": "x", "datatype": "FP32", "shape": array.shape}
    return ModelInferRequest(
        model_name=model, inputs=[tensor], raw_input_contents=[array.tobytes()], **fields
    )


def infer(channel: grpc.Channel, request: ModelInferRequest) -> ModelInferResponse:
    """ModelInfer."""
    method = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
    return ModelInferResponse.FromString(method(request.SerializeToString(), timeout=SECONDS))


def values(answer: ModelInferResponse) -> list[float]:
    """The only output, as floats."""
    (raw,) = answer.raw_output_contents
    return [float(value) for value in np.frombuffer(raw, np.float32)]


def test_an_inference_of_one_archive(channel: grpc.Channel) -> None:
    """By version, by label and without either; id and parameters come back."""
    for version in ("", "1", "stable"):
        request = asking([1.0, 3.0], model_version=version, id="id-1")
        request.parameters["mine"].int64_param = 3
        answer = infer(channel, request)
        assert values(answer) == [2.5, 3.5]
        assert (answer.model_version, answer.id, answer.parameters["mine"].int64_param) == ("1", "id-1", 3)
    assert values(infer(channel, asking([1.0], "half_plus_three"))) == [3.5]


def test_large_tensors_and_wrong_ones(channel: grpc.Channel) -> None:
    """A tensor that is translated beside the loop, and one that is refused by its name."""
    many_values = np.arange(500_000, dtype=np.float32)
    assert values(infer(channel, asking(many_values))) == (many_values / 2 + 2).tolist()

    wrong = asking([1.0, 2.0])
    del wrong.inputs[0].shape[:]
    assert refusal(lambda: infer(channel, wrong)) == (
        "INVALID_ARGUMENT",
        'The input "x" has 8 bytes, but FP32 of the shape [] takes 4.',
    )
    assert refusal(lambda: infer(channel, asking([1.0], "nobody")))[0] == "NOT_FOUND"
    assert refusal(lambda: infer(channel, asking([1.0], model_version="7")))[0] == "NOT_FOUND"


def counts(stack: Stack, labels: dict[str, str], wanted: float) -> bool:
    """Whether so many calls of these labels have been counted."""
    return scrape(stack).total(CALLS, **labels) == wanted


def test_calls_count_by_method(single: Stack, channel: grpc.Channel) -> None:
    """Also those that fail."""
    route = "/inference.GRPCInferenceService/ModelInfer"
    before = scrape(single)

    infer(channel, asking([1.0]))
    assert refusal(lambda: infer(channel, asking([1.0], outputs=[{"name": "w"}])))[0] == "INVALID_ARGUMENT"

    for status in ("0", "3"):
        labels = {"http_route": route, "grpc_status": status}
        wanted = before.total(CALLS, **labels) + 1
        wait_until(partial(counts, single, labels, wanted), SECONDS, f"{labels} counts")


def test_many_models_are_not_loaded_by_a_call(many: MultiModelStack, many_channel: grpc.Channel) -> None:
    """One that is loaded is answered; a script that is the model answers over HTTP only."""
    assert not call(many_channel, "ModelReady", name=MODEL).ready
    assert refusal(lambda: infer(many_channel, asking([1.0])))[0] == "NOT_FOUND"
    for name in (MODEL, "words"):
        assert many.ask("POST", f"/models/{name}/invoke", '{"instances": [1.0]}').status == 200
    assert call(many_channel, "ModelReady", name=MODEL).ready
    assert values(infer(many_channel, asking([1.0]))) == [2.5]

    assert many.ask("DELETE", f"/models/{MODEL}").status == 200
    assert not call(many_channel, "ModelReady", name=MODEL).ready

    code, text = refusal(lambda: infer(many_channel, asking([1.0], "words")))
    assert (code, "over HTTP only" in text) == ("UNIMPLEMENTED", True)
    assert refusal(lambda: infer(many_channel, asking([1.0], "nobody")))[0] == "NOT_FOUND"


def test_a_script_that_is_the_model_is_not_asked_over_grpc(tmp_path: Path) -> None:
    """The rest of the service answers."""
    script_model(tmp_path / "words.tar.gz", saying("words"))
    with (
        serving(str(tmp_path / "words.tar.gz"), env={**GRPC, **without_nginx()}) as running,
        grpc.insecure_channel(running.grpc) as opened,
    ):
        assert call(opened, "ServerReady").ready
        code, text = refusal(lambda: infer(opened, asking([1.0], "words")))
        assert (code, "over HTTP only" in text) == ("UNIMPLEMENTED", True)
        assert refusal(lambda: call(opened, "ModelMetadata", name="words"))[0] == "UNIMPLEMENTED"
