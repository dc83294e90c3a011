"""HTTP servers of the standard library in threads of a test, and what their handlers have in common."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from support.running import LOOPBACK


class Quiet(BaseHTTPRequestHandler):
    """Keeps connections open, and says nothing."""

    protocol_version = "HTTP/1.1"

    def body(self) -> bytes:
        """What has been sent."""
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def listening(handler: Any, host: str = LOOPBACK) -> Iterator[ThreadingHTTPServer]:
    """A server on a free port, whose requests this handler answers."""
    with ThreadingHTTPServer((host, 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
