"""An answer in as few writes as can be: what `web.workers.threads` hands to the application."""

import socket
from collections.abc import Callable
from typing import Any

from gunicorn.http import wsgi

from tfs_proxy.web.workers.plain_request import PlainRequest


class PromptResponse(wsgi.Response):  # type: ignore[misc]  # gunicorn has no types
    """Sends head and body at once, and closes the connection if ``ends`` says so by then."""

    headers_sent: bool

    def __init__(
        self, request: PlainRequest, connection: socket.socket, cfg: Any, ends: Callable[[], bool]
    ) -> None:
        super().__init__(request, connection, cfg)
        self._ends = ends

    def should_close(self) -> bool:
        """Whether this answer is the connection's last."""
        return self._ends() or super().should_close()

    def write(self, arg: bytes) -> None:
        """Send a piece of the body; the head goes with it if the piece is the whole body."""
        if self.headers_sent or self.chunked or len(arg) != self.response_length:
            super().write(arg)
            return
        lines = (*self.default_headers(), *(f"{name}: {value}\r\n" for name, value in self.headers), "\r\n")
        self.headers_sent = True
        self.sent = len(arg)
        self.sock.sendall("".join(lines).encode("latin-1") + arg)
