"""Scripts with a gRPC channel of their own: made at import, used in every forked worker, and safe there."""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX, stand_in_words
from support.grpc_servers import started
from support.multi_model import script_model, serving_many
from support.ports import free_port
from support.stack import serving

pytestmark = NEEDS_NGINX

CALLS, CLIENTS, KILLED_AT = 400, 8, 120
MOST_LOST = CLIENTS
"""A killed worker had begun at most one request of each client."""


@pytest.fixture
def script() -> Iterator[str]:
    """A script that asks a gRPC server over a channel which its import makes; the server says it twice."""
    port = free_port()
    server = started(f"127.0.0.1:{port}", "/test.Words/Twice", lambda request, _: request * 2)
    yield (
        "import json, os\n"
        "import grpc\n"
        f"twice = grpc.insecure_channel('127.0.0.1:{port}').unary_unary('/test.Words/Twice')\n"
        "def handler(data, context):\n"
        "    return json.dumps([twice(data.read(), timeout=20).decode(), os.getpid()]), 'application/json'\n"
    )
    server.stop(None)


def ask(port: int, path: str) -> None:
    """Send CALLS requests, CLIENTS at a time, and kill one of two workers in the middle: each is answered, or a 502."""
    outcomes: Counter[str] = Counter()
    pids: set[int] = set()

    def send(number: int) -> None:
        connection = HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            connection.request("POST", path, f"word {number} ", {"Content-Type": "text/plain"})
            answer = connection.getresponse()
            body = json.loads(answer.read())
        except (OSError, HTTPException) as error:
            outcomes[type(error).__name__] += 1
            return
        finally:
            connection.close()
        outcomes[str(answer.status)] += 1
        if answer.status == 200:
            said, pid = body
            assert said == f"word {number} word {number} "
            pids.add(pid)
            if number == KILLED_AT:
                os.kill(pid, signal.SIGKILL)

    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(send, range(CALLS)))
    assert outcomes["200"] >= CALLS - MOST_LOST
    assert outcomes["200"] + outcomes["502"] == CALLS
    assert len(pids) >= 2


def test_two_workers_use_channels_of_their_own(tmp_path: Path, script: str) -> None:
    """400 calls through both workers, one of which is killed: each is answered, or a 502."""
    env = {"SAGEMAKER_GUNICORN_WORKERS": "2"}
    with serving(*stand_in_words(tmp_path, script), env=env) as stack:
        ask(stack.port, "/invocations")


def test_a_model_among_many_uses_a_channel_of_its_own(tmp_path: Path, script: str) -> None:
    """The same for workers that are forked where many models' scripts are."""
    env = {"SAGEMAKER_GUNICORN_WORKERS": "2"}
    with serving_many(env=env) as stack:
        model_fn = "def model_fn(model_dir): pass\n" + script.replace(
            "handler(data, context)", "transform_fn(model, data, kind, accept)"
        ).replace("data.read()", "data")
        stack.loaded("m", script_model(tmp_path / "m.tar.gz", model_fn))
        ask(stack.port, "/models/m/invoke")
