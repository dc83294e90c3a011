"""What the translator sends to model servers, seen by one that notes everything."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from support.grpc_calls import PREDICT, SECONDS, refusal
from support.grpc_servers import started
from support.translators import Translator
from support.waiting import wait_until
from tfs_proxy.wire.protos import PredictRequest
from tfs_proxy.wire.protos.open_inference import ModelInferRequest, ModelInferResponse


def request_for(model: str) -> bytes:
    """An inference of a model, with one number."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [1], "contents": {"fp32_contents": [1.0]}}
    return ModelInferRequest(model_name=model, id="id-1", inputs=[tensor]).SerializeToString()


class NotingServer:
    """A gRPC server on ``socket`` that gives no outputs; the model's name decides what becomes of a call."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.models: list[str] = []
        self.metadata: dict[str, str | bytes] = {}
        self.seconds_left = 0.0
        self.begun, self.ended, self.goes_on = threading.Event(), threading.Event(), threading.Event()
        self._server = started(f"unix:{socket}", PREDICT, self._answer)

    def _answer(self, message: bytes, context: Any) -> bytes:
        model = PredictRequest.FromString(message).model_spec.name
        self.models.append(model)
        self.metadata = dict(context.invocation_metadata())
        self.seconds_left = context.time_remaining()
        if model == "refused":
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "as it is: ä")
        if model == "held":
            context.add_callback(self.ended.set)
            self.begun.set()
            self.goes_on.wait(SECONDS)
        return b""

    def stop(self) -> None:
        """End it at once."""
        self.goes_on.set()
        self._server.stop(None).wait()


@pytest.fixture
def translator(tmp_path: Path) -> Iterator[Translator]:
    """A translator without a model server."""
    running = Translator(tmp_path)
    yield running
    running.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NotingServer]:
    """One model server."""
    running = NotingServer(tmp_path / "0.sock")
    yield running
    running.stop()


def answers(translator: Translator, model: str = "a") -> bool:
    """Whether an inference is answered."""
    answer = ModelInferResponse.FromString(translator.infer(request_for(model), timeout=SECONDS))
    return (answer.model_name, answer.id) == (model, "id-1")


def test_metadata_and_deadline_are_passed_on(translator: Translator, server: NotingServer) -> None:
    """The client's own, also binary, and what is left of its time."""
    translator.lead(server.socket)
    metadata = (("x-request-id", "id-1"), ("traceparent", "00-1-2-01"), ("own-bin", b"\x00\xff"))

    translator.infer(request_for("a"), timeout=20, metadata=metadata)

    assert {name: server.metadata[name] for name, _ in metadata} == dict(metadata)
    assert 0 < server.seconds_left < 25  # on the wire it is rounded up


def test_a_refusal_comes_back_as_it_is(translator: Translator, server: NotingServer) -> None:
    """Code and text."""
    translator.lead(server.socket)

    refused = refusal(lambda: translator.infer(request_for("refused"), timeout=SECONDS))

    assert refused == ("FAILED_PRECONDITION", "as it is: ä")


def test_a_client_that_cancels_ends_the_call_behind(translator: Translator, server: NotingServer) -> None:
    """The model server learns of it."""
    translator.lead(server.socket)
    call = translator.infer.future(request_for("held"), timeout=SECONDS)
    assert server.begun.wait(SECONDS)

    call.cancel()

    assert server.ended.wait(SECONDS)


def test_model_servers_take_turns_and_one_that_is_down_is_passed_by(
    translator: Translator, server: NotingServer, tmp_path: Path
) -> None:
    """If none takes connections, the client may try again."""
    other = NotingServer(tmp_path / "1.sock")
    translator.lead(server.socket, other.socket)
    assert all(answers(translator) for _ in range(4))
    assert (len(server.models), len(other.models)) == (2, 2)
    other.stop()
    assert all(answers(translator) for _ in range(4))

    for sockets in ((other.socket,), ()):
        translator.lead(*sockets)
        assert refusal(lambda: translator.infer(request_for("a"), timeout=SECONDS)) == (
            "UNAVAILABLE",
            "no model server is ready: starting, or being restarted",
        )


def test_nothing_is_left_of_a_model_server_that_has_gone(
    translator: Translator, server: NotingServer, tmp_path: Path
) -> None:
    """A call under way there ends; its channel is closed then."""
    other = NotingServer(tmp_path / "1.sock")
    translator.lead(other.socket)
    assert answers(translator)
    before = translator.descriptors()
    translator.lead(server.socket)
    held = translator.infer.future(request_for("held"), timeout=SECONDS)
    assert server.begun.wait(SECONDS)

    translator.lead(other.socket)
    assert answers(translator)

    assert not server.ended.is_set()
    server.goes_on.set()
    held.result()
    wait_until(lambda: translator.descriptors() <= before, SECONDS, "its channel is closed")
    other.stop()
