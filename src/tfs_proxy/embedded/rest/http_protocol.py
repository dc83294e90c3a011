"""uvicorn's HTTP connection, mended in five places and made quicker in two.

A request that offers HTTP/2, as those of Java's client do, would lose its body: httptools takes what
follows the head for the other protocol. Here it is read once more, without the offer. A client that shuts
its side behind a request would get no answer. One that falls silent before its first request, or within
one, would hold its connection for ever. Heads had no limit, and connections only that of open files.

PERF: an answer's head leaves together with its body, for two writes wake the client twice, which takes
longer than a quick prediction if cores sleep between requests; it is `rest.app`'s own, and not checked. And
a connection has one timer for its idle time, which looks again when it rings; uvicorn makes one after each
answer and cancels it at the next request.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from tfs_proxy.wire.server.bounds import OpenConnections, is_readable

_LARGE = 1 << 20
"""A body of this size is not copied to have its head in front of it."""
_CLOSE = b"connection: close\r\n"
_MAX_HEAD_BYTES = 64 * 1024
_HEADER_BYTES = 4
"""A colon, a blank, and the end of the line."""
_DISCARD_SECONDS = 2.0
_RETRY = "retry-after: 1\r\n"
_NO_HTTP = "Invalid HTTP request received."


class _HeadTooLarge(Exception):
    """A head, or what stands between two parts of a body, has more bytes than it may."""


class RestConnection(HttpToolsProtocol):
    """One client's connection, of which at most as many are open as ``open_connections`` says."""

    def __init__(self, *arguments: Any, open_connections: OpenConnections, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._open_connections = open_connections

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for requests, if there is room for one more connection."""
        self._fed_bytes = self._unread_bytes = 0
        self._is_refused = self._has_read = False
        self._idle_until: float | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        super().connection_made(transport)
        if not self._open_connections.add(self):
            self._refuse(503, "Service Unavailable", "Too many requests are under way at once.", _RETRY)
            self.transport.close()
            return
        self._wait_for_client()

    def connection_lost(self, exc: Exception | None) -> None:
        """End; the idle timer would hold a connection that was reset for the rest of its time."""
        super().connection_lost(exc)
        self._open_connections.discard(self)
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Read what came; a request that offers another protocol is read again as one that does not."""
        if self._is_refused:
            return
        self._unset_keepalive_if_required()
        while data:
            fed, data = data, b""
            try:
                self._feed(fed)
            except httptools.HttpParserUpgrade as offer:
                if self._should_upgrade():
                    self._begin_anew()
                    data = self._head_without_offer() + fed[offer.args[0] :]
            except _HeadTooLarge:
                self._refuse_head()
                return
            except httptools.HttpParserError:
                self.logger.warning(_NO_HTTP)
                self.send_400_response(_NO_HTTP)
        if not self.is_owed:
            self._wait_for_client()

    def _feed(self, data: bytes) -> None:
        """Parse it. Raises _HeadTooLarge, also if only the parser knows of something that does not end."""
        self._has_read = False
        self._fed_bytes = self._unread_bytes + len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserCallbackError:
            if self._is_head_too_large():
                raise _HeadTooLarge from None
            raise
        self._unread_bytes = 0 if self._has_read else self._fed_bytes
        if self._unread_bytes > _MAX_HEAD_BYTES:
            raise _HeadTooLarge

    def on_headers_complete(self) -> None:
        """Take a head, unless it is too large."""
        self._has_read = True
        if self._is_head_too_large():
            raise _HeadTooLarge
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._has_read = True
        super().on_body(body)

    def _is_head_too_large(self) -> bool:
        # PERF: only what has brought so many bytes can have a head of as many.
        if self._fed_bytes <= _MAX_HEAD_BYTES:
            return False
        sizes = (len(name) + len(value) + _HEADER_BYTES for name, value in self.headers)
        return len(self.url) + sum(sizes) > _MAX_HEAD_BYTES

    def _refuse_head(self) -> None:
        """Answer, and end; what the client still sends is not looked at, so that it sees the answer."""
        status, reason = (431, "Request Header Fields Too Large") if self.headers else (414, "URI Too Long")
        self._refuse(status, reason, f"The head of a request may have {_MAX_HEAD_BYTES} bytes.")
        self.transport.write_eof()
        self.loop.call_later(_DISCARD_SECONDS, self.transport.close)

    def _refuse(self, status: int, reason: str, text: str, header: str = "") -> None:
        """Answer the connection's last request, read or not."""
        self._is_refused = True
        head = f"HTTP/1.1 {status} {reason}\r\n{header}content-type: text/plain\r\nconnection: close\r\n"
        self.transport.write(f"{head}content-length: {len(text)}\r\n\r\n{text}".encode())

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether to stay open until all whole requests are answered: their client may still read."""
        if self.is_owed:
            self.cycle.keep_alive = False
            return True
        return False

    @property
    def is_idle(self) -> bool:
        """Whether nothing of a request but a part of its head has come."""
        return self.cycle is None or self.cycle.response_complete

    @property
    def has_unread(self) -> bool:
        """Whether the client has sent what was not looked at."""
        return is_readable(self.transport)

    def shed(self) -> None:
        """Close it for another one."""
        self.transport.close()

    @property
    def is_owed(self) -> bool:
        """Whether the client waits for the answer to a whole request, as it does if others queue."""
        if self.pipeline:
            return True
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body

    def _wait_for_client(self) -> None:
        """Close the connection if nothing comes for the idle time: before a request, or within one."""
        self._idle_until = self.loop.time() + self.timeout_keep_alive
        if self._idle_timer is None:
            self._idle_timer = self.loop.call_at(self._idle_until, self._look_whether_idle)

    def _unset_keepalive_if_required(self) -> None:
        """Wait for the client no longer; the timer goes on for the next time."""
        self._idle_until = None

    def _look_whether_idle(self) -> None:
        self._idle_timer = None
        if self._idle_until is None:
            return
        if self._idle_until > self.loop.time():
            self._idle_timer = self.loop.call_at(self._idle_until, self._look_whether_idle)
        else:
            self.timeout_keep_alive_handler()

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

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Begin to answer a request."""
        cycle.send = partial(self._send, cycle)  # type: ignore[method-assign]
        super()._start_asgi_task(cycle, app)

    async def _send(self, cycle: RequestResponseCycle, message: Any) -> None:
        """Send an answer, which is two messages: its head, and the whole of its body."""
        if message["type"] == "http.response.start":
            cycle.response_started = True
            cycle.waiting_for_100_continue = False
            self._head = message
            return
        del cycle.send  # which holds the cycle, as the cycle does it
        if self.flow.write_paused and not cycle.disconnected:
            await self.flow.drain()
        if cycle.disconnected:
            return
        body = b"" if cycle.scope["method"] == "HEAD" else message.get("body", b"")
        self._write(self._head_of(cycle), body)
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()

    def _head_of(self, cycle: RequestResponseCycle) -> bytes:
        """The head of an answer, which says whether it is the connection's last."""
        headers = self._head["headers"]
        lines = [name + b": " + value + b"\r\n" for name, value in (*cycle.default_headers, *headers)]
        if _CLOSE in lines:
            cycle.keep_alive = False
        elif not cycle.keep_alive:
            lines.append(_CLOSE)
        return b"".join((STATUS_LINE[self._head["status"]], *lines, b"\r\n"))

    def _write(self, head: bytes, body: bytes) -> None:
        """Send both, unless the client has been told of the end already."""
        if self._is_refused:
            return
        if len(body) > _LARGE:
            self.transport.write(head)
            self.transport.write(body)
        else:
            self.transport.write(head + body)

    def on_response_complete(self) -> None:
        """See to the client's next request."""
        if self.pipeline:
            super().on_response_complete()
        else:
            self.server_state.total_requests += 1
            self.flow.resume_reading()
        self._open_connections.use(self)
        if not (self.transport.is_closing() or self.is_owed):
            self._wait_for_client()


def bounded_connections() -> Callable[..., asyncio.Protocol]:
    """What makes the connections of one server."""
    return partial(RestConnection, open_connections=OpenConnections())
