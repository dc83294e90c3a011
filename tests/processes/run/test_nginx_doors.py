"""Requests without a key at nginx of each kind of run, with recorders in place of all that stands behind it."""

import re
import socket
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.resources import files
from itertools import product
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX
from support.deployments import deployment
from support.ports import free_port
from support.running import LOOPBACK, RunningProcess
from support.stand_ins.unix_http import Given, UnixHttpServer, unix_http_server
from tfs_proxy.run.nginx import config
from tfs_proxy.run.nginx.callers import Key, Keys
from tfs_proxy.run.nginx.many_models import MultiModelRoutes
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import Doors, Instance
from tfs_proxy.values.layout import Workspace
from tfs_proxy.wire import routes

pytestmark = NEEDS_NGINX

KEY = "aN" * 16
FILES = {each.name for each in files("tfs_proxy.model").joinpath("console_page").iterdir()} - {"index.html"}
OF_ROW = {"/ping", "/live"}
OPEN = OF_ROW | {"/v2/health/live", "/v2/health/ready", "/", *(f"/console/{name}" for name in FILES)}
HEALTH = {"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"}
METHODS = "GET HEAD POST PUT PATCH DELETE OPTIONS TRACE PROPFIND GETS".split()
SPELLINGS = """
    {path} {path}?a=b {encoded} {upper} /{path} /.{path} {path}/ {path}/. {path}%2f {path};/ping {path}?/ping
    /ping/..{path} /console/main.js/../..{path} /.refused/..{path} {path}/../ping {path}/..%2fping {path}#/../ping
    {path}%0a/.refused/ /ping%0a{path} {path}%3f/ping {path}%20HTTP/1.1 http://localhost{path}
""".split()
AT_ONCE = 100


class Front(RunningProcess):
    """nginx of one ``kind`` of run; a recorder listens at each socket that its configuration names."""

    def __init__(self, folder: Path, kind: str, recorders: ExitStack, env: Mapping[str, str]) -> None:
        workspace, port, self.grpc_port = Workspace(folder), free_port(), free_port()
        server = Instance(0, rest_port=1, grpc_port=1, grpc_socket="")
        served = deployment(instances=(server,), doors=Doors(rest_api=True, console=True))
        proxy = config.ProxyConfig(
            f"{LOOPBACK}:{port}",
            ("unix:web.sock",),
            workspace.client_socket,
            kind=("one", "many", "row").index(kind),
            grpc=() if kind == "row" else (f"{LOOPBACK}:{self.grpc_port}",),
            serving=served if kind == "one" else None,
            multi_model=MultiModelRoutes(60, (server,), takes_target_model=True) if kind == "many" else None,
            keys=Keys((Key("ann", KEY, is_admin=True),), guards_all=True),
        )
        text = config.config(proxy, Settings.from_env(env), workspace)
        text = text.replace(f"server {LOOPBACK}:1 ", "server unix:rest.sock ")
        self.places = dict[str, UnixHttpServer]()
        for name in set(re.findall(r"server unix:((?!s/)\S+)", text)):
            recorder = unix_http_server(folder / name, lambda _: Given(body=b""))
            self.places[Path(name).stem] = recorders.enter_context(recorder)
        workspace.nginx.mkdir()
        (workspace.nginx / "nginx.conf").write_text(text)
        argv = [config.find() or "", "-p", f"{workspace.nginx}", "-c", f"{workspace.nginx}/nginx.conf"]
        super().__init__([*argv, "-e", "stderr"], port=port)

    @property
    def seen(self) -> list[tuple[str, str, str]]:
        """Place, method and path of all that came past nginx over HTTP."""
        return [
            (name, each.method, each.target.partition("?")[0])
            for name, place in self.places.items()
            for each in place.received
        ]


@contextmanager
def front_of(kind: str, **env: str) -> Iterator[Front]:
    """A front in a folder whose path is short."""
    with tempfile.TemporaryDirectory(prefix="tp-") as path, ExitStack() as stack:
        front = Front(Path(path), kind, stack, env)
        stack.callback(front.close)
        front.wait_ready()
        yield front


def spelled() -> Iterator[str]:
    """All paths of the table, of a model and of a file that is not there, in all spellings."""
    named = (
        {re.sub(r"\(.*\)", "versions", each) for route in routes.TABLE for each in route.templates}
        | OPEN
        | HEALTH
        | {"/v1/x"}
    )
    paths = {re.sub(r"\{\w+\}", name, each) for each in named for name in ("away", "any.js")}
    for path, spelling in product(paths, SPELLINGS):
        yield spelling.format(
            path=path, encoded=f"/%{ord(path[1:2] or '.'):02x}{path[2:]}", upper=path.upper()
        )


