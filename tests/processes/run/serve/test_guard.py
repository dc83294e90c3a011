"""The guard against other sites' web pages, at every door: nginx, workers without it, `endpoint`."""

import contextlib
import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX, without_nginx
from support.endpoints import Endpoint
from support.multi_model import MODE, script_model
from support.stack import Stack

SCRIPT = """
def model_fn(model_dir):
    return None


def transform_fn(model, data, content_type, accept):
    return "done", "text/plain"
"""
BODY = "Content-Length: 2\r\n\r\n{}"
SETTINGS = {
    "TFS_PROXY_ALLOWED_ORIGINS": "http://app.example, https://app.example",
    "TFS_PROXY_ALLOWED_HOSTS": "model.example",
}
OWN = "127.0.0.1:PORT"
ORIGIN, HOST = "TFS_PROXY_ALLOWED_ORIGINS", "TFS_PROXY_ALLOWED_HOSTS"


@dataclass(frozen=True)
class Case:
    """A request with these headers, in which PORT stands for the server's; ``refused`` is in the 403, "" passes."""

    refused: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    host: str | None = OWN
    method: str = "POST"
    again: str = ""

    def head(self, path: str, port: int) -> str:
        """Its first lines, without those of a body."""
        host = {} if self.host is None else {"Host": self.host}
        lines = [f"{name}: {value}" for name, value in {**host, **self.headers}.items()]
        version = "1.0" if self.host is None else "1.1"
        text = "\r\n".join([f"{self.method} {path} HTTP/{version}", *lines, *filter(None, [self.again])])
        return text.replace("PORT", str(port)) + "\r\n"


def origin(text: str, **more: str) -> dict[str, str]:
    """The headers of a page at this origin; keyword headers have underscores for dashes."""
    return {"Origin": text, **{name.replace("_", "-"): value for name, value in more.items()}}


def site(value: str, text: str = "http://evil.example") -> dict[str, str]:
    """The headers of a page of which the browser says how near it is."""
    return origin(text, Sec_Fetch_Site=value)


CASES = {
    "a program": Case(),
    "a program at HTTP/1.0 without a Host": Case(host=None),
    "localhost": Case(host="localhost:PORT"),
    "LOCALHOST": Case(host="LOCALHOST"),
    "below localhost": Case(host="tenant.localhost:PORT"),
    "another loopback address": Case(host="127.8.9.10:1"),
    "IPv6": Case(host="[::1]:PORT"),
    "Docker's name of the host": Case(host="host.docker.internal:PORT"),
    "a listed name": Case(host="Model.example:PORT"),
    "a foreign name": Case(HOST, host="evil.example"),
    "a name that ends like localhost": Case(HOST, host="evil-localhost"),
    "a name that begins like localhost": Case(HOST, host="localhost.evil.example:PORT"),
    "a name that begins like an address": Case(HOST, host="127.0.0.1.evil.example"),
    "junk before the name": Case(HOST, host="evil.example@localhost"),
    "junk behind the name": Case(HOST, host="localhost:PORT@evil.example"),
    "another address": Case(HOST, host="192.168.1.7:PORT"),
    "a rebound name": Case(HOST, site("same-origin", "http://evil.example:PORT"), host="evil.example:PORT"),
    "GET by a rebound name": Case(HOST, host="evil.example", method="GET"),
    "its own page": Case(headers=origin(f"http://{OWN}")),
    "its own page by IPv6": Case(headers=origin("http://[::1]:PORT"), host="[::1]:PORT"),
    "its own page, other letters": Case(headers=origin("HTTP://LocalHost:PORT"), host="localhost:PORT"),
    "its own page without a port": Case(headers=origin("http://localhost"), host="localhost:80"),
    "its own page with a port": Case(headers=origin("https://localhost:443"), host="localhost"),
    "its own page, another scheme": Case(headers=origin(f"https://{OWN}")),
    "behind a proxy": Case(headers=origin("https://model.site", X_Forwarded_Host="model.site")),
    "behind two proxies": Case(headers=origin("https://a.site:8443", X_Forwarded_Host="a.site:8443, inner")),
    "behind another proxy": Case(
        ORIGIN, origin("https://evil.example", X_Forwarded_Host="model.site, evil.example")
    ),
    "a foreign page": Case(ORIGIN, origin("http://evil.example")),
    "a foreign page that sends text": Case(ORIGIN, origin("http://evil.example", Content_Type="text/plain")),
    "a page at another port": Case(ORIGIN, origin("http://127.0.0.1:1")),
    "a page at a longer host": Case(ORIGIN, origin("http://127.0.0.1.evil.example:PORT")),
    "a page at a host that ends alike": Case(
        ORIGIN, origin("http://evil.localhost:PORT"), host="localhost:PORT"
    ),
    "a page with a user": Case(ORIGIN, origin(f"http://{OWN}@evil.example")),
    "a page of nobody": Case(ORIGIN, origin("null")),
    "a page without a scheme": Case(ORIGIN, origin(OWN)),
    "two origins in one header": Case(ORIGIN, origin(f"http://{OWN}, http://evil.example")),
    "two headers, the foreign one first": Case(
        ORIGIN, origin("http://evil.example"), again=f"Origin: http://{OWN}"
    ),
    "same origin, whatever it is": Case(headers=site("same-origin")),
    "typed by the user": Case(headers=site("none")),
    "another site": Case(ORIGIN, site("cross-site")),
    "another site with our own origin": Case(ORIGIN, site("cross-site", f"http://{OWN}")),
    "another site without an origin": Case(ORIGIN, {"Sec-Fetch-Site": "cross-site"}),
    "the same site": Case(ORIGIN, site("same-site")),
    "an unknown site": Case(ORIGIN, site("SAME-ORIGIN")),
    "a listed page": Case(headers=site("cross-site", "http://app.example")),
    "a listed page with its default port": Case(headers=origin("https://app.example")),
    "a listed page by another port": Case(ORIGIN, origin("https://app.example:8443")),
    "a listed page with a path": Case(ORIGIN, origin("https://app.example/")),
    "DELETE by a foreign page": Case(ORIGIN, origin("http://evil.example"), method="DELETE"),
    "OPTIONS by a foreign page": Case(ORIGIN, origin("http://evil.example"), method="OPTIONS"),
    "GET by a foreign page": Case(headers=site("cross-site"), method="GET"),
    "HEAD by a foreign page": Case(headers=site("cross-site"), method="HEAD"),
}
FOREIGN = CASES["a foreign page"]


