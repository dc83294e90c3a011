"""The guard against other sites' web pages, at every door: nginx, workers without it, streams, `endpoint`."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX, without_nginx
from support.endpoints import Endpoint
from support.guarded import CASES, OWN, SETTINGS, Case, answered
from support.multi_model import MODE, script_model
from support.stack import Stack

SCRIPT = """
def model_fn(model_dir):
    return None


def transform_fn(model, data, content_type, accept):
    return "done", "text/plain"


async def stream(messages, context):
    async for message in messages:
        yield message
"""
BODY = "Content-Length: 2\r\n\r\n{}"
STREAM = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
FOREIGN = CASES["a foreign page"]


@contextlib.contextmanager
def running(stack: Stack) -> Iterator[Stack]:
    """A stack that is ready, stopped at the end."""
    try:
        stack.wait_ready()
        yield stack
    finally:
        stack.close()


@pytest.fixture(scope="module", params=["nginx", "gunicorn", "endpoint"])
def door(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A server on loopback with lists of origins and hosts."""
    if request.param == "endpoint":
        stack: Stack = Endpoint(env=SETTINGS)
    else:
        archive = script_model(tmp_path_factory.mktemp("guard") / "model.tar.gz", SCRIPT)
        front = without_nginx() if request.param == "gunicorn" else {}
        stack = Stack(str(archive), env={**SETTINGS, **front})
    with running(stack):
        yield stack


def judge(answer: str, case: Case) -> None:
    """A refusal is a 403 that names the setting; nothing else is a 403."""
    status, body = answer.split()[1], answer.partition("\r\n\r\n")[2]
    assert (status == "403") == bool(case.refused), answer
    if case.refused and case.method != "HEAD":
        words = json.loads(body)
        assert case.refused in words.get("error", words.get("Message"))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_request_passes_or_is_refused_at_each_door(door: Stack, case: Case) -> None:
    """By its Host, Origin and Sec-Fetch-Site, in the same way everywhere."""
    request = case.head("/invocations", door.port) + BODY
    judge(answered(door.port, request), case)


@NEEDS_NGINX
@pytest.mark.parametrize("door", ["nginx"], indirect=True)
@pytest.mark.parametrize("case", [case for case in CASES.values() if case.method == "POST" and case.host])
def test_a_web_socket_is_opened_or_refused_alike(door: Stack, case: Case) -> None:
    """A handshake is a GET, which browsers let any page send, so its origin counts."""
    handshake = Case(case.refused, case.headers, case.host, "GET", case.again)
    answer = answered(door.port, handshake.head("/invocations-bidirectional-stream", door.port) + STREAM)

    assert answer.split()[1] == ("403" if case.refused else "101")


@pytest.mark.parametrize("path", ["/ping", "/invocations"])
def test_ping_is_answered_whoever_asks(door: Stack, path: str) -> None:
    """Health checks come by names that nobody lists; all else on loopback asks for one of its own."""
    answer = answered(door.port, Case(host="node-7.example", method="GET").head(path, door.port) + "\r\n")

    assert (answer.split()[1] == "403") == (path != "/ping")


@NEEDS_NGINX
@pytest.mark.parametrize("door", ["nginx"], indirect=True)
def test_the_port_of_the_workers_is_guarded_too(door: Stack) -> None:
    """A page that tries all ports of the machine finds it behind nginx."""
    port = door.worker_port()
    for case in (FOREIGN, CASES["a rebound name"], CASES["a listed page"], CASES["a program"]):
        judge(answered(port, case.head("/invocations", port) + BODY), case)


@pytest.mark.parametrize("door", ["endpoint"], indirect=True)
def test_a_call_of_aws_is_a_post(door: Stack) -> None:
    """The guard lets each GET pass: none may create anything."""
    page = Case(headers={**FOREIGN.headers, "X-Amz-Target": "SageMaker.ListModels"}, method="GET")

    assert answered(door.port, page.head("/", door.port) + BODY).split()[1] == "404"


