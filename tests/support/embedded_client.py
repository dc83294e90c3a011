"""Asks an embedded server over REST and gRPC, for tests of it as a process."""

import json
from collections.abc import Iterable
from typing import Any

import grpc

from support.grpc_calls import SECONDS
from support.model_fixtures import EmbeddedServer
from support.predict_messages import Arrays, request_bytes, response_arrays
from tfs_proxy.wire.protos.predict import model_spec

PREDICTION = "tensorflow.serving.PredictionService"
ANY_SIZE = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]

ANSWER_SECONDS = 240.0
"""Less than a test may take; some of them send several times 100 MB at once."""


def ask(
    server: EmbeddedServer,
    path: str,
    body: Any = None,
    *,
    method: str = "",
    headers: dict[str, str] | None = None,
) -> tuple[int, bytes, dict[str, str]]:
    """One request: a body makes it a POST, anything but bytes goes as JSON."""
    raw = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    method = method or ("GET" if raw is None else "POST")
    answer = server.ask(method, path, raw, headers, timeout=ANSWER_SECONDS)
    return answer.status, answer.body, dict(answer.headers)


def predict(server: EmbeddedServer, model: str, document: Any) -> Any:
    return json.loads(ask(server, f"/v1/models/{model}:predict", document)[1])


def predicted(server: EmbeddedServer, model: str, rows: list[Any]) -> Any:
    status, body, _ = ask(server, f"/v1/models/{model}:predict", {"instances": rows})
    assert status == 200, body
    return json.loads(body)["predictions"]


def call(
    server: EmbeddedServer, method: str, message: bytes, *, service: str = PREDICTION, address: str = ""
) -> bytes:
    """One call over gRPC, with messages of any size; raises what grpcio does."""
    with grpc.insecure_channel(address or server.grpc, ANY_SIZE) as channel:
        answer: bytes = channel.unary_unary(f"/{service}/{method}")(message, timeout=SECONDS)
    return answer


def predict_arrays(
    server: EmbeddedServer, model: str, inputs: Arrays, outputs: Iterable[str] = (), **spec: Any
) -> dict[str, Any]:
    """Predict over gRPC; ``outputs`` names the wanted ones, none means all."""
    message = request_bytes(model_spec(model, **spec), inputs, outputs)
    return response_arrays(call(server, "Predict", message))
