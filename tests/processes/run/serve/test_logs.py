"""The log of a real stack: one format, requests by their ids, the level, and nothing that is secret."""

import itertools
import json
import re
import signal
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException, IncompleteRead
from pathlib import Path
from typing import Any

import pytest

from support import gates
from support.archives import NEEDS_NGINX, pack, stand_in_words, without_nginx
from support.stack import Stack, serving
from tfs_proxy.model.report.first_request import TRY
from tfs_proxy.wire.error_body import NOTHING_HERE

FRONTS = [pytest.param({}, id="nginx", marks=NEEDS_NGINX), pytest.param(without_nginx(), id="gunicorn")]
CLASSES = [
    pytest.param({**without_nginx(), "SAGEMAKER_GUNICORN_WORKER_CLASS": name}, id=name)
    for name in ("sync", "gevent")
]
JSON = {"TFS_PROXY_LOG_FORMAT": "json"}
ENTRY = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR|CRITICAL) +[a-z -]+\d?(\[\d+\])?: .*|  .*"
)
SECRET = "s3cr3t-w0rd"
SECRET_NUMBER = 314159265358979
SCRIPT = """
import logging, os, sys

print("at import")

def input_handler(data, context):
    body = data.read()
    print("printed", end="")
    print()
    logging.getLogger("mine").info("logged", extra={"answer": 42})
    context.logger.warning("by the context")
    os.system("echo by a program")
    if b"raise" in body:
        raise KeyError("what the script says")
    return b'{"instances": [1]}'

async def output_handler(response, context):
    print("in a coroutine")
    print("without an end", end="", file=sys.stderr)
    return response.content, "application/json"
"""


def start(folder: Path, env: Mapping[str, str], script: str | None = SCRIPT) -> Any:
    """A stack of the stand-in model with the script."""
    return serving(*stand_in_words(folder, script), env=env)


def entries(stack: Stack) -> list[dict[str, Any]]:
    """All that it has logged so far."""
    return [json.loads(line) for line in stack.log.splitlines()]


@pytest.mark.parametrize("front", [*FRONTS, *CLASSES])
def test_every_line_of_a_request_has_its_id(tmp_path: Path, front: Mapping[str, str]) -> None:
    """Prints and logs of a script, in coroutines too, and the line of the request; the log is JSON from end to end."""
    with start(tmp_path, {**JSON, **front, "TFS_PROXY_ACCESS_LOG": "all"}) as stack:
        answer = stack.invoke(b"{}", X_Request_Id="one")
        failed = stack.invoke(b"raise", X_Request_Id="two")
        assert (answer.status, failed.status) == (200, 500)
        stack.wait_until(lambda: "request" in of(stack, "one").keys() & of(stack, "two").keys(), "both end")

    # After its end: each process has a way of its own to the log.
    one, two = of(stack, "one"), of(stack, "two")
    assert one.keys() == {
        *("printed", "logged", "by the context", "in a coroutine", "without an end", "request"),
    }
    assert {"printed", "logged", "by the context", "request"} < two.keys()
    assert one["logged"]["answer"] == 42
    assert one["request"] | {"path": "/invocations", "status": 200} == one["request"]
    assert one["request"]["input_handler_ms"] > 0
    (failure,) = (
        entry for entry in two.values() if entry["level"] == "error" and entry["message"] != "request"
    )
    assert "what the script says" in failure["message"]
    everything = entries(stack)
    assert all(entry.keys() >= {"time", "level", "process", "message"} for entry in everything)
    assert {"by a program", "at import"} <= {entry["message"] for entry in everything}
    assert {"worker", "gunicorn", "tfs-proxy"} <= {entry["process"] for entry in everything}


def of(stack: Stack, request_id: str) -> dict[str, dict[str, Any]]:
    """The entries of a request, by message."""
    return {entry["message"]: entry for entry in entries(stack) if entry.get("request_id") == request_id}


HELD = (
    gates.SCRIPT
    + """

def handler(data, context):
    path, _, fails = data.read().decode().partition(" ")
    hold(path)
    if fails:
        raise ValueError("held no longer")
    return b"{}", "application/json"
"""
)


def test_requests_that_end_while_draining_are_logged_at_once(tmp_path: Path) -> None:
    """Nobody has to wait for the slowest request in flight to learn of the one that failed."""
    with (
        gates.gate(tmp_path / "first") as first,
        gates.gate(tmp_path / "second") as second,
        start(tmp_path, {}, HELD) as stack,
        ThreadPoolExecutor(2) as clients,
    ):
        failing = clients.submit(stack.invoke, f"{first.mark()} fails", X_Request_Id="fails")
        waiting = clients.submit(stack.invoke, second.mark(), X_Request_Id="waits")
        first.wait_for()
        second.wait_for()
        stack.process.send_signal(signal.SIGTERM)
        stack.wait_for_log("SIGTERM")
        first.open()
        assert failing.result().status == 500
        stack.wait_for_log(r"[fails] request method=POST path=/invocations status=500")
        assert not waiting.done()
        second.open()
        assert waiting.result().status == 200


