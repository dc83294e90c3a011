"""The Open Inference Protocol over REST in the whole stack; tests/judges send every datatype both ways."""

import http.client
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from support.archives import without_nginx
from support.processes import descendants
from support.running import Answer
from support.stack import Stack, serving
from tfs_proxy.wire.header_names import INFERENCE_HEADER_LENGTH

pytestmark = pytest.mark.tensorflow

TRANSLATOR_SECONDS = 10.0
"""More than a translator needs to start on a machine with much else to do; it takes half a second alone."""

MODEL = "echo"
"""The model that gives back what it gets."""


def infer(stack: Stack, **more: Any) -> Answer:
    """Ask with one number for the signature that gives it back."""
    tensor = {"name": "x", "shape": [1], "datatype": "INT8", "data": [1]}
    document = {"inputs": [tensor], "parameters": {"signature": "int8"}, **more}
    return stack.ask("POST", f"/v2/models/{MODEL}/infer", json.dumps(document))


def translator_of(stack: Stack) -> int:
    """The process of the translator."""
    (pid,) = [
        pid
        for pid in descendants(stack.process.pid)
        if b"tfs_proxy.worker.translator" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    return pid


@pytest.mark.slow
def test_a_model_is_not_ready_while_the_model_server_is_away(saved_models: Path) -> None:
    """Although its signature is known; it is ready again once the model server is."""
    with serving(
        str(saved_models), env={**without_nginx(), "SAGEMAKER_TFS_DEFAULT_MODEL_NAME": MODEL}
    ) as stack:

        def ready() -> int:
            return stack.ask("GET", f"/v2/models/{MODEL}/ready").status

        assert_refusals_keep_connections(stack)
        assert infer(stack).status == 200
        (model_server,) = stack.children()["embedded"]
        os.kill(model_server, signal.SIGKILL)

        stack.wait_until(lambda: ready() == 503, "the model is not ready")
        stack.wait_until(lambda: ready() == 200, "the model is ready again")


@pytest.mark.slow
def test_the_server_is_not_ready_without_its_translator(saved_models: Path) -> None:
    """KServe's probe follows gRPC, which all clients of the port need; SageMaker's never does."""
    env = {"TFS_PROXY_GRPC_PORT": "0"}
    with serving(str(saved_models / "echo"), "--model-server", "embedded", env=env) as stack:

        def ready() -> int:
            return stack.ask("GET", "/v2/health/ready").status

        assert ready() == 200
        for _ in range(3):
            os.kill(translator_of(stack), signal.SIGKILL)
            killed = time.monotonic()
            stack.wait_until(lambda: ready() == 503, "the server is not ready")
            assert stack.ask("GET", "/ping").status == 200
            stack.wait_until(lambda: ready() == 200, "the server is ready again")
            assert time.monotonic() - killed < TRANSLATOR_SECONDS


def test_a_connection_outlives_refusals(served: Stack) -> None:
    """Behind nginx, too."""
    assert_refusals_keep_connections(served)


def assert_refusals_keep_connections(stack: Stack) -> None:
    """A body that is refused has been read to its end."""
    connection = http.client.HTTPConnection("127.0.0.1", stack.port, timeout=60)
    statuses = []
    for size in ("5", "x", "999999", "0"):
        connection.request(
            "POST", f"/v2/models/{MODEL}/infer", b"{}" + bytes(100_000), {INFERENCE_HEADER_LENGTH: size}
        )
        answer = connection.getresponse()
        statuses.append((answer.status, "error" in json.loads(answer.read())))
    connection.close()

    assert statuses == [(400, True)] * 4
