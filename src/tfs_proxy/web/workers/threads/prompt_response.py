"""The answer to a plain request, as `worker` sends it: gunicorn's, in as few calls as it takes."""

import socket
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from gunicorn import util
from gunicorn.http import wsgi

from tfs_proxy.web.workers.plain_request import PlainRequest


class PromptResponse(wsgi.Response):  # type: ignore[misc]  # gunicorn has no types
    """Sends head and body at once, and closes the connection if ``ends`` says so by then.

    What the head has said stands: a client that was told to keep the connection may have sent on it already.
    """

    headers_sent: bool

    def __init__(
        self, request: PlainRequest, connection: socket.socket, cfg: Any, ends: Callable[[], bool]
    ) -> None:
        super().__init__(request, connection, cfg)
        self._ends = ends
        self._is_last: bool | None = None

    def should_close(self) -> bool:
        """Whether this answer is the connection's last."""
        if self._is_last is None or not self.headers_sent:
            self._is_last = self._ends() or bool(super().should_close())
        return self._is_last

    def write(self, arg: bytes) -> None:
        """Send a piece of the body; the head goes with it if the piece is the whole body."""
        if self.headers_sent or self.chunked or self.upgrade or len(arg) != self.response_length:
            super().write(arg)
            return
        connection = "close" if self.should_close() else "keep-alive"
        more = "".join([f"{name}: {value}\r\n" for name, value in self.headers])
        head = (
            f"HTTP/1.1 {self.status}\r\nServer: {self.version}\r\nDate: {_date(int(time.time()))}\r\n"
            f"Connection: {connection}\r\n{more}\r\n"
        )
        self.headers_sent = True
        self.sent = len(arg)
        self.sock.sendall(head.encode("latin-1") + arg)


@lru_cache(maxsize=1)
def _date(second: int) -> str:
    """A second as the header has it; many requests share one."""
    return str(util.http_date(second))