def test_text_has_one_form_and_nothing_for_authors(tmp_path: Path) -> None:
    """Time, level, process and message; no paths of sockets, no colours away from a terminal."""
    with start(tmp_path, {}) as stack:
        stack.wait_for_log(TRY)
        stack.invoke(b"raise")
        stack.wait_for_log("what the script says")

    shown = [line for line in stack.log.splitlines() if "stand-in model server is up" not in line]
    assert [line for line in shown if not ENTRY.fullmatch(line)] == []
    assert [line for line in shown if re.search(r"\.sock|\x1b|Booting worker|inherited sockets", line)] == []


def test_only_requests_that_fail_have_lines_by_default(tmp_path: Path) -> None:
    """One each, whoever refuses it; never those that succeed, nor /ping."""
    with start(tmp_path, {**JSON, "SAGEMAKER_MAX_PAYLOAD_IN_MB": "1"}, script=None) as stack:
        sent = {
            "good": stack.ask("GET", "/execution-parameters", headers={"X-Request-Id": "good"}),
            "ping": stack.ask("GET", "/ping", headers={"X-Request-Id": "ping"}),
            "type": stack.ask("POST", "/invocations", b"?", {"X-Request-Id": "type", "Content-Type": "a/b"}),
            "large": stack.ask("POST", "/invocations", b" " * 1_100_000, {"X-Request-Id": "large"}),
            "path": stack.ask("GET", f"/nothing?{SECRET}", headers={"X-Request-Id": "path"}),
        }
        failed = {name: answer.status for name, answer in sent.items() if answer.status >= 400}
        assert failed == {"type": 415, "large": 413, "path": 404}
        stack.wait_until(lambda: len(lines(stack)) >= len(failed), "each has its line")

    assert sorted((entry["request_id"], entry["status"]) for entry in lines(stack)) == sorted(failed.items())
    reasons = {entry["request_id"]: entry["reason"] for entry in lines(stack)}
    assert reasons["type"].startswith("Content-Type … can't be read")
    assert "the body is larger than 1 MB" in reasons["large"].replace("The", "the")
    assert reasons["path"] == NOTHING_HERE


def test_a_refusal_of_the_model_server_has_its_reason(saved_models: Path) -> None:
    """In its own words up to a client's value, or in ours."""
    bodies = {
        "type": f'{{"instances": ["{SECRET}"]}}',
        "ours": f'[[{SECRET_NUMBER}, "{SECRET}"], [1]]',
        "name": f'{{"instances": [{{"{SECRET}": 1}}]}}',
    }
    with serving(str(saved_models / "half_plus_two"), "--model-server", "embedded", env=JSON) as stack:
        for name, body in bodies.items():
            assert stack.ask("POST", "/invocations", body, {"X-Request-Id": name}).status == 400
        stack.wait_until(lambda: len(lines(stack)) == len(bodies), "each has its line")

    assert {entry["request_id"]: entry["reason"] for entry in lines(stack)} == {
        "type": "Record 1, input …: … is a string, but DT_FLOAT takes numbers.",
        "ours": "Record 2, input …: a list of 1 values where the first has 2.",
        "name": "Failed to process element: Record 1 names …",
    }
    assert SECRET not in stack.log


def test_a_script_that_fails_over_a_refusal_has_both_reasons(saved_models: Path, tmp_path: Path) -> None:
    """The model server's up to a client's value."""
    script = "import json\ndef output_handler(r, context): return json.loads(r.content)['predictions'], 'a/b'"
    archive = pack(
        tmp_path / "m.tar.gz", {"code/inference.py": script}, {"m": saved_models / "half_plus_two"}
    )
    with serving(str(archive), "--model-server", "embedded", env=JSON) as stack:
        assert stack.invoke(f'{{"instances": [{{"{SECRET}": 1}}]}}').status == 400
        stack.wait_until(lambda: lines(stack), "it has its line")

    (line,) = lines(stack)
    assert (
        line["reason"]
        == "Failed to process element: Record 1 names … (then output_handler failed: KeyError: …)"
    )
    assert SECRET not in stack.log


def lines(stack: Stack) -> list[dict[str, Any]]:
    """The lines of requests, but for what was refused during the start."""
    return [entry for entry in entries(stack) if entry["message"] == "request" and entry["status"] != 503]


@NEEDS_NGINX
def test_an_answer_that_breaks_off_is_in_the_log_by_its_id(tmp_path: Path) -> None:
    """Its status is 200 by then, so that it has no line of its own; nginx says so, too."""
    script = "def handler(data, context):\n    yield b'begun'\n    raise ValueError('broken')\n"
    with start(tmp_path, JSON, script=script) as stack:
        with suppress(IncompleteRead):
            stack.invoke(b"{}", X_Request_Id="one")
        stack.wait_for_log("prematurely")

    assert "error" in {entry["level"] for entry in of(stack, "one").values()}


