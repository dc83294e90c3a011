"""Starts real gunicorn workers for tests, with a stand-in for the supervisor's control API and a model server."""

import json
import os
import socket
import socketserver
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from msgspec.json import decode, encode

from support.running import LOOPBACK, RunningProcess
from tfs_proxy.run.heartbeats import Heartbeats
from tfs_proxy.run.programs.gunicorn import argv, environment
from tfs_proxy.settings.settings import Settings
from tfs_proxy.values.deployment import (
    Deployment,
    Instance,
    WorkerPhase,
    WorkerState,
)
from tfs_proxy.values.layout import Workspace

ANSWER_SECONDS = 60.0
LIMIT_BYTES = 100_000
PREDICTIONS = b'{"predictions": [2.5]}'


class _Quiet(BaseHTTPRequestHandler):
    """Answers without writing a log; a unix socket's client has no address."""

    protocol_version = "HTTP/1.1"
    wbufsize = 65536

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _ModelServer(_Quiet):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, PREDICTIONS)


class _UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


SOURCES = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
"""Lets workers run the sources that the test does."""


class Workers(RunningProcess):
    """gunicorn with our workers: its port, what it has printed, and what its workers sent."""

    def __init__(
        self,
        settings: Settings,
        workspace: Workspace,
        listener: socket.socket,
        states: "States",
        *,
        behind_nginx: bool,
    ) -> None:
        self.grpc_socket = workspace.grpc_socket(0)
        self.heartbeats = states.heartbeats
        descriptors = [listener.fileno()]
        super().__init__(
            argv(settings, descriptors, behind_nginx=behind_nginx),
            port=listener.getsockname()[1],
            env=environment({"PATH": "/usr/bin:/bin", **SOURCES}, settings, workspace, ()),
            pass_fds=descriptors,
        )

    def raw(self, sent: bytes, seconds: float = ANSWER_SECONDS) -> bytes:
        """Send bytes; everything that comes back until the connection closes."""
        with closing(socket.create_connection((self.host, self.port), timeout=seconds)) as connection:
            connection.sendall(sent)
            return b"".join(iter(lambda: connection.recv(65536), b""))

    def post(
        self, body: bytes, *headers: str, seconds: float = ANSWER_SECONDS
    ) -> tuple[int, dict[str, str], bytes]:
        """POST /invocations on a connection of its own: status, headers in lower case, body."""
        lines = (
            "POST /invocations HTTP/1.1",
            "Host: x",
            "Connection: close",
            f"Content-Length: {len(body)}",
            *headers,
        )
        return parsed(self.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body, seconds))

    def wait_for_heartbeats(self, count: int = 1) -> None:
        """Wait for so many signs of life since the start; the first one comes when a worker has booted."""
        self.wait_until(lambda: len(self.heartbeats) >= count, f"{count} heartbeats have come")


def parsed(raw: bytes) -> tuple[int, dict[str, str], bytes]:
    """A raw HTTP response: status, headers in lower case, body."""
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return int(first.split()[1]), headers, body


def error_text(raw: bytes, status: int) -> str:
    """The text of an error answer: JSON and nothing else, and the connection closes after it."""
    answered, headers, body = parsed(raw)
    assert answered == status, raw
    assert headers["content-type"] == "application/json"
    assert headers["connection"] == "close"
    assert int(headers["content-length"]) == len(body)
    document = json.loads(body)
    assert list(document) == ["error"]
    text: str = document["error"]
    return text


class States(Heartbeats):
    """What workers have said; those that serve, each time."""

    def __init__(self) -> None:
        super().__init__()
        self.heartbeats: list[int] = []

    def hear(self, state: WorkerState) -> None:
        super().hear(state)
        if state.phase is WorkerPhase.SERVES:
            self.heartbeats.append(state.pid)


def _control_api(path: Path, deployment: Deployment, states: States) -> _UnixServer:
    class ControlApi(_Quiet):
        answers: ClassVar[Mapping[str, tuple[int, bytes]]] = {
            "/deployment": (200, deployment.to_json()),
            "/ping": (503, b'{"error": "model half is loading"}'),
        }

        def do_GET(self) -> None:
            known = 200, encode(states.known())  # whichever process group asks
            self.answer(*(known if self.path.startswith("/workers/") else self.answers[self.path]))

        def do_POST(self) -> None:
            states.hear(decode(self.rfile.read(int(self.headers["Content-Length"])), type=WorkerState))
            self.answer(200, b"true")

    return _UnixServer(str(path), ControlApi)


@contextmanager
def workers(
    worker_class: str = "gthread",
    script: str | None = None,
    env: Mapping[str, str] | None = None,
    count: int = 1,
    *,
    behind_nginx: bool = True,
) -> Iterator[Workers]:
    """Gunicorn as the supervisor starts it, with ``count`` workers and the ``script``'s text, if any."""
    with tempfile.TemporaryDirectory(prefix="tw-") as folder:
        workspace = Workspace(Path(folder))
        model_server = ThreadingHTTPServer((LOOPBACK, 0), _ModelServer)
        path = None
        if script is not None:
            path = Path(folder) / "inference.py"
            path.write_text(script)
        port = model_server.server_address[1]
        deployment = Deployment(
            default_model="half",
            models={"half": (1,)},
            instances=(Instance(0, port, 1, str(workspace.grpc_socket(0))),),
            script=None if path is None else str(path),
            import_paths=(folder,),
            max_payload_bytes=LIMIT_BYTES,
            request_timeout_seconds=10.0,
        )
        states = States()
        control_api = _control_api(workspace.control_socket, deployment, states)
        for server in (model_server, control_api):
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        gunicorn = {"SAGEMAKER_GUNICORN_WORKERS": str(count), "SAGEMAKER_GUNICORN_WORKER_CLASS": worker_class}
        settings = Settings.from_env({**gunicorn, "TFS_PROXY_STOP_SECONDS": "2", **(env or {})})
        try:
            with _running(settings, workspace, states, behind_nginx=behind_nginx) as started:
                yield started
        finally:
            for server in (model_server, control_api):
                server.shutdown()
                server.server_close()


@contextmanager
def _running(
    settings: Settings, workspace: Workspace, states: States, *, behind_nginx: bool
) -> Iterator[Workers]:
    with ExitStack() as opened:
        listener = opened.enter_context(socket.create_server((LOOPBACK, 0)))
        started = Workers(settings, workspace, listener, states, behind_nginx=behind_nginx)
        try:
            yield started
        finally:
            started.close()