def test_a_listed_page_can_read_answers(door: Stack) -> None:
    """A preflight is answered, and each answer says whose page may see it; others hear nothing."""
    asks = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "content-type,x-own",
        "Origin": "http://app.example",
    }
    preflight = answered(
        door.port, Case(headers=asks, method="OPTIONS").head("/invocations", door.port) + "\r\n"
    )
    listed = answered(door.port, CASES["a listed page"].head("/nothing/here", door.port) + BODY)
    own = answered(
        door.port, Case(headers={"Origin": f"http://{OWN}"}).head("/nothing/here", door.port) + BODY
    )

    assert preflight.split()[1] == "204"
    headers = {line.partition(": ")[0].lower(): line.partition(": ")[2] for line in preflight.split("\r\n")}
    assert headers["access-control-allow-origin"] == "http://app.example"
    assert headers["access-control-allow-headers"] == "content-type,x-own"
    assert "POST" in headers["access-control-allow-methods"]
    assert "access-control-allow-origin: http://app.example\r\n" in listed.lower()
    assert "vary: origin\r\n" in own.lower()
    assert "access-control-allow-origin" not in own.lower()


def test_a_refusal_stays_a_refusal_whatever_else_is_wrong(door: Stack) -> None:
    """An answer of the guard and one of a limit do not lead to each other for ever."""
    large = FOREIGN.head("/invocations", door.port) + "Content-Length: 900000000\r\n\r\n"

    assert answered(door.port, large).split()[1] in {"403", "413"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models, and one beside it."""
    root = tmp_path_factory.mktemp("elsewhere")
    for folder in ("models", "outside"):
        (root / folder).mkdir()
        script_model(root / folder / "a.tar.gz", SCRIPT)
    (root / "models" / "link").symlink_to(root / "outside")
    return root


@pytest.fixture(scope="module")
def elsewhere(root: Path) -> Iterator[Stack]:
    """Many models at an address that others reach."""
    env = {**MODE, "TFS_PROXY_MODEL_FOLDERS": f"{root / 'models'}"}
    with running(Stack(env=env, host="0.0.0.0")) as stack:
        yield stack


@NEEDS_NGINX
def test_elsewhere_the_guard_is_for_management_and_streams(elsewhere: Stack) -> None:
    """An address that others reach serves any page, until origins are listed; but none may load a model."""

    def status(case: Case, path: str, rest: str = BODY) -> str:
        return answered(elsewhere.port, case.head(path, elsewhere.port) + rest).split()[1]

    assert status(FOREIGN, "/models/a/invoke") == "404"
    assert status(Case(host="node-7.example"), "/models/a/invoke") == "404"
    for path in ("/models", "/%6dodels"):
        assert status(FOREIGN, path) == "403", path
    assert status(CASES["DELETE by a foreign page"], "/models/a") == "403"
    assert status(CASES["GET by a foreign page"], "/models") == "200"
    assert status(Case(headers=FOREIGN.headers, method="GET"), "/streams", STREAM) == "403"


@NEEDS_NGINX
@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded", "a"])
def test_a_load_request_is_json(elsewhere: Stack, content_type: str | None) -> None:
    """What a page can send to another site without asking is not a load request."""
    headers = {} if content_type is None else {"Content-Type": content_type}
    answer = elsewhere.ask("POST", "/models", '{"model_name": "a", "url": "/a"}', headers)

    assert answer.status == 415


@NEEDS_NGINX
def test_models_are_loaded_from_their_folders_alone(elsewhere: Stack, root: Path) -> None:
    """Neither dots nor links, nor another way to say it, lead out of them."""
    folder = root / "models"
    urls = {
        f"{folder}/../outside/a.tar.gz": 400,
        f"{folder}/link/a.tar.gz": 400,
        f"{folder.parent}/outside/a.tar.gz": 400,
        f"{folder}": 400,
        f"file://{folder}/a.tar.gz": 400,
        "/opt/ml/models/nothing/model": 404,
        f"{folder}/a.tar.gz": 200,
    }
    for url, status in urls.items():
        body, headers = {"model_name": "m", "url": url}, {"Content-Type": "application/json; charset=utf-8"}
        answer = elsewhere.ask("POST", "/models", json.dumps(body), headers)
        assert answer.status == status, (url, answer.body)
    assert elsewhere.ask("DELETE", "/models/m").status == 200