BODIES = (
    f'{{"instances": ["{SECRET}"]}}',
    f"{{{SECRET}",
    f'"{SECRET}", raise',
    f'[{{"x": "{SECRET}"}}]',
    f'[{{"{SECRET}": 1}}]',
    f'{{"inputs": {{"{SECRET}": [{SECRET_NUMBER}], "x": "a\\"{SECRET}"}}}}',
    f"[[{SECRET_NUMBER}, [{SECRET_NUMBER}]]]",
    f'x\n"{SECRET}"" {SECRET} ""{SECRET}"\n',
    f"{SECRET_NUMBER},{SECRET}",
    SECRET * 120_000,
)
TYPES = (
    ("application/json", "*/*"),
    ("application/json", f"{SECRET}/x"),
    ("text/csv", "*/*"),
    (f"x/{SECRET}", "*/*"),
)
SECRETS = {"Authorization": f"Bearer {SECRET}", "Cookie": f"session={SECRET}", "X-Api-Key": SECRET}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("front", "script"),
    [
        pytest.param({}, None, id="nginx-model", marks=NEEDS_NGINX),
        pytest.param(without_nginx(), None, id="gunicorn-model"),
        pytest.param({}, SCRIPT, id="nginx-script", marks=NEEDS_NGINX),
        *(
            pytest.param(
                {**without_nginx(), "SAGEMAKER_GUNICORN_WORKER_CLASS": name}, SCRIPT, id=f"{name}-script"
            )
            for name in ("gthread", "sync", "gevent")
        ),
    ],
)
def test_no_secret_is_logged(tmp_path: Path, front: Mapping[str, str], script: str | None) -> None:
    """Neither bodies, credentials, queries nor values of the environment, at debug, on any path."""
    env = {
        **front,
        "SAGEMAKER_GUNICORN_LOGLEVEL": "debug",
        "SAGEMAKER_TFS_NGINX_LOGLEVEL": "debug",
        "TFS_PROXY_ACCESS_LOG": "all",
        "SAGEMAKER_MAX_PAYLOAD_IN_MB": "1",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "MY_DATABASE_PASSWORD": SECRET,
    }
    with start(tmp_path, env, script) as stack:
        for method, path in itertools.product(
            ("GET", "POST", "DELETE"), ("/invocations", "/v1/models/m:predict", "/ping", "/nothing")
        ):
            bodies = BODIES if method == "POST" else BODIES[:1]
            for body, (content_type, accept) in itertools.product(bodies, TYPES):
                with_type = {**SECRETS, "Content-Type": content_type, "Accept": accept}
                send(stack, method, f"{path}?token={SECRET}", body, with_type)
        for broken in (
            f"{SECRET}\r\n\r\n",
            f"GET /?{SECRET} HTTP/9.9\r\n\r\n",
            f"GET /ping HTTP/1.1\r\nHost: x\r\n{SECRET}\r\n\r\n",
            f"GET /ping HTTP/1.1\r\nHost: x\r\nA b: {SECRET}\r\n\r\n",
            f'GET /ping HTTP/1.1\r\nHost: x\r\nmy_token: "{SECRET}"\r\n\r\n',
            f"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Length: {SECRET}\r\n\r\n",
            f"POST /invocations HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: {SECRET}\r\n\r\n",
            f"POST /invocations HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{SECRET}\r\n",
            f"GET / HTTP/1.1\r\nHost: x\r\nX-Large: {SECRET * 9000}\r\n\r\n",
        ):
            stack.raw(broken.encode(), seconds=3)

    assert [line for line in stack.log.splitlines() if SECRET in line or str(SECRET_NUMBER) in line] == []
    assert "request" in stack.log
    assert "reason=" in stack.log


def send(stack: Stack, method: str, path: str, body: str, headers: Mapping[str, str]) -> None:
    """One request; what becomes of it does not matter."""
    try:
        stack.ask(method, path, body, headers)
    except (OSError, HTTPException):
        return  # refused before the body was through


@pytest.mark.slow
def test_the_stages_of_a_pipeline_log_in_its_form(tmp_path: Path) -> None:
    """Each entry of a stage has its number."""
    script = (
        "import logging\ndef model_fn(model_dir): ...\n"
        "def predict_fn(data, model):\n    logging.info('now seen')\n    return data\n"
    )
    stage = str(pack(tmp_path / "stage.tar.gz", {"code/inference.py": script}))
    with serving(stage, stage, env=JSON) as stack:
        assert stack.invoke(b"[1]").status == 200
        stack.wait_until(lambda: stages_that_say(stack, "now seen") == {1, 2}, "the stages log")
    assert stages_that_say(stack, "listening on http://127.0.0.1:" + str(stack.port)) == {None}
    assert [entry for entry in entries(stack) if '\\"' in entry["message"]] == []


def stages_that_say(stack: Stack, message: str) -> set[int | None]:
    """The numbers in entries with this message; None is the pipeline itself."""
    return {entry.get("stage") for entry in entries(stack) if entry["message"] == message}
