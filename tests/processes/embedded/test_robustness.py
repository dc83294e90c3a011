"""Whatever is thrown at the embedded server, it answers; and it keeps no memory of models gone."""

import http.client
import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.embedded_client import call
from support.grpc_calls import refusal
from support.model_fixtures import EmbeddedServer

pytestmark = pytest.mark.tensorflow

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "rest.json"
CASES: list[dict[str, Any]] = json.loads(GOLDEN.read_text())
METHODS = ("GET", "POST", "POST", "POST", "PUT", "DELETE", "OPTIONS", "HEAD")
FRAGMENTS = (*b'{ } [ ] , : " \\ \\u \\ud800 NaN - 1e 1e999 null \0 \xff 0 .5'.split(), b" ")
VALUE = re.compile(r'"[^"]*"|-?[0-9.]+|\[[^][]*]|true|false|null')
VALUES = """null true "a" "" -9 300 0.5 1e39 36893488147419103232 [] [1,2] [[1.5],[]] {} {"x":[1]} {"b64":"YWJj"}""".split()
PLACES = (
    *"nope /versions/1 /versions/99999999999999999999 /labels/x :classify :nope %00 ?q=1 //".split(),
    "",
)
SEEDS, CASES_PER_SEED = 400, 50


def some_body(dice: random.Random) -> bytes:
    """Random bytes, or a recorded body in which some bytes are broken, or values are replaced by others."""
    if (kind := dice.randrange(4)) == 0:
        return dice.randbytes(dice.randrange(64))
    recorded: str = dice.choice(CASES)["body"] or ""
    if kind > 1:
        return VALUE.sub(lambda one: dice.choice((one[0], one[0], dice.choice(VALUES))), recorded).encode()
    body = bytearray(recorded.encode())
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(len(body) + 1)
        body[at : at + dice.randrange(3)] = dice.choice(FRAGMENTS)
    return bytes(body)


def some_path(dice: random.Random) -> str:
    """A recorded path, often with another place in it."""
    recorded: str = dice.choice(CASES)["path"]
    at = dice.choice([*(match.start() for match in re.finditer("[:/]|$", recorded))])
    return recorded[:at] + dice.choice((dice.choice(PLACES), "")) + recorded[at:]


@pytest.fixture(scope="module")
def connection(embedded_server: EmbeddedServer) -> Iterator[http.client.HTTPConnection]:
    """A connection that is kept open; http.client opens it again where the server closes it."""
    opened = http.client.HTTPConnection("127.0.0.1", embedded_server.rest_port, timeout=30)
    yield opened
    opened.close()


@pytest.mark.timeout(900)
@settings(max_examples=SEEDS, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32))
def test_every_request_has_an_answer(connection: http.client.HTTPConnection, seed: int) -> None:
    """No 5xx but the 501 of types that JSON has no form for, no hang and no crash."""
    dice = random.Random(seed)
    for _ in range(CASES_PER_SEED):
        method, path, body = dice.choice(METHODS), some_path(dice), some_body(dice)
        connection.request(method, path, body)
        reply = connection.getresponse()
        text = reply.read()
        assert reply.status < 500 or reply.status == 501, (method, path, body, text)
        if reply.status == 501:
            assert b"Conversion of JSON Value" in text


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.binary(max_size=80),
    st.sampled_from(["Predict", "Classify", "Regress", "MultiInference", "GetModelMetadata"]),
)
def test_every_message_has_an_answer(embedded_server: EmbeddedServer, message: bytes, method: str) -> None:
    """Random bytes as a gRPC message are an error that says so, or a request that is refused."""
    code, text = refusal(lambda: call(embedded_server, method, message))
    assert code in {"INTERNAL", "INVALID_ARGUMENT", "NOT_FOUND"}
    assert "Internal error" not in text


CYCLES = """
import sys
from pathlib import Path
import numpy as np
from tfs_proxy.embedded.flags import ModelServerFlags
from tfs_proxy.embedded.loader import Loader
from tfs_proxy.embedded.core.metrics import Metrics

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1])

load = Loader(ModelServerFlags(), Metrics())
sizes = []
for _ in range(1000):
    servable = load("m", 1, Path(sys.argv[1]))
    signature = servable.signatures["serving_default"]
    servable.runner(signature, tuple(signature.outputs)).run({"x": np.ones(1, np.float32)})
    servable.retire()
    sizes.append(resident())
print(max(sizes[-100:]) / sizes[50])
"""


@pytest.mark.timeout(600)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_models_that_went_leave_no_memory_behind(saved_models: Path) -> None:
    argv = [sys.executable, "-c", CYCLES, str(saved_models / "half_plus_two" / "1")]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    assert float(done.stdout) < 1.1