def answered(port: int, request: str) -> str:
    """The head and the body of the answer to ``request``."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(request.encode())
        answer = http.client.HTTPResponse(connection, method=request.partition(" ")[0])
        answer.begin()
        head = [f"HTTP/1.1 {answer.status}", *(f"{name}: {value}" for name, value in answer.getheaders())]
        return "\r\n".join([*head, "", answer.read().decode()])


@pytest.fixture(scope="module", params=["nginx", "gunicorn", "endpoint"])
def door(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A server on loopback with lists of origins and hosts."""
    if request.param == "endpoint":
        stack: Stack = Endpoint(env=SETTINGS)
    else:
        archive = script_model(tmp_path_factory.mktemp("guard") / "model.tar.gz", SCRIPT)
        front = without_nginx() if request.param == "gunicorn" else {}
        stack = Stack(str(archive), env={**SETTINGS, **front})
    with contextlib.closing(stack):
        stack.wait_ready()
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


@pytest.mark.parametrize("path", ["/ping", "/v2/health/ready", "/invocations"])
def test_ping_is_answered_whoever_asks(door: Stack, path: str) -> None:
    """Health checks come by names that nobody lists; all else on loopback asks for one of its own."""
    answer = answered(door.port, Case(host="node-7.example", method="GET").head(path, door.port) + "\r\n")

    assert (answer.split()[1] == "403") == (path == "/invocations")


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
    with contextlib.closing(Stack(env=env, host="0.0.0.0")) as stack:
        stack.wait_ready()
        yield stack


@NEEDS_NGINX
def test_elsewhere_the_guard_is_for_management(elsewhere: Stack) -> None:
    """An address that others reach serves any page, until origins are listed; but none may load a model."""

    def status(case: Case, path: str) -> str:
        return answered(elsewhere.port, case.head(path, elsewhere.port) + BODY).split()[1]

    assert status(FOREIGN, "/models/a/invoke") == "404"
    assert status(Case(host="node-7.example"), "/models/a/invoke") == "404"
    for path in ("/models", "/%6dodels"):
        assert status(FOREIGN, path) == "403", path
    assert status(CASES["DELETE by a foreign page"], "/models/a") == "403"
    assert status(CASES["GET by a foreign page"], "/models") == "200"


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
