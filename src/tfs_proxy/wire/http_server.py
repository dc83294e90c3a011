"""The HTTP servers of our own processes: uvicorn on open sockets, and ASGI messages as requests.

The control API and the endpoint are such servers. They are for this machine: nginx is in front of them for
other clients, and limits those.
"""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager, nullcontext, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import uvicorn
from msgspec.structs import replace

from tfs_proxy.values.errors import BadInput, Overloaded
from tfs_proxy.values.memory import MEGABYTE
from tfs_proxy.values.resources import most_descriptors
from tfs_proxy.wire.error_body import INTERNAL_ERROR, body_too_large
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse, StreamedResponse
from tfs_proxy.wire.media_types import JSON

BACKLOG: Final = 2048
"""Connections that wait to be accepted, per listener; the kernel may allow fewer (net.core.somaxconn)."""

IDLE_SECONDS: Final = 75
DISCARD_SECONDS: Final = 2.0

Response = HttpResponse | StreamedResponse
Respond = Callable[[HttpRequest], Awaitable[Response]]
Message = Mapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Message, Receive, Send], Awaitable[None]]

log = logging.getLogger(__name__)


class OwnLoopServer(uvicorn.Server):
    """uvicorn within an event loop of ours: it handles no signals, and has no log of its own."""

    def __init__(self, app: Any, **options: Any) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                **options,
            )
        )

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


class HttpServer(OwnLoopServer):
    """A server that wakes up only for requests."""

    def __init__(self, app: AsgiApp) -> None:
        super().__init__(
            app,
            http="h11",
            log_level="critical",
            date_header=False,
            backlog=BACKLOG,
            limit_concurrency=max(1, most_descriptors() // 2),
            timeout_keep_alive=IDLE_SECONDS,
        )
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        self.servers: list[asyncio.Server] = []

    async def listen(self, listeners: Sequence[socket.socket]) -> None:
        await self.startup(list(listeners))

    async def listen_at(self, path: Path) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        await self.listen([listener])

    def close(self) -> None:
        """Stops accepting; requests in flight go on. Idempotent."""
        for server in self.servers:
            server.close()

    async def drain(self, seconds: float) -> None:
        """Stops accepting, and waits at most ``seconds`` for requests in flight."""
        self.config.timeout_graceful_shutdown = max(seconds, 0)  # type: ignore[assignment]  # it takes both
        await self.shutdown()


class _TooLarge(Exception):
    """The body is over the limit."""


class _Gone(Exception):
    """The client has ended its connection."""


Held = Callable[[int], AbstractAsyncContextManager[None]]
"""Context that holds the memory of a body of so many bytes. Raises Overloaded."""


def app_of(
    respond: Respond,
    body_bytes: int = 0,
    *,
    held: Held = lambda _body_bytes: nullcontext(),
    only_once: str = "",
    ends_with_client: bool = False,
) -> AsgiApp:
    """Make an ASGI application that answers with ``respond``, which gets bodies of at most so many bytes.

    With 0 all bodies are discarded. A request that repeats the header ``only_once`` is refused.
    With ``ends_with_client`` an answer that nobody waits for any more is cancelled.
    """

    async def app(scope: Message, receive: Receive, send: Send) -> None:
        request = head_of(scope)
        with suppress(_Gone):
            try:
                _refuse_repeated(scope, only_once)
                declared = int(request.headers.get("content-length", 0))
                unknown = "transfer-encoding" in request.headers
                async with held(body_bytes if unknown else min(declared, body_bytes)):
                    try:
                        body = await _read(request, receive, body_bytes)
                        answering = respond(replace(request, body=body))
                        response = await (
                            _while_wanted(answering, receive) if ends_with_client else answering
                        )
                    except (_TooLarge, _Gone):
                        raise
                    except Exception:
                        log.exception("a request failed")
                        status = HTTPStatus.INTERNAL_SERVER_ERROR
                        response = HttpResponse.error(status, INTERNAL_ERROR)
            except _TooLarge:
                await _discard(request, receive)
                text = body_too_large(f"{body_bytes // MEGABYTE} MB")
                response = HttpResponse.error(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
            except BadInput as error:
                await _discard(request, receive)
                response = HttpResponse.error(HTTPStatus.BAD_REQUEST, str(error))
            except Overloaded as error:
                await _discard(request, receive)
                response = HttpResponse.error(
                    HTTPStatus.SERVICE_UNAVAILABLE, str(error), headers={"Retry-After": "1"}
                )
            if isinstance(response, StreamedResponse):
                await _send_stream(receive, send, response)
            else:
                headers = {"Content-Length": str(len(response.body)), **response.headers}
                if response.body and response.header("Content-Type") is None:
                    headers["Content-Type"] = JSON
                if not response.keeps_connection:
                    headers["Connection"] = "close"
                await send(_head(response.status, headers))
                await send({"type": "http.response.body", "body": response.body})

    return app


def head_of(scope: Message) -> HttpRequest:
    """Request without its body; values of a repeated header are joined by commas."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1")
        text = value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    path = scope["raw_path"].decode("ascii", "replace")
    query = scope["query_string"].decode("latin-1")
    return HttpRequest(scope["method"], path, headers, query=query)


def _refuse_repeated(scope: Message, name: str) -> None:
    """Raises BadInput if a header is repeated: two servers could read that differently."""
    if [key for key, _ in scope["headers"]].count(name.lower().encode()) > 1:
        raise BadInput(f"the header {name} stands more than once")


async def _read(request: HttpRequest, receive: Receive, limit: int) -> bytes:
    if not limit:
        await _discard(request, receive)
        return b""
    if int(request.headers.get("content-length", 0)) > limit:
        raise _TooLarge
    body = bytearray()
    more = True
    while more:
        part, more = await _part(receive)
        body += part
        if len(body) > limit:
            raise _TooLarge
    return bytes(body)


async def _part(receive: Receive) -> tuple[bytes, bool]:
    """Next part of a body, and True if there are more. Raises _Gone."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise _Gone
    return message.get("body", b""), message.get("more_body", False)


async def _while_wanted(answering: Awaitable[Response], receive: Receive) -> Response:
    """The answer; raises _Gone, and cancels it, if the client leaves before."""
    tasks = asyncio.ensure_future(answering), asyncio.ensure_future(receive())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise _Gone
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()


async def _discard(request: HttpRequest, receive: Receive) -> None:
    """Reads on for a moment: a client that still writes would not see the answer."""
    if "expect" in request.headers:
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(DISCARD_SECONDS):
            while (await _part(receive))[1]:
                pass


async def _send_stream(receive: Receive, send: Send, response: StreamedResponse) -> None:
    """Sends every part as soon as it comes; breaks the connection before the end if one is missing."""
    gone = asyncio.ensure_future(receive())
    try:
        async with aclosing(response.parts):
            await send(_head(response.status, response.headers))
            while (part := await _next_part(response, gone)) is not None:
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
    except Exception:
        log.exception("an answer breaks off")
        raise
    finally:
        gone.cancel()


async def _next_part(response: StreamedResponse, gone: asyncio.Future[Message]) -> bytes | None:
    """Next part; None at the end, or once the client has gone."""
    coming: asyncio.Future[Any] = asyncio.ensure_future(anext(response.parts, None))
    waited: list[asyncio.Future[Any]] = [coming, gone]
    try:
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    finally:
        if not coming.done():
            coming.cancel()
            await asyncio.wait([coming])
    return None if gone.done() or coming.cancelled() else coming.result()


def _head(status: int, headers: Mapping[str, str]) -> Message:
    fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http.response.start", "status": status, "headers": fields}
