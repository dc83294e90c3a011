"""Whatever is thrown at the embedded server, it answers; and it keeps no memory of models gone."""

import http.client
import json
import random
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
MODELS = ("half_plus_two versions multi_io types scalar matrix special bytes regress_classify nope ").split(
    " "
)
SIGNATURES = ("serving_default", "norm", "text", "classify_labels", "regress_x_to_y", "nope", "", 1, None)
NAMES = ("x", "y", "a", "b", "m", "i32", "u8", "f16", "flag", "b64", "image_bytes", "text", "")
METHODS = ("GET", "POST", "POST", "POST", "PUT", "DELETE", "OPTIONS", "HEAD")
FRAGMENTS = (*b'{ } [ ] , : " \\ \\u \\ud800 NaN - 1e 1e999 null \0 \xff 0 .5'.split(), b" ")
SEEDS, CASES_PER_SEED = 400, 50


def some_value(dice: random.Random, depth: int = 0) -> Any:
    """A JSON value, more or less of the kind that a tensor is."""
    kind = dice.randrange(9 if depth < 4 else 6)
    if kind >= 6:
        return (
            [some_value(dice, depth + 1) for _ in range(dice.randrange(4))]
            if kind < 8
            else some_object(dice, depth)
        )
    plain = (
        None,
        dice.random() < 0.5,
        dice.randrange(-(2**70), 2**70),
        dice.gauss(0, 1e3),
        "text",
        {"b64": "YWJj"},
    )
    return plain[kind] if kind != 2 or dice.random() < 0.2 else dice.randrange(-9, 300)


def some_object(dice: random.Random, depth: int) -> dict[str, Any]:
    """An object with names that models know, and some that they don't."""
    return {dice.choice(NAMES): some_value(dice, depth + 1) for _ in range(dice.randrange(4))}


def some_body(dice: random.Random) -> bytes:
    """Random bytes, a recorded body with some of it broken, or a body of the right form."""
    kind = dice.randrange(4)
    if kind == 0:
        return dice.randbytes(dice.randrange(64))
    if kind == 1:
        body = bytearray((dice.choice(CASES)["body"] or "").encode())
        for _ in range(dice.randrange(1, 4)):
            at = dice.randrange(len(body) + 1)
            body[at : at + dice.randrange(3)] = dice.choice(FRAGMENTS)
        return bytes(body)
    document: dict[str, Any] = {"signature_name": dice.choice(SIGNATURES)} if dice.random() < 0.4 else {}
    for key in dice.sample(("instances", "inputs", "examples", "context"), dice.choice((1, 1, 1, 2))):
        rows = [some_value(dice) for _ in range(dice.randrange(5))]
        document[key] = dice.choice(
            (rows, rows, [some_object(dice, 0)], some_object(dice, 0), some_value(dice))
        )
    return json.dumps(document).encode()


def some_path(dice: random.Random) -> str:
    model = f"/v1/models/{dice.choice(MODELS)}"
    which = dice.choice(
        ("", "", "", "/versions/1", "/versions/99999999999999999999", "/labels/x", "/versions/x", "/")
    )
    verb = dice.choice(
        (":predict", ":predict", ":classify", ":regress", "/metadata", "", ":nope", "%00", "?q=1")
    )
    if dice.random() < 0.05:
        return "/" + "".join(dice.choice("abc/:%v1._~2") for _ in range(dice.randrange(20)))
    return model + which + verb


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
