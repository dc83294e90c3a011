"""Server of bidirectional streams: who may open one, how it ends, and the drain at SIGTERM."""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl

from websockets.asyncio.server import Server, ServerConnection, unix_serve
from websockets.frames import CloseCode
from websockets.http11 import Request, Response
from websockets.protocol import State

from tfs_proxy.observe.logs.access import RequestLog
from tfs_proxy.observe.request_record import RequestRecord, chosen_id, handling, note_model
from tfs_proxy.serving.script.streams import StreamRequest
from tfs_proxy.settings.worker_environment import StreamOptions
from tfs_proxy.values.attributes import parse_target
from tfs_proxy.values.deployment import StreamReport
from tfs_proxy.values.errors import BadInput, RequestError
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES, INFERENCE_ID, REQUEST_ID
from tfs_proxy.wire.http_server import BACKLOG
from tfs_proxy.wire.routes import OTHER_ROUTE, STREAM, path_of, route_of
from tfs_proxy.worker.memory_ledger import MemoryLedger
from tfs_proxy.worker.streams.stream import (
    CLIENT_GONE,
    COMPLETED,
    HANGS,
    IDLE,
    SCRIPT_ERROR,
    STOPPED,
    OpenStream,
    StreamConnection,
)

PING_SECONDS: Final = 30.0
PONG_SECONDS: Final = 270.0
"""SageMaker, too, gives up after five minutes: a client that sends more than is read delays its pongs."""

CLOSE_SECONDS: Final = 5.0
QUEUED_FRAMES: Final = 4
"""Frames of a stream that wait for the script; then the client has to wait, too."""

END_SECONDS: Final = 5.0
"""Time for the script to end a stream by itself, and again once it is cancelled."""

SHARE_TO_END: Final = 0.8
"""Part of the stop time in which streams may end by themselves; the rest is for the close frames."""

Serve = Callable[[OpenStream], Awaitable[RequestError | None]]
"""Function that serves a stream until it ends; returns the script's error, which is in the log."""

log = logging.getLogger(__name__)
library_log = logging.getLogger("websockets")


