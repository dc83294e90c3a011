"""Clients that do not wait: TensorFlow does not run what waits for its turn in the model server, whatever the door."""

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest

from support.archives import NEEDS_NGINX
from support.gates import Gate, gate
from support.grpc_calls import PREDICT
from support.ports import free_port
from support.predict_messages import request_bytes
from support.stack import Stack, serving
from tfs_proxy.embedded.core.servable import SLOW_SECONDS
from tfs_proxy.wire.protos.predict import model_spec

pytestmark = [pytest.mark.tensorflow, NEEDS_NGINX]

HEARD_SECONDS = 0.3
"""Time in which the model server can know that a client has left, through nginx, too."""


def post(port: int, path: str, mark: str) -> socket.socket:
    """Send a request, and wait for nothing."""
    link = socket.create_connection(("localhost", port), timeout=60)
    body = json.dumps({"instances": [mark]})
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    link.sendall(f"{head}\r\n\r\n{body}".encode())
    return link


def make_slow(stack: Stack, held: Gate) -> None:
    """Have the server measure three calls that compute for a while: only slow ones wait for their turn."""
    for number in range(3):
        with post(stack.port, "/invocations", held.mark(f"slow{number}")) as link:
            held.wait_for(number + 1)
            time.sleep(8 * SLOW_SECONDS)  # the machine may be busy
            held.open()
            assert link.recv(100).startswith(b"HTTP/1.1 200")
        held.shut()


@pytest.mark.parametrize("batching", [False, True])
def test_what_waits_for_a_client_that_has_gone_is_not_run(
    saved_models: Path, tmp_path: Path, batching: bool
) -> None:
    """By nginx alone at both its doors, or a deadline over gRPC; who stays is answered after the call under way."""
    grpc_port = free_port()
    env = {
        "TFS_PROXY_DOORS": "v1",
        "TFS_PROXY_GRPC_PORT": str(grpc_port),
        "SAGEMAKER_TFS_INTER_OP_PARALLELISM": "1",
    }
    if batching:  # of which one call runs, and the next one is in the batch op by then
        env |= {"SAGEMAKER_TFS_ENABLE_BATCHING": "true", "SAGEMAKER_TFS_MAX_BATCH_SIZE": "1"}
        env |= {"SAGEMAKER_TFS_NUM_BATCH_THREADS": "1", "SAGEMAKER_TFS_MAX_ENQUEUED_BATCHES": "9"}
    with (
        serving(str(saved_models / "gate"), "--model-server", "embedded", env=env) as stack,
        gate(tmp_path / "gate") as held,
        grpc.insecure_channel(f"localhost:{grpc_port}") as channel,
    ):
        make_slow(stack, held)
        begun = [
            post(stack.port, "/invocations", held.mark(f"begun{number}")) for number in range(1 + batching)
        ]
        held.wait_for(4)
        time.sleep(HEARD_SECONDS * batching)  # the second call has come to the batch op by then
        gone = [
            post(stack.port, path, held.mark("gone")) for path in ("/invocations", "/v1/models/gate:predict")
        ]
        message = request_bytes(model_spec("gate"), {"mark": np.array([held.mark("gone").encode()], object)})
        with pytest.raises(grpc.RpcError, match="DEADLINE_EXCEEDED"):
            channel.unary_unary(PREDICT)(message, timeout=HEARD_SECONDS)
        for link in gone:
            link.close()
        stays = post(stack.port, "/invocations", held.mark("stays"))
        time.sleep(HEARD_SECONDS)
        held.open()
        for link in (*begun, stays):
            with link:
                assert link.recv(100).startswith(b"HTTP/1.1 200")
        assert not Path(held.mark("gone")).exists()


def test_calls_that_do_not_compute_take_no_turn(saved_models: Path) -> None:
    """A model that waits, as for a device, answers as many at a time as ask."""
    with (
        serving(str(saved_models / "waiting"), "--model-server", "embedded") as stack,
        ThreadPoolExecutor(16) as clients,
    ):
        took = []
        for count in (1, 1, 1, 16):
            began = time.monotonic()
            answers = list(clients.map(stack.invoke, [b'{"instances": [1.0]}'] * count))
            took.append(time.monotonic() - began)
            assert {answer.status for answer in answers} == {200}
    assert took[-1] < 16 / 4 * min(took)
