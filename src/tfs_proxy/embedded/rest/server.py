"""uvicorn's HTTP connection, which ignores offers of HTTP/2 and lets HTTP/1.0 answer a half-closed one.

A request that offers HTTP/2, as those of Java's client do, would lose its body: httptools takes what follows
the head for the other protocol, so it is read once more, without the offer. A client that shuts its side
behind a request would get no answer, and one that sends nothing would hold its connection for ever.
"""

import asyncio
from asyncio import AbstractEventLoop
from contextlib import suppress
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from tfs_proxy.embedded import model_config
from tfs_proxy.embedded.flags import ModelServerFlags
from tfs_proxy.embedded.rest.app import RestApp, RestOptions
from tfs_proxy.values.resources import most_descriptors
from tfs_proxy.wire.http_server import OwnLoopServer
from tfs_proxy.wire.protos import MonitoringConfig

_MAX_HEAD_BYTES = 64 * 1024
_DISCARD_SECONDS = 2.0


class _WholeAnswers:
    """A transport that sends an answer's head with its body: a kill in between would cut the answer."""

    def __init__(self, transport: Any, loop: AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Hold a head back until more comes, or the event loop's next turn."""
        if not self._head and data.startswith(b"HTTP/1.1 "):
            self._head = data
            self._loop.call_soon(self._flush)
            return
        self._transport.write(self._head + data)
        self._head = b""

    def _flush(self) -> None:
        if self._head:
            self.write(b"")

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        self._flush()
        self._transport.close()


class RestConnection(HttpToolsProtocol):
    """One client's connection; all of them have at most half of the descriptors."""

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for requests, if there is room for one more connection."""
        self._unread_bytes = 0
        self._is_refused = False
        super().connection_made(_WholeAnswers(transport, self.loop))  # type: ignore[arg-type]
        self._wait_for_client()
        if len(self.connections) > max(1, most_descriptors() // 2):
            self._refuse(503, "Too many connections are open.")

    def connection_lost(self, exc: Exception | None) -> None:
        """End; the timer of a connection that was reset would hold it for the rest of its time."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Read what came; a request that offers another protocol is read again as one that does not."""
        self._unset_keepalive_if_required()
        while data and not self._is_refused:
            data = self._read(data)
        if not self._awaits_answer:
            self._wait_for_client()

    def _read(self, data: bytes) -> bytes:
        """Parse it, and return what is to be parsed next."""
        self._unread_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            if self._should_upgrade():
                return self._head_without_offer() + data[offer.args[0] :]
        except httptools.HttpParserError:
            if not self._is_refused:
                self.send_400_response("Invalid HTTP request received.")
        if self._unread_bytes > _MAX_HEAD_BYTES:
            self._refuse_head()
        return b""

    def on_headers_complete(self) -> None:
        self._unread_bytes = 0
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > _MAX_HEAD_BYTES:
            self._refuse_head()
            raise ValueError("the head is too large")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unread_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unread_bytes = 0
        super().on_message_complete()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Stay open until all whole requests are answered, if they are HTTP/1.0: their client may still read.

        One of HTTP/1.1 has gone, unless it is answered at once: so nginx and most others give up.
        """
        if self._awaits_answer and self.scope["http_version"] != "1.0":
            self.loop.call_soon(self.transport.close)
        return self._awaits_answer

    @property
    def _awaits_answer(self) -> bool:
        """True if the client waits for the answer to a whole request."""
        is_arriving = self.cycle is None or self.cycle.response_complete or self.cycle.more_body
        return bool(self.pipeline) or not is_arriving

    def _wait_for_client(self) -> None:
        """Close the connection if nothing comes for the idle time, before a request or within its head."""
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    def _should_upgrade(self) -> bool:
        """True if a request is read again: all but CONNECT, which always asks for another protocol."""
        return self.scope["method"] != "CONNECT"

    def _head_without_offer(self) -> bytes:
        """The request's head for a new parser, for which data may follow ``Connection: close``, too."""
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        line = f"{self.scope['method']} ".encode() + self.url + f" HTTP/{self.scope['http_version']}".encode()
        fields = [name + b": " + value for name, value in self.headers if name != b"upgrade"]
        return b"\r\n".join([line, *fields, b"", b""])

    def _refuse_head(self) -> None:
        self._refuse(431 if self.headers else 414, f"The head of a request may have {_MAX_HEAD_BYTES} bytes.")

    def _refuse(self, status: int, text: str) -> None:
        """Answer, and end; what the client still sends is not looked at, so that it sees the answer."""
        self._is_refused = True
        self.pipeline.clear()
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        head = f"content-type: text/plain\r\nconnection: close\r\ncontent-length: {len(text)}\r\n\r\n"
        self.transport.write(STATUS_LINE[status] + head.encode() + text.encode())
        self.transport.write_eof()
        self.loop.call_later(_DISCARD_SECONDS, self.transport.close)


BACKLOG = 1024
_METRICS_PATH = "/monitoring/prometheus/metrics"
_MILLIS = 1e3
_DATE_SECONDS = 1.0
_KEEP_ALIVE_SECONDS = 600
"""Limit of idleness: longer than a proxy in front keeps a connection, so that the server never closes one.

Within a request nothing may come for as long.
"""


class RestServer(OwnLoopServer):
    """uvicorn for one app, which ends with gRPC's server."""

    def __init__(self, app: RestApp) -> None:
        super().__init__(
            app,
            http=RestConnection,
            log_level="warning",
            backlog=BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        )
        self._ending = asyncio.Event()

    def stop(self) -> None:
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        """Renew the date of answers each second until `stop`; uvicorn's own loop looks ten times as often."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(_DATE_SECONDS):
                    await self._ending.wait()


def rest_options(flags: ModelServerFlags) -> RestOptions:
    """Options of REST by the flags. Raises SettingsError if the monitoring file is not valid."""
    path = None
    if flags.monitoring_config_file:
        config = model_config.read_text(flags.monitoring_config_file, MonitoringConfig())
        if config.prometheus_config.enable:
            path = config.prometheus_config.path or _METRICS_PATH
    return RestOptions(
        timeout_seconds=flags.rest_api_timeout_in_ms / _MILLIS if flags.rest_api_timeout_in_ms > 0 else None,
        cors=flags.rest_api_enable_cors_support,
        metrics_path=path,
    )
