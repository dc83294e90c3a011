"""The Open Inference Protocol over REST in the whole stack: what the model gets and gives is what was sent."""

import http.client
import json
import math
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from support.archives import without_nginx
from support.processes import descendants
from support.running import Answer
from support.stack import Stack, serving
from tfs_proxy.data.open_inference.datatypes import DATATYPES, Datatype, to_raw
from tfs_proxy.wire.header_names import INFERENCE_HEADER_LENGTH

pytestmark = pytest.mark.tensorflow

SIGNATURES = {
    datatype.name: datatype.tensorflow.removeprefix("DT_").lower() for datatype in DATATYPES.values()
} | {"FP16": "float16", "FP32": "float32", "FP64": "float64"}
"""The signature of the model `echo` that gives back a tensor of a datatype."""

WITH_JSON = [name for name, datatype in DATATYPES.items() if datatype.has_json]
ROUTER_SECONDS = 10.0
"""More than a router needs to start on a machine with much else to do; it takes half a second alone."""

MODEL = "echo"
"""The model that gives back what it gets."""

SHAPES = [(), (0,), (2, 0, 3), (4,), (2, 2, 1)]


def edges(datatype: Datatype) -> list[Any]:
    """Four values of a datatype, those at its ends among them."""
    dtype = datatype.array
    if datatype.name == "BYTES":
        return [b"", "ä\0".encode(), b"a" * 300, b"\n"]
    if datatype.name == "BOOL":
        return [True, False, True, True]
    if datatype.name == "BF16":
        return [1.0, -0.0, 2.0**127, 2.0**-126]
    if dtype.kind == "f":
        limits = np.finfo(dtype)
        return [limits.max, limits.smallest_subnormal, -0.0, 1 / 3]
    whole = np.iinfo(dtype)
    return [whole.min, whole.max, 0, 1]


