"""The HTTP contract of the whole stack: real nginx or none, real gunicorn, the real embedded model server."""

import http.client
import json
import math
import socket
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import gates
from support.archives import has_nginx, pack, without_nginx
from support.stack import Stack, serving

pytestmark = pytest.mark.tensorflow

GOLDEN = json.loads((Path(__file__).parents[3] / "golden" / "invocations.json").read_text())
FRONTS = [
    pytest.param({}, id="nginx", marks=pytest.mark.skipif(not has_nginx(), reason="nginx is not installed")),
    pytest.param(without_nginx(), id="gunicorn"),
]
CHUNKED = b"POST /invocations HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
TWICE = (
    b"POST /invocations HTTP/1.1\r\nHost: a\r\n"
    + b"X-Amzn-SageMaker-Custom-Attributes: tfs-method=%s\r\n"
    * 2
    % (
        b"predict",
        b"classify",
    )
)
SCRIPT = f"""{gates.SCRIPT}
import json

from helper_beside import MARK


def input_handler(data, context):
    text = data.read().decode()
    if context.request_content_type == "text/x-number":
        return json.dumps({{"instances": [float(text)]}})
    if context.request_content_type == "text/x-held":
        hold(text)
        return json.dumps({{"instances": [1.0]}})
    return text


def output_handler(response, context):
    if response.status_code != 200:
        raise ValueError(response.content.decode())
    return json.dumps({{"mark": MARK, **response.json()}}), context.accept_header
"""
LINE_OF_FLOAT = 1 + [line.endswith("[float(text)]})") for line in SCRIPT.splitlines()].index(True)
WORKERS, THREADS = 2, 4
SECONDS = 60.0


@pytest.fixture(scope="module", params=FRONTS)
def stack(request: pytest.FixtureRequest, saved_models: Path) -> Iterator[Stack]:
    """All our SavedModels without a script, a small body limit."""
    env = {
        "SAGEMAKER_TFS_DEFAULT_MODEL_NAME": "half_plus_two",
        "SAGEMAKER_MAX_PAYLOAD_IN_MB": "2",
        "SAGEMAKER_TFS_VERSION_LABELS": "stable=1,canary=2",
        **request.param,
    }
    with serving(str(saved_models), "--model-server", "embedded", env=env) as running:
        yield running


