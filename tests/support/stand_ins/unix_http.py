"""Small HTTP servers on unix sockets, which stand in for what nginx sends requests to."""

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Received:
    """One request as it arrived; headers in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Given:
    """An answer; None for the status ends the connection without one."""

    status: int | None = 200
    body: bytes = b"{}"
    headers: Mapping[str, str] = field(default_factory=dict)


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 64


class UnixHttpServer:
    """Answers with ``respond`` from its start to its close; ``received`` has every request.

    ``connections`` counts those that it has accepted.
    """

    def __init__(self, path: Path, respond: Callable[[Received], Given]) -> None:
        self.received: list[Received] = []
        self.connections = 0
        self.respond = respond
        self._server = _Server(str(path), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Listen no more; the path stays."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextmanager
def unix_http_server(path: Path, respond: Callable[[Received], Given]) -> Iterator[UnixHttpServer]:
    """A server for the time of a block."""
    server = UnixHttpServer(path, respond)
    try:
        yield server
    finally:
        server.close()


def _handler(server: UnixHttpServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            server.connections += 1
            super().setup()

        def __getattr__(self, name: str) -> Callable[[], None]:
            if not name.startswith("do_"):
                raise AttributeError(name)
            return self._answer

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Received(self.command, self.path, headers, body)
            server.received.append(request)
            given = server.respond(request)
            if given.status is None:
                self.close_connection = True
                with suppress(OSError):
                    self.connection.shutdown(socket.SHUT_RDWR)
                return
            self.send_response_only(given.status)
            for name, value in {"Content-Type": "application/json", **given.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(given.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(given.body)

        def address_string(self) -> str:
            return "unix"

        def log_message(self, *_: Any) -> None:
            """Nothing: tests look at ``received``."""

    return Handler
