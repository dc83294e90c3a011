"""Starts real gunicorn workers for tests, with a stand-in for the supervisor's door and a model server."""

import json
import os
import socket
import socketserver
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from tfs_proxy.deployment import Deployment, Instance
from tfs_proxy.layout import Workspace
from tfs_proxy.settings import Settings
from tfs_proxy.supervisor.programs.gunicorn import argv, environment

BOOT_SECONDS = 90.0
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


@dataclass
class Workers:
    """gunicorn with our workers: its port, when it began, what it has said, and what its workers sent."""

    port: int
    ports: tuple[int, ...]
    grpc_socket: Path
    process: subprocess.Popen[bytes]
    began: float
    heartbeats: list[int] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    reader: threading.Thread = field(init=False)

    @property
    def log(self) -> str:
        """What it has printed."""
        return "".join(self.lines)

    def ask(self, request: bytes, seconds: float = 20.0) -> bytes:
        """Send raw bytes; everything that comes back until the connection closes."""
        with closing(socket.create_connection(("127.0.0.1", self.port), timeout=seconds)) as connection:
            connection.sendall(request)
            pieces = []
            while piece := connection.recv(65536):
                pieces.append(piece)
        return b"".join(pieces)

    def post(self, body: bytes, *headers: str, seconds: float = 20.0) -> tuple[int, dict[str, str], bytes]:
        """POST /invocations on a connection of its own: status, headers in lower case, body."""
        lines = (
            "POST /invocations HTTP/1.1",
            "Host: x",
            "Connection: close",
            f"Content-Length: {len(body)}",
            *headers,
        )
        return parsed(self.ask("\r\n".join(lines).encode() + b"\r\n\r\n" + body, seconds))

    def wait_for_heartbeats(self, count: int = 1) -> None:
        """Wait for so many signs of life since the start; the first one comes when a worker has booted."""
        self._until(lambda: len(self.heartbeats) >= count)

    def wait_for_log(self, text: str) -> None:
        """Wait until it has printed ``text``, which may come later than the answer that it goes with."""
        self._until(lambda: text in self.log)

    def wait(self, seconds: float = 30) -> int:
        """Wait for its end, and for the last that it has printed; its exit status."""
        status = self.process.wait(seconds)
        self.reader.join(seconds)
        return status

    def _until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + BOOT_SECONDS
        while not true():
            assert time.monotonic() < deadline, self.log
            assert self.process.poll() is None, self.log
            time.sleep(0.01)


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
    said = json.loads(body)
    assert list(said) == ["error"]
    text: str = said["error"]
    return text


def _door(path: Path, deployment: Deployment) -> _UnixServer:
    class Door(_Quiet):
        answers: ClassVar[Mapping[str, tuple[int, bytes]]] = {
            "/deployment": (200, deployment.to_json()),
            "/released": (200, b""),
            "/ping": (503, b'{"error": "model half is loading"}'),
        }

        def do_GET(self) -> None:
            self.answer(*self.answers[self.path])

    return _UnixServer(str(path), Door)


@contextmanager
def workers(
    worker_class: str = "gthread",
    script: str | None = None,
    env: Mapping[str, str] | None = None,
    listeners: int = 1,
) -> Iterator[Workers]:
    """Gunicorn as the supervisor starts it, with a worker per listener and the ``script``'s text, if any."""
    with tempfile.TemporaryDirectory(prefix="tw-") as folder:
        workspace = Workspace(Path(folder))
        model_server = ThreadingHTTPServer(("127.0.0.1", 0), _ModelServer)
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
        door = _door(workspace.control_socket, deployment)
        for server in (model_server, door):
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        chosen = {
            "SAGEMAKER_GUNICORN_WORKERS": str(listeners),
            "SAGEMAKER_GUNICORN_WORKER_CLASS": worker_class,
        }
        settings = Settings.from_env({**chosen, "TFS_PROXY_STOP_SECONDS": "2", **(env or {})})
        try:
            yield from _run(settings, workspace, listeners)
        finally:
            for server in (model_server, door):
                server.shutdown()
                server.server_close()


def _run(settings: Settings, workspace: Workspace, count: int) -> Iterator[Workers]:
    with ExitStack() as held:
        receiver = held.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        listeners = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        descriptors = [listener.fileno() for listener in listeners]
        receiver.bind(str(workspace.heartbeat_socket))
        began = time.monotonic()
        process = subprocess.Popen(
            argv(settings, descriptors),
            env=environment({"PATH": "/usr/bin:/bin", **SOURCES}, settings, workspace, ()),
            pass_fds=descriptors,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        ports = tuple(listener.getsockname()[1] for listener in listeners)
        running = Workers(ports[0], ports, workspace.grpc_socket(0), process, began)
        beats = threading.Thread(target=_collect, args=(receiver, running.heartbeats), daemon=True)
        running.reader = threading.Thread(target=_read, args=(process, running.lines), daemon=True)
        beats.start()
        running.reader.start()
        try:
            yield running
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            receiver.shutdown(socket.SHUT_RDWR)
            beats.join()
            running.reader.join()
            assert process.stdout is not None
            process.stdout.close()


def _collect(receiver: socket.socket, heartbeats: list[int]) -> None:
    while message := receiver.recv(4096):
        if message.isdigit():  # workers also say that they begin to load, and what they are at
            heartbeats.append(int(message))


def _read(process: subprocess.Popen[bytes], lines: list[str]) -> None:
    assert process.stdout is not None
    lines.extend(line.decode(errors="replace") for line in process.stdout)