@pytest.fixture(scope="module", params=FRONTS)
def scripted(
    request: pytest.FixtureRequest, saved_models: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    """One model behind a script that imports a module beside it."""
    archive = pack(
        tmp_path_factory.mktemp("scripted") / "model.tar.gz",
        {"code/inference.py": SCRIPT, "code/helper_beside.py": "MARK = 'seen'\n"},
        {"export/Servo": saved_models / "half_plus_two"},
    )
    threads = {"SAGEMAKER_GUNICORN_WORKERS": str(WORKERS), "SAGEMAKER_GUNICORN_THREADS": str(THREADS)}
    with serving(str(archive), "--model-server", "embedded", env={**threads, **request.param}) as running:
        yield running


def same(one: Any, other: Any) -> bool:
    """Equal as JSON, to the last digit."""
    if isinstance(one, float) and math.isnan(one):
        return math.isnan(other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: str(case["name"]))
def test_recorded_requests_get_the_wanted_answers(stack: Stack, case: dict[str, Any]) -> None:
    """What AWS's container answered, but for the rows that say why ours differs."""
    answer = stack.ask(case["method"], case["path"], case["body"], case["headers"])
    want = case["want"]

    assert answer.status == want["status"], answer.body
    if "json" in want:
        assert same(answer.json, want["json"])
    elif answer.status >= 400 and case["path"] != "/ping":
        assert isinstance(answer.json["error"], str)
    if "text" in want:
        assert answer.body.decode().replace("\r\n", "\n") == want["text"]
    assert answer.headers.get("content-type", "").startswith(want.get("content_type", ""))


@pytest.mark.parametrize("accept", ["application/json", "application/jsonlines", "text/csv"])
def test_answers_read_back_to_the_same_floats(stack: Stack, accept: str) -> None:
    """No digit of a float32 is lost, whatever the answer's type."""
    sent = [1111111.0, 0.3333333333, 1764093056.0, 1e-7, 3.4e38]
    headers = {"Content-Type": "application/json", "Accept": accept}
    answer = stack.ask("POST", "/invocations", json.dumps({"instances": sent}), headers)

    numbers = (
        answer.json["predictions"]
        if accept == "application/json"
        else map(float, answer.body.split(b"\n")[:5])
    )
    want = np.array(sent, np.float32) * np.float32(0.5) + np.float32(2)
    assert np.array(list(numbers), np.float32).tolist() == want.tolist()


@pytest.mark.parametrize(
    "body", ['{"instances": [1.0]}', '{"instances": ["a"]}', "[1.0]", '{"inputs": {"x": "a"}}']
)
def test_json_that_is_asked_for_is_one_line(stack: Stack, body: str) -> None:
    """Errors too; without an Accept it is as the model server has it."""
    headers = {"Content-Type": "application/json"}
    one = stack.ask("POST", "/invocations", body, {**headers, "Accept": "application/json"})
    other = stack.ask("POST", "/invocations", body, headers)

    assert b"\n" not in one.body
    assert one.body == other.body.replace(b"\n", b"")
    assert one.status == other.status
    assert b"\n" in other.body or one.status != 200


def error_of(reply: bytes) -> tuple[int, str]:
    """Status and text of a raw reply, which must be JSON."""
    head, _, body = reply.partition(b"\r\n\r\n")
    assert b"application/json" in head, reply
    assert b"<html" not in reply.lower()
    return int(head.split()[1]), json.loads(body)["error"]


@pytest.mark.parametrize(
    ("sent", "statuses"),
    [
        (b"nonsense\r\n\r\n", {400}),
        (b"GET /ping and more HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
        (b"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n", {400, 404}),
        (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", {414}),
        (b"GET /ping HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", {400, 431}),
        (b"POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Length: ten\r\n\r\n", {400}),
        (b"POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n", {400}),
        (b"POST /invocations HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: magic\r\n\r\n", {400, 501}),
        (b"GET /ping HTTP/7.5\r\nHost: a\r\n\r\n", {400, 505}),
        (b"BREW /invocations HTTP/1.1\r\nHost: a\r\n\r\n", {400, 405}),
        (b"GET /../../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n", {400, 404}),
        (b"GET /ping HTTP/1.1\r\n\r\n", {400}),
        (b"GET //ping HTTP/1.1\r\nHost: a\r\n\r\n", {404}),
        (b"GET /%2fping HTTP/1.1\r\nHost: a\r\n\r\n", {404}),
        (b"POST //invocations HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}", {404}),
        (TWICE + b"Content-Length: 21\r\n\r\n" + b'{"instances": [1, 2]}', {400}),
        (b"TRACE /invocations HTTP/1.1\r\nHost: a\r\n\r\n", {405}),
        (
            b"POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n" + b"a" * 3_000_000,
            {413},
        ),
        (CHUNKED + (b"100000\r\n" + b"a" * 0x100000 + b"\r\n") * 3 + b"0\r\n\r\n", {413}),
        (CHUNKED + b"xyz\r\n", {400}),
        (b"PUT /log-level/debug/../../ping HTTP/1.1\r\nHost: a\r\n\r\n", {404, 405}),
        (b"PUT /log-level/debug/../../v2 HTTP/1.1\r\nHost: a\r\n\r\n", {404, 405}),
        (b"GET /released/1/../../v2/models/a%0d%0ab%20c%3f/stats HTTP/1.1\r\nHost: a\r\n\r\n", {404}),
    ],
    ids=lambda value: repr(value[:30]) if isinstance(value, bytes) else "",
)
def test_what_the_servers_refuse_themselves_is_json(stack: Stack, sent: bytes, statuses: set[int]) -> None:
    """No HTML page, whether nginx or gunicorn says no."""
    status, text = error_of(stack.raw(sent))

    assert status in statuses
    assert text


def test_no_path_of_a_client_leads_to_what_workers_ask_the_supervisor(stack: Stack) -> None:
    """A proxy matches the path without its dots; what is behind it must get that one, too."""
    reply = stack.raw(b"GET /released/1/../../v2 HTTP/1.1\r\nHost: a\r\n\r\n")

    head, _, body = reply.partition(b"\r\n\r\n")
    assert b"extensions" in body if head.startswith(b"HTTP/1.1 200") else b" 404 " in head, reply


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("PUT", "/", 405),
        ("POST", "/nope", 404),
        ("GET", "/invocations", 405),
        ("PUT", "/invocations", 405),
        ("DELETE", "/invocations", 405),
        ("POST", "/ping", 405),
        ("GET", "/deployment", 404),
        ("GET", "/released", 404),
        ("GET", "/.refused/400", 404),
    ],
)
def test_paths_and_methods_that_are_not_there(stack: Stack, method: str, path: str, status: int) -> None:
    """404 and 405 in JSON; the supervisor's own pages are no client's business."""
    answer = stack.ask(method, path)

    assert answer.status == status
    assert set(answer.json) == {"error"}


def test_a_label_chooses_a_version(stack: Stack) -> None:
    """SAGEMAKER_TFS_VERSION_LABELS and tfs-model-label."""
    for label, y in (("stable", 2.5), ("canary", 3.5)):
        attributes = f"tfs-model-name=versions,tfs-model-label={label}"
        answer = stack.invoke('{"instances": [1.0]}', **{"X-Amzn-SageMaker-Custom-Attributes": attributes})
        assert answer.json == {"predictions": [y]}


def test_a_signature_is_chosen_by_attribute(stack: Stack) -> None:
    """tfs-signature-name, for JSON and for CSV."""
    attributes = {"X-Amzn-SageMaker-Custom-Attributes": "tfs-model-name=multi_io,tfs-signature-name=norm"}

    assert stack.invoke('{"instances": [[3, 4, 0]]}', **attributes).json == {"predictions": [5.0]}
    assert stack.invoke("3,4,0\n", "text/csv", **attributes).json == {"predictions": [5.0]}


def test_one_connection_serves_many_requests(stack: Stack) -> None:
    """Keep-alive, good and bad requests mixed."""
    connection = http.client.HTTPConnection(stack.host, stack.port, timeout=SECONDS)
    for number in range(20):
        body = '{"instances": [1.0]}' if number % 2 else "nonsense"
        connection.request("POST", "/invocations", body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        reply.read()
        assert reply.status == (200 if number % 2 else 400)
    connection.close()


def test_a_chunked_body_is_read_whole(stack: Stack) -> None:
    """SageMaker streams with chunks where MaxPayloadInMB is 0."""
    connection = http.client.HTTPConnection(stack.host, stack.port, timeout=SECONDS)
    parts = iter([b'{"instances": [', b"1.0,", b"2.0]}"])
    connection.request(
        "POST", "/invocations", parts, {"Content-Type": "application/json"}, encode_chunked=True
    )
    reply = connection.getresponse()

    assert (reply.status, json.loads(reply.read())) == (200, {"predictions": [2.5, 3.0]})
    connection.close()


def test_a_slow_client_holds_nobody_up(stack: Stack) -> None:
    """Twenty clients that have sent the first byte of a body cost the others nothing."""
    if "nginx" not in stack.children():
        pytest.skip("without nginx a client holds a thread while it sends")
    slow = [socket.create_connection((stack.host, stack.port)) for _ in range(20)]
    for client in slow:
        client.sendall(b"POST /invocations HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
    try:
        assert stack.invoke('{"instances": [1.0]}').status == 200
    finally:
        for client in slow:
            client.close()


def test_http_1_0_needs_no_host(scripted: Stack) -> None:
    """As old clients and probes send it; nginx passes it on in HTTP/1.1."""
    body = b'{"instances": [1.0]}'
    head = b"POST /invocations HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    assert b" 200 " in scripted.raw(head % len(body) + body).partition(b"\r\n")[0]


def test_a_script_of_two_halves_sees_request_and_answer(scripted: Stack) -> None:
    """Modules beside the script import; the answer's type is what the script says."""
    answer = scripted.invoke('{"instances": [1.0]}', Accept="application/json")

    assert (answer.status, answer.json) == (200, {"mark": "seen", "predictions": [2.5]})
    assert answer.headers["content-type"].startswith("application/json")


@pytest.mark.parametrize(
    ("body", "content_type", "words"),
    [
        ("", "application/json", "document is empty"),
        ("{nonsense", "application/json", "JSON Parse error"),
        ('{"instances": [["a"]]}', "application/json", "DT_FLOAT takes numbers"),
        ("1.0,2.0", "text/csv", "Is not object"),
    ],
)
def test_what_the_model_server_refuses_keeps_its_status_through_the_script(
    scripted: Stack, body: str, content_type: str, words: str
) -> None:
    """The script sees the error and raises; the client gets the model server's 400, not a 500."""
    answer = scripted.invoke(body, content_type)

    assert answer.status == 400
    assert words in answer.json["error"]


def test_what_the_script_raises_is_a_500_with_its_line_in_the_log(scripted: Stack) -> None:
    """The client reads the exception's text, the log names file and line."""
    answer = scripted.invoke("soon", "text/x-number")

    assert answer.status == 500
    assert answer.json == {"error": "ValueError: could not convert string to float: 'soon'"}
    scripted.wait_for_log(f"inference.py:{LINE_OF_FLOAT}")


def test_ping_answers_at_once_while_every_worker_is_busy(scripted: Stack, tmp_path: Path) -> None:
    """64 requests at a gate; /ping within 100 ms, with a margin of 4, as the supervisor answers it itself.

    The median counts: a machine that others use stands still now and then, whoever answers.
    """
    if "nginx" not in scripted.children():
        pytest.skip("without nginx the promise holds while a thread is free")
    seconds = []
    with ThreadPoolExecutor(64) as pool, gates.gate(tmp_path / "gate") as held:
        slow = [pool.submit(scripted.invoke, held.mark(f"{number}"), "text/x-held") for number in range(64)]
        held.wait_for(WORKERS * THREADS)
        for _ in range(20):
            began = time.monotonic()
            assert scripted.ask("GET", "/ping").status == 200
            seconds.append(time.monotonic() - began)
        held.open()
        assert {request.result().status for request in slow} == {200}

    assert statistics.median(seconds) < 0.1 * 4
