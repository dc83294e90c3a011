"""Inferences that are wrong, or are no messages, sent to a translator in front of a real model server."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from support.grpc_calls import SECONDS, refusal
from support.model_fixtures import EmbeddedServer
from support.translators import Translator
from tfs_proxy.wire.protos.open_inference import ModelInferRequest, ModelInferResponse

pytestmark = pytest.mark.tensorflow
SERVICE = "/inference.GRPCInferenceService"
MODEL = "half_plus_two"
DECODED_BYTES = 100_000
CODES = {"INVALID_ARGUMENT", "NOT_FOUND", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED"}
"""What is a client's own mistake, and what a translator without a supervisor can't know."""


@pytest.fixture(scope="module")
def translator(
    embedded_server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Translator]:
    """A translator whose requests may take little memory."""
    running = Translator(tmp_path_factory.mktemp("translator"), decoded_bytes=DECODED_BYTES)
    running.lead(Path(embedded_server.grpc_socket))
    yield running
    running.close()


def asking(**fields: Any) -> ModelInferRequest:
    """A request that is answered, with some of its fields replaced."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [2], "contents": {"fp32_contents": [1.0, 3.0]}}
    return ModelInferRequest(**{"model_name": MODEL, "id": "id-1", "inputs": [tensor], **fields})


def answer_of(translator: Translator, message: bytes, method: str = "ModelInfer") -> bytes:
    """The answer to bytes that may be a message."""
    call = translator.channel.unary_unary(f"{SERVICE}/{method}")
    return bytes(call(message, timeout=SECONDS))


def refused(translator: Translator, request: ModelInferRequest) -> tuple[str, str]:
    """Code and text that an inference is refused with."""
    return refusal(lambda: answer_of(translator, request.SerializeToString()))


def check_that_it_answers(translator: Translator) -> None:
    """A good inference is answered, and nothing has been logged."""
    answer = ModelInferResponse.FromString(answer_of(translator, asking().SerializeToString()))
    assert (answer.id, [output.name for output in answer.outputs]) == ("id-1", ["y"])
    assert "Traceback" not in translator.log.read_text()


WRONG = {"name": "x", "datatype": "FP64", "shape": [1], "contents": {"fp64_contents": [1.0]}}
UNKNOWN = {"name": "z", "datatype": "FP32", "shape": [1], "contents": {"fp32_contents": [1.0]}}


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"inputs": [WRONG]}, 'The input "x" has the datatype FP64, but the model takes FP32.'),
        ({"inputs": [UNKNOWN]}, 'The input "z" is unknown: the model takes x.'),
        ({"outputs": [{"name": "w"}]}, 'The output "w" is unknown: the model gives y.'),
    ],
)
def test_a_tensor_that_the_model_server_refuses_is_named(
    translator: Translator, fields: dict[str, Any], sentence: str
) -> None:
    """As the signature has it, and as REST says it."""
    assert refused(translator, asking(**fields)) == ("INVALID_ARGUMENT", sentence)


def test_other_refusals_are_the_model_servers_own(translator: Translator) -> None:
    """A signature that it does not have."""
    code, text = refused(translator, asking(parameters={"signature": {"string_param": "nope"}}))
    assert code in {"INVALID_ARGUMENT", "FAILED_PRECONDITION", "NOT_FOUND"}
    assert "nope" in text


def test_what_would_take_much_memory_is_refused(translator: Translator) -> None:
    """A thousand times as much as a message; other calls have a small limit."""
    tensor = {"name": "x", "datatype": "BYTES", "shape": [10_000]}
    code, text = refused(translator, asking(inputs=[tensor], raw_input_contents=[b"\0" * 40_000]))
    assert (code, 'The input "x" needs ' in text) == ("RESOURCE_EXHAUSTED", True)
    check_that_it_answers(translator)


def mutated(dice: random.Random, message: bytes) -> bytes:
    """A message with some bytes changed, removed, doubled or added."""
    changed = bytearray(message)
    for _ in range(dice.randrange(1, 5)):
        at = dice.randrange(len(changed) + 1)
        match dice.randrange(4):
            case 0:
                changed[at : at + 1] = bytes([dice.randrange(256)])
            case 1:
                del changed[at : at + dice.randrange(9)]
            case 2:
                changed[at:at] = changed[at : at + dice.randrange(9)]
            case _:
                changed[at:at] = dice.randbytes(dice.randrange(1, 4))
    return bytes(changed)


@pytest.mark.parametrize("seed", range(8))
def test_no_bytes_end_the_translator(translator: Translator, seed: int) -> None:
    """Each is answered, or refused as a client's mistake, by every method; nothing is logged."""
    dice = random.Random(seed)
    raw = asking(raw_input_contents=[b"\0\0\x80?" * 2], parameters={"p": {"double_param": 0.5}})
    del raw.inputs[0].contents.fp32_contents[:]
    messages = [request.SerializeToString() for request in (asking(), raw)]
    methods = ("ModelInfer",) * 6 + ("ModelMetadata", "ModelReady")
    for _ in range(100):
        message, method = mutated(dice, dice.choice(messages)), dice.choice(methods)
        try:
            answer_of(translator, message, method)
        except grpc.RpcError as error:
            failed: Any = error
            assert failed.code().name in CODES, (message, method, failed.details())
    check_that_it_answers(translator)