def send(port: int, tried: Sequence[tuple[str, str, str]]) -> None:
    """Send requests behind each other, on as few connections as nginx lets them share, until all are answered."""
    heads = [
        f"{method} {path} HTTP/1.1\r\nHost: a\r\n{name}: websocket\r\n\r\n" for method, path, name in tried
    ]
    last, done = "GET /live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 0
    while done < len(heads):
        sent, answers = "".join(heads[done : done + AT_ONCE]), b""
        with socket.create_connection((LOOPBACK, port), 20) as link, suppress(ConnectionError):
            link.sendall((sent + last).encode())
            while received := link.recv(65536):
                answers += received
        answered = answers.count(b"HTTP/1.1 ")
        assert answered, sent
        done += min(answered, AT_ONCE)


def send_http2(port: int, tried: Sequence[tuple[str, str, str]]) -> None:
    """The same over HTTP/2, whose frames say when an answer ends."""
    for first in range(0, len(tried), AT_ONCE):
        part = tried[first : first + AT_ONCE]
        sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")
        for number, (method, path, name) in enumerate(part):
            head = {":method": method, ":path": path, ":scheme": "http", ":authority": "a", name: "websocket"}
            fields = b"".join(b"\x10" + text_of(name) + text_of(value) for name, value in head.items())
            sent += frame(1, 5, 2 * number + 1, fields)
        with socket.create_connection((LOOPBACK, port), 20) as link, link.makefile("rb") as answers:
            link.sendall(sent)
            ended = 0
            while ended < len(part):
                start = answers.read(9)
                answers.read(int.from_bytes(start[:3], "big"))
                ended += start[3] == 3 or (
                    start[3] < 2 and start[4] & 1
                )  # a reset, or an answer's last frame


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">IBBI", len(payload), kind, flags, stream)[1:] + payload


def text_of(text: str) -> bytes:
    """A string of less than 127 bytes as HPACK has it."""
    return bytes([len(text)]) + text.encode()


@pytest.mark.parametrize("kind", ["one", "many", "row"])
def test_without_a_key_only_open_doors_are_reached(kind: str) -> None:
    """However the path is written, with any method, and never with an Upgrade; each leads to one place."""
    tried = list(product(METHODS, spelled(), ("accept", "upgrade")))
    doors = set(product(("GET", "HEAD"), OF_ROW if kind == "row" else OPEN))
    with front_of(kind) as front:
        send(front.port, tried)
        assert {each[1:] for each in front.seen} == doors
        assert len(set(front.seen)) == len(doors)
        assert not any(
            "upgrade" in each.headers for place in front.places.values() for each in place.received
        )

        if kind != "row":
            front.places["client"].received.clear()
            send_http2(front.grpc_port, tried)
            assert {each[1:] for each in front.seen if each[0] == "client"} == set(product(["POST"], HEALTH))
            assert not front.places["grpc"].connections + front.places["gate0"].connections


def test_options_without_a_key_are_nginxs_to_answer() -> None:
    """By the table, or for a listed page by the guard; the model server's flag opens them below /v1, and loads nothing."""
    page = {"Origin": "http://a.example", "Access-Control-Request-Method": "POST"}
    methods = {
        "/invocations": "POST",
        "/models": "GET, HEAD, POST",
        "/models/away/invoke": "POST",
        "/v2/models/away/ready?a": "GET, HEAD",
        "/%63onsole/facts.json": "GET, HEAD",
        "/models/away/ready": None,
        "/v2/models/away/nothing": None,
    }
    upgrade, served = {"Upgrade": "websocket"}, "/V1/models/away/versions/1:predict"
    flag = "--rest_api_enable_cors_support=true"
    env = {"TFS_PROXY_ALLOWED_ORIGINS": page["Origin"], "SAGEMAKER_TFS_EXTRA_ARGS": flag}
    with front_of("many", **env) as front:
        for path, headers in product(methods, ({}, {"X-Api-Key": KEY.lower()}, upgrade)):
            answer = front.ask("OPTIONS", path, headers=headers)
            assert answer.headers.get("allow") == methods[path]
            assert answer.status == (200 if methods[path] else 404)
        assert front.ask("OPTIONS", "/models", headers=page).status == 204
        assert front.ask("OPTIONS", served, headers=upgrade).headers["allow"] == "POST"
        assert front.ask("OPTIONS", served).status == 200
        assert set(front.seen) == {("client", "GET", "/ping"), ("rest", "OPTIONS", served)}
