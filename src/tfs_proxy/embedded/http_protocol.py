"""uvicorn's HTTP connection, but for one thing: an answer's head leaves together with its body.

Two writes wake the client twice; where cores sleep between requests that takes longer than the answer.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEAD = b"HTTP/1.1 "
_INTERIM = b"HTTP/1.1 1"


class _WholeAnswers:
    """A transport that holds an answer's head back until its body, or its end."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send, or hold back, as it is a head."""
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(_HEAD) and not data.startswith(_INTERIM):
            self._head = data
            return
        self._transport.write(data)

    def flush(self) -> None:
        """Send what is held back."""
        if self._head:
            self.write(b"")

    def close(self) -> None:
        """Send what is held back, and close."""
        self.flush()
        self._transport.close()


class WholeAnswers(HttpToolsProtocol):
    """One client's connection."""

    def connection_made(self, transport: Any) -> None:
        """Begin, on a transport that holds heads back."""
        super().connection_made(_WholeAnswers(transport))  # type: ignore[arg-type]

    def on_response_complete(self) -> None:
        """Send the head of an answer that has no body."""
        self.transport.flush()  # type: ignore[attr-defined]
        super().on_response_complete()
