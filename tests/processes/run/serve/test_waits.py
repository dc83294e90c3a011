"""Waits end: a request that has waited for a worker for too long is not begun, and `timeout` bounds one of v2."""

import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import grpc
import pytest

from support import gates
from support.archives import NEEDS_NGINX, pack, stand_in_words, without_nginx
from support.grpc_calls import SECONDS, refusal
from support.multi_model import script_model, serving_many
from support.running import Answer
from support.stack import Stack, serving
from tfs_proxy.wire.protos.open_inference import ModelInferRequest

WAIT_SECONDS, LONG_SECONDS, AWAY_SECONDS = 1.0, 2.5, 20.0
SCRIPT = f"""{gates.SCRIPT.replace("time.sleep(0.01)", "pass")}
import re

def model_fn(model_dir):
    return hold

def transform_fn(hold, data, content_type, accept):
    for mark in re.findall("/tmp/[^\\"]+", str(data)):
        hold(mark)
    return "[]", "application/json"
"""
"""A model that is busy while a call is held, so that the worker class gevent can do nothing else."""


def of_bytes(model: str, text: str, timeout: object, input_name: str = "x") -> tuple[str, str]:
    """Path and body of a request for one string by the Open Inference Protocol."""
    tensor = {"name": input_name, "shape": [1], "datatype": "BYTES", "data": [text]}
    body = {"parameters": {"timeout": timeout}, "inputs": [tensor]}
    return f"/v2/models/{model}/infer", json.dumps(body)


@pytest.fixture(
    params=[
        pytest.param({}, id="nginx", marks=NEEDS_NGINX),
        pytest.param({"SAGEMAKER_GUNICORN_WORKER_CLASS": "sync"}, id="sync", marks=NEEDS_NGINX),
        pytest.param({**without_nginx(), "SAGEMAKER_GUNICORN_WORKER_CLASS": "gevent"}, id="gevent"),
        pytest.param(None, id="many models", marks=NEEDS_NGINX),
    ]
)
def busy(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Stack, str]]:
    """A worker that answers one request at a time, and where it takes them."""
    limit = {"SAGEMAKER_GUNICORN_THREADS": "1", "TFS_PROXY_MAX_WAIT_SECONDS": str(WAIT_SECONDS)}
    if request.param is None:
        with serving_many(env=limit) as many:
            many.loaded("m", script_model(tmp_path / "m.tar.gz", SCRIPT))
            yield many, "/models/m/invoke"
        return
    archive = pack(tmp_path / "m.tar.gz", {"code/inference.py": SCRIPT})
    with serving(str(archive), env={**limit, **request.param}) as stack:
        yield stack, "/invocations"


def test_a_request_that_has_waited_for_too_long_is_not_begun(busy: tuple[Stack, str], tmp_path: Path) -> None:
    """503 by the setting, and sooner by a timeout of its own; Retry-After is how long the last ones waited."""
    stack, path = busy
    ask = partial(stack.ask, "POST", headers={"Content-Type": "application/json"})
    name = "model" if path == "/invocations" else "m"
    with gates.gate(tmp_path / "gate") as gate, ThreadPoolExecutor() as clients:
        first = clients.submit(ask, path, json.dumps(gate.mark("first")))
        gate.wait_for()
        second = clients.submit(ask, path, json.dumps(gate.mark("second")))
        time.sleep(LONG_SECONDS - WAIT_SECONDS / 4)
        third = clients.submit(ask, *of_bytes(name, gate.mark("third"), 100_000))
        fourth = clients.submit(ask, path, json.dumps("soon"))
        time.sleep(WAIT_SECONDS / 2)
        gate.open()
        answers = [call.result() for call in (first, second, third, fourth)]

        assert [answer.status for answer in answers] == [200, 503, 503, 200], stack.log
        assert not Path(gate.mark("second")).exists()
        assert not Path(gate.mark("third")).exists()
    assert int(answers[1].headers["retry-after"]) > 1
    assert "longer than TFS_PROXY_MAX_WAIT_SECONDS allows: 1 s" in answers[1].json["error"]
    assert 'longer than its parameter "timeout" allows: 0.1 s' in answers[2].json["error"]
    odd = ask(*of_bytes(name, "soon", -1))
    assert (odd.status, odd.json["error"]) == (400, WRONG)


WRONG = 'The parameter "timeout" must be a whole number of microseconds.'


def test_the_model_server_has_the_time_of_a_request_s_timeout(served: Stack, tmp_path: Path) -> None:
    """504 over HTTP, DEADLINE_EXCEEDED over gRPC, long before that of the run; a wrong one is refused."""

    def infer(timeout: object, text: str = "ab") -> Answer:
        path, body = of_bytes("gate", text, timeout, "mark")
        return served.ask("POST", path, body, {"Content-Type": "application/json"})

    with gates.gate(tmp_path / "gate") as gate, grpc.insecure_channel(served.grpc) as channel:
        method = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        asked = ModelInferRequest(model_name="gate")
        asked.inputs.add(name="mark", datatype="BYTES", shape=[1]).contents.bytes_contents.append(
            gate.mark("grpc").encode()
        )
        asked.parameters["timeout"].int64_param = 300_000
        late = infer(300_000, gate.mark("rest"))
        late_call = refusal(lambda: method(asked.SerializeToString(), timeout=SECONDS))
        asked.parameters["timeout"].string_param = "1s"
        wrong_call = refusal(lambda: method(asked.SerializeToString(), timeout=SECONDS))

    assert late.status == 504
    assert "The model server did not answer within 0." in late.json["error"]
    assert late_call[0] == "DEADLINE_EXCEEDED"
    assert wrong_call == ("INVALID_ARGUMENT", WRONG)
    assert [(infer(odd).status, infer(odd).json["error"]) for odd in (True, 1.5, "5")] == [(400, WRONG)] * 3
    assert "timeout" not in infer(60_000_000, gate.mark("open")).json.get("parameters", {})


def test_nobody_waits_longer_for_a_model_server_that_is_away(tmp_path: Path) -> None:
    """Neither for its answer nor for the signature that a body is read by: 503 in the setting's time, not in 30 s."""
    env = {**without_nginx(), "TFS_PROXY_MAX_WAIT_SECONDS": str(WAIT_SECONDS)}
    with serving(*stand_in_words(tmp_path), env=env) as stack:
        away = (tmp_path / "tensorflow_model_server").rename(tmp_path / "away")
        os.kill(stack.children()["model_server"][0], signal.SIGKILL)
        stack.wait_until(lambda: not stack.is_ready(), "/ping tells of it")
        began = time.monotonic()
        answers = [stack.invoke("1.0\n", "text/csv"), stack.invoke('{"instances": [1.0]}')]
        assert time.monotonic() - began < AWAY_SECONDS
        away.rename(tmp_path / "tensorflow_model_server")
        stack.wait_until(stack.is_ready, "it is back")
        assert stack.invoke('{"instances": [1.0]}').status == 200

    assert [answer.status for answer in answers] == [503, 503]