class StreamServer:
    """Serves streams by ``serve``; ``place`` says where a script that hangs is."""

    def __init__(
        self,
        options: StreamOptions,
        serve: Serve,
        ledger: MemoryLedger,
        access: RequestLog,
        default_model: str,
        place: Callable[[], str],
    ) -> None:
        self._options, self._serve, self._access = options, serve, access
        self._connection = type("Connection", (StreamConnection,), {"ledger": ledger})
        self._default_model, self._place = default_model, place
        self._open: dict[OpenStream, asyncio.Task[None]] = {}
        self._ended: Counter[str] = Counter()
        self._messages_in = self._messages_out = 0
        self.changed = asyncio.Event()

    async def listen(self) -> Server:
        """Listen, in the place of a process that did before."""
        library_log.setLevel(logging.CRITICAL)
        socket = Path(self._options.socket)
        new = socket.with_suffix(f".{os.getpid()}")
        server = await unix_serve(
            self._handle,
            str(new),
            create_connection=self._connection,
            compression=None,
            process_request=self._refusal,
            server_header=None,
            ping_interval=PING_SECONDS,
            ping_timeout=PONG_SECONDS,
            close_timeout=CLOSE_SECONDS,
            max_size=self._options.message_bytes,
            max_queue=QUEUED_FRAMES,
            backlog=BACKLOG,
        )
        new.rename(socket)
        return server

    def report(self) -> StreamReport:
        """Streams so far."""
        messages_in = self._messages_in + sum(stream.messages_in for stream in self._open)
        messages_out = self._messages_out + sum(stream.messages_out for stream in self._open)
        return StreamReport(os.getpid(), len(self._open), dict(self._ended), messages_in, messages_out)

    async def drain(self, server: Server) -> None:
        """Let streams end, and close those that have not with 1001."""
        server.close(close_connections=False)
        seconds = self._options.stop_seconds
        if self._open:
            await asyncio.wait(self._open.values(), timeout=seconds * SHARE_TO_END)
        closing = [stream.close(STOPPED, CloseCode.GOING_AWAY, "the server stops") for stream in self._open]
        tasks = [*map(asyncio.ensure_future, closing), *self._open.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds * (1 - SHARE_TO_END) / 2)

    async def _refusal(self, connection: ServerConnection, request: Request) -> Response | None:
        """Answer to a request that may not open a stream; None if it may."""
        path = path_of(request.path)
        if route_of(path) not in {OTHER_ROUTE, STREAM.label}:
            return connection.protocol.reject(
                HTTPStatus.NOT_FOUND, f"{path} takes no streams: open them at {STREAM.path}"
            )
        if len(self._open) >= self._options.most_streams:
            text = f"{self._options.most_streams} streams are open, the limit that TFS_PROXY_MAX_STREAMS sets"
            return connection.protocol.reject(HTTPStatus.SERVICE_UNAVAILABLE, text)
        try:
            self._read(request)
        except BadInput as error:
            return connection.protocol.reject(HTTPStatus.BAD_REQUEST, str(error))
        return None

    def _read(self, request: Request) -> StreamRequest:
        """Raises BadInput for custom attributes that are malformed."""
        headers: dict[str, str] = {}
        for name, value in request.headers.raw_items():
            text = value.encode(errors="surrogateescape").decode("latin-1")
            headers[name.lower()] = f"{headers[name.lower()]}, {text}" if name.lower() in headers else text
        attributes = headers.get(CUSTOM_ATTRIBUTES.lower())
        path, _, query = request.path.partition("?")
        target = parse_target(attributes, self._default_model)
        return StreamRequest(path, dict(parse_qsl(query, True)), headers, target, attributes)

    async def _handle(self, connection: ServerConnection) -> None:
        assert connection.request is not None  # noqa: S101 - its handshake is over
        request, target = self._read(connection.request), connection.request.path
        ids = (request.headers.get(name.lower()) for name in (INFERENCE_ID, REQUEST_ID))
        assert isinstance(connection, StreamConnection)  # noqa: S101 - `open` says so
        stream = OpenStream(connection, request, RequestRecord(chosen_id(*ids), "GET", target))
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        self._open[stream] = task
        self.changed.set()
        try:
            with handling(stream.record):
                note_model(request.target.model if request.target else self._default_model)
                await self._until_it_ends(stream)
        except Exception:
            log.exception("a stream failed")
            raise
        finally:
            connection.release()
            del self._open[stream]
            self._messages_in += stream.messages_in
            self._messages_out += stream.messages_out
            self._ended[stream.outcome or CLIENT_GONE] += 1
            self.changed.set()
        stream.log(self._access)

    async def _until_it_ends(self, stream: OpenStream) -> None:
        """Serve a stream until the script, the client or an idle time ends it."""
        serving = asyncio.ensure_future(self._serve(stream))
        others = [
            asyncio.ensure_future(stream.connection.wait_closed()),
            asyncio.ensure_future(stream.until_idle(self._options.idle_seconds)),
        ]
        await asyncio.wait({serving, *others}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            error = serving.result()
            if error is not None:
                stream.record.reason = str(error)
                await stream.close(SCRIPT_ERROR, CloseCode.INTERNAL_ERROR, str(error))
            elif stream.connection.state is State.OPEN:  # else the script ended because the client had
                await stream.close(COMPLETED, CloseCode.NORMAL_CLOSURE)
        elif not others[0].done():
            text = f"no message for {self._options.idle_seconds:g} s (TFS_PROXY_STREAM_IDLE_SECONDS)"
            await stream.close(IDLE, CloseCode.GOING_AWAY, text)
        for other in others:
            other.cancel()
        await asyncio.wait({serving}, timeout=END_SECONDS)
        if not serving.done():
            serving.cancel()
            await asyncio.wait({serving}, timeout=END_SECONDS)
        if not serving.done():
            stream.outcome, stream.record.reason = HANGS, f"hangs at {self._place()}"
            log.error("a stream's script did not end after its client had gone: it %s", stream.record.reason)
        with suppress(asyncio.CancelledError):
            if serving.done() and (error := serving.result()) and not stream.outcome:
                stream.outcome, stream.record.reason = SCRIPT_ERROR, str(error)
        await stream.connection.wait_closed()
        stream.find_outcome()