def array_of(datatype: Datatype, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """As many of the values as the shape takes."""
    array = np.empty(4, datatype.array)
    array[:] = edges(datatype)
    return array[: math.prod(shape)].reshape(shape)


def infer(stack: Stack, document: dict[str, Any], raw: bytes | None = None, **headers: str) -> Answer:
    """Ask for an inference, with raw bytes behind the JSON if there are any."""
    text = json.dumps(document).encode()
    if raw is not None:
        headers[INFERENCE_HEADER_LENGTH] = str(len(text))
    return stack.ask("POST", f"/v2/models/{MODEL}/infer", text + (raw or b""), headers)


def asked(name: str, shape: tuple[int, ...], **tensor: Any) -> dict[str, Any]:
    """A request of one tensor for the signature that gives it back."""
    return {
        "inputs": [{"name": "x", "shape": list(shape), "datatype": name, **tensor}],
        "parameters": {"signature": SIGNATURES[name]},
    }


def split(answer: Answer) -> tuple[dict[str, Any], bytes]:
    """The only output of an answer, and its raw bytes."""
    assert answer.status == 200, answer.body
    size = int(answer.headers.get(INFERENCE_HEADER_LENGTH.lower()) or len(answer.body))
    (output,) = json.loads(answer.body[:size])["outputs"]
    return output, answer.body[size:]


def model_servers(stack: Stack) -> list[int]:
    """The processes of the embedded model server."""
    pids = descendants(stack.process.pid)
    return [pid for pid in pids if b"tfs_proxy.embedded" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", DATATYPES)
def test_binary_tensors_come_back_bit_by_bit(served: Stack, name: str, shape: tuple[int, ...]) -> None:
    """Of every datatype, scalars and empty tensors included."""
    raw = bytes(to_raw(array_of(DATATYPES[name], shape), DATATYPES[name]))
    document = asked(name, shape, parameters={"binary_data_size": len(raw)})
    document["parameters"]["binary_data_output"] = True

    output, back = split(infer(served, document, raw))

    assert back == raw
    assert output == {
        "name": "y",
        "datatype": name,
        "shape": list(shape),
        "parameters": {"binary_data_size": len(raw)},
    }


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", WITH_JSON)
def test_json_tensors_come_back_exactly(served: Stack, name: str, shape: tuple[int, ...]) -> None:
    """Of every datatype that JSON carries; the answer is flat, the request nested."""
    array = array_of(DATATYPES[name], shape)
    if name == "BYTES":
        array = np.array([value.decode() for value in array.flat], object).reshape(shape)

    output, raw = split(infer(served, asked(name, shape, data=array.tolist())))

    assert np.array(output["data"], array.dtype).tolist() == array.ravel().tolist()
    assert (output["shape"], output["datatype"], raw) == (list(shape), name, b"")


@pytest.mark.parametrize("name", ["FP16", "BF16"])
def test_halves_need_binary_data(served: Stack, name: str) -> None:
    """The sentence says so, of what comes and of what goes."""
    refused = infer(served, asked(name, (1,), data=[1]))
    unanswered = infer(served, asked(name, (1,), parameters={"binary_data_size": 2}), b"\0\0")

    assert (refused.status, unanswered.status) == (400, 400)
    assert "binary" in refused.json["error"]
    assert "binary" in unanswered.json["error"]


def test_bytes_that_are_no_text_need_binary_data(served: Stack) -> None:
    """JSON has no way to carry them."""
    answer = infer(
        served, asked("BYTES", (1,), parameters={"binary_data_size": 5}), b"\1\0\0\0\xff", Accept="*/*"
    )

    assert answer.status == 400
    assert "binary" in answer.json["error"]


def test_the_answer_names_the_version_that_answered(served: Stack) -> None:
    """Also to a request that names none."""
    answer = infer(served, {**asked("INT8", (1,), data=[1]), "id": "seven"})

    assert {key: answer.json[key] for key in ("model_name", "model_version", "id")} == {
        "model_name": MODEL,
        "model_version": "1",
        "id": "seven",
    }


@pytest.mark.parametrize(
    ("path", "status"),
    [("", 200), ("/versions/1", 200), ("/versions/2", 404), ("/versions/nope", 404)],
)
def test_readiness_by_version(served: Stack, path: str, status: int) -> None:
    """As the model server has it; and there is no such label."""
    assert served.ask("GET", f"/v2/models/{MODEL}{path}/ready").status == status


@pytest.mark.slow
def test_a_model_is_not_ready_while_the_model_server_is_away(saved_models: Path) -> None:
    """Although its signature is known; it is ready again once the model server is."""
    with serving(
        str(saved_models), env={**without_nginx(), "SAGEMAKER_TFS_DEFAULT_MODEL_NAME": MODEL}
    ) as stack:

        def ready() -> int:
            return stack.ask("GET", f"/v2/models/{MODEL}/ready").status

        assert_refusals_keep_connections(stack)
        assert infer(stack, asked("INT8", (1,), data=[1])).status == 200
        (model_server,) = model_servers(stack)
        os.kill(model_server, signal.SIGKILL)

        stack.wait_until(lambda: ready() == 503, "the model is not ready")
        stack.wait_until(lambda: ready() == 200, "the model is ready again")


@pytest.mark.slow
def test_the_server_is_not_ready_without_its_grpc_router(saved_models: Path) -> None:
    """KServe's probe follows gRPC, which all clients of the port need; SageMaker's never does."""
    env = {"TFS_PROXY_GRPC_PORT": "0"}
    with serving(str(saved_models / "echo"), "--model-server", "embedded", env=env) as stack:

        def ready() -> int:
            return stack.ask("GET", "/v2/health/ready").status

        assert ready() == 200
        (router,) = [
            pid for pid in descendants(stack.process.pid) if "tfs_proxy.worker.router" in words_of(pid)
        ]
        for _ in range(3):
            os.kill(router, signal.SIGKILL)
            killed = time.monotonic()
            stack.wait_until(lambda: ready() == 503, "the server is not ready")
            assert stack.ask("GET", "/ping").status == 200
            stack.wait_until(lambda: ready() == 200, "the server is ready again")
            assert time.monotonic() - killed < ROUTER_SECONDS
            (router,) = [
                pid for pid in descendants(stack.process.pid) if "tfs_proxy.worker.router" in words_of(pid)
            ]


def words_of(pid: int) -> str:
    """A process's command line."""
    return Path(f"/proc/{pid}/cmdline").read_text()


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
