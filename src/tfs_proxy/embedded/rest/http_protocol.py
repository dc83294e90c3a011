"""uvicorn's HTTP connection, mended in three places and made quicker in one.

A request that offers HTTP/2, as those of Java's client do, would lose its body: httptools takes what
follows the head for the other protocol. Here it is read once more, without the offer. A client that shuts
its side behind a request would get no answer. And one that falls silent before its first request, or
within one, would hold its connection for ever.

PERF: an answer's head leaves together with its body, for two writes wake the client twice, which takes
longer than a quick prediction if cores sleep between requests.
"""

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_HEAD = b"HTTP/1.1 "
_INTERIM = b"HTTP/1.1 1"
_NO_HTTP = "Invalid HTTP request received."


class _WholeAnswers:
    """A transport that holds an answer's head back until its body, or its end."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head = b""
        self.is_closing = transport.is_closing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send the data, or hold it back if it is a head."""
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


class RestConnection(HttpToolsProtocol):
    """One client's connection."""

    def connection_made(self, transport: Any) -> None:
        """Begin, on a transport that holds heads back."""
        super().connection_made(_WholeAnswers(transport))  # type: ignore[arg-type]
        self._wait_for_client()

    def connection_lost(self, exc: Exception | None) -> None:
        """End; the idle timer would hold a connection that was reset for the rest of its time."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Read what came; a request that offers another protocol is read again as one that does not."""
        self._unset_keepalive_if_required()
        while data:
            fed, data = data, b""
            try:
                self.parser.feed_data(fed)
            except httptools.HttpParserUpgrade as offer:
                if self._should_upgrade():
                    self._begin_anew()
                    data = self._head_without_offer() + fed[offer.args[0] :]
            except httptools.HttpParserError:
                self.logger.warning(_NO_HTTP)
                self.send_400_response(_NO_HTTP)
        if not self._is_owed():
            self._wait_for_client()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether to stay open until all whole requests are answered: their client may still read."""
        if self._is_owed():
            self.cycle.keep_alive = False
            return True
        return False

    def _is_owed(self) -> bool:
        """Whether the client waits for the answer to a whole request, as it does if others queue."""
        if self.pipeline:
            return True
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body

    def _wait_for_client(self) -> None:
        """Close the connection if nothing comes for the idle time: before a request, or within one."""
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def _should_upgrade(self) -> bool:
        """Whether a request is read again: all but CONNECT, which always asks for another protocol."""
        return self.scope["method"] != "CONNECT"

    def _begin_anew(self) -> None:
        """Read the next bytes as a connection's first ones: behind ``Connection: close`` none would count."""
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)

    def _head_without_offer(self) -> bytes:
        line = f"{self.scope['method']} ".encode() + self.url + f" HTTP/{self.scope['http_version']}".encode()
        fields = [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join([line, *fields, b"", b""])

    def on_response_complete(self) -> None:
        """Send the head of an answer that has no body."""
        self.transport.flush()  # type: ignore[attr-defined]
        super().on_response_complete()
        if self.cycle.more_body and not self.transport.is_closing():
            self._wait_for_client()
