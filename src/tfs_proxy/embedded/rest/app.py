"""Whole answers of `rest.app`: their headers, the pages of a plain HTTP server, and refusals."""

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from contextlib import closing
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

from google.protobuf import json_format
from msgspec import Struct

from tfs_proxy.data.serving_json.answer_text import error as error_body
from tfs_proxy.embedded.core import catalog as describe
from tfs_proxy.embedded.core.catalog import Catalog
from tfs_proxy.embedded.core.metrics import Metrics
from tfs_proxy.embedded.core.process_ledger import ProcessLedger, RequestLedger, budget_of
from tfs_proxy.embedded.core.servable import CALLER_WAITS, CallerWaits
from tfs_proxy.embedded.errors import ServingError, caller_left, invalid, of_memory
from tfs_proxy.embedded.rest.handlers import HANDLERS, Handler
from tfs_proxy.embedded.rest.requests import (
    PREFLIGHT,
    Headers,
    Receive,
    Route,
    TooSlow,
    is_packed,
    is_uri,
    match,
    read,
    unpacked,
)
from tfs_proxy.values.errors import Overloaded, PayloadTooLarge
from tfs_proxy.values.memory import RESERVED_FROM_BYTES
from tfs_proxy.wire.error_body import TOO_LATE
from tfs_proxy.wire.grpc_codes import HTTP_STATUS, GrpcCode

log = logging.getLogger(__name__)

JSON: Headers = [(b"content-type", b"application/json")]
TEXT: Headers = [(b"content-type", b"text/plain")]
_RETRY = (b"retry-after", b"1")
_CLOSE = (b"connection", b"close")
_HTML: Headers = [(b"content-type", b"text/html")]
CORS: Headers = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"POST, GET"),
    (b"access-control-allow-headers", b"Content-Type"),
]
_WEB_ORIGIN = re.compile(rb"https?://")


class RestAnswer(NamedTuple):
    """A whole HTTP answer; one that is not ``of_api`` says nothing of other origins."""

    status: int
    body: bytes
    headers: Headers
    of_api: bool = True


def _page(status: int, reason: str) -> RestAnswer:
    """Answer of TF Serving's HTTP server to a request that no handler takes."""
    body = (
        f"<HTML><HEAD>\n<TITLE>{status} {reason}</TITLE>\n</HEAD><BODY>\n<H1>{reason}</H1>\n</BODY></HTML>\n"
    )
    return RestAnswer(status, body.encode(), _HTML, of_api=False)


NOT_FOUND = _page(404, "Not Found")
BAD_REQUEST = _page(400, "Bad Request")


def memory_refusal(error: PayloadTooLarge | Overloaded) -> RestAnswer:
    if isinstance(error, PayloadTooLarge):
        return RestAnswer(413, error_body(str(error)), JSON)
    return RestAnswer(503, error_body(str(error)), [*JSON, _RETRY])


def refused(error: Exception, request: str) -> tuple[GrpcCode, RestAnswer]:
    """Counts an error and answers it; an unexpected one is logged, too."""
    if isinstance(error, PayloadTooLarge | Overloaded):
        return of_memory(error).code, memory_refusal(error)
    if isinstance(error, RecursionError):
        error = invalid("JSON Parse error: The document is nested too deeply")
    elif not isinstance(error, ServingError):
        log.error("%s failed", request, exc_info=error)
        error = ServingError(GrpcCode.INTERNAL, "Internal error: see the model server's log")
    return error.code, RestAnswer(HTTP_STATUS[error.code], error_body(error.text), JSON)


Send = Callable[[dict[str, Any]], Awaitable[None]]

_SMALL_BODY = 256 * 1024
"""Size of most photographs in base64: a body like this is read in a few milliseconds at most."""


class RestOptions(Struct, frozen=True):
    """Options of the REST side.

    ``metrics_path`` is None if metrics are not exported, ``timeout_seconds`` is None if requests may take
    as long as they like.
    """

    timeout_seconds: float | None = 30.0
    cors: bool = False
    metrics_path: str | None = None


class RestApp:
    def __init__(
        self, catalog: Catalog, pool: Executor, metrics: Metrics, ledger: ProcessLedger, options: RestOptions
    ) -> None:
        self._catalog = catalog
        self._pool = pool
        self._metrics = metrics
        self._ledger = ledger
        self._options = options

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        ledger = RequestLedger(self._ledger)
        try:
            body = await read(receive, scope["headers"], ledger)
            if body is None:
                return
            answer = await self._answer(scope, body, ledger, receive)
        except (PayloadTooLarge, Overloaded) as error:
            answer = memory_refusal(error)
        except TooSlow:
            answer = RestAnswer(408, error_body(TOO_LATE), [*JSON, _CLOSE])
        finally:
            ledger.close()
        cors = CORS if self._options.cors and answer.of_api else ()
        headers = [*answer.headers, *cors, (b"content-length", b"%d" % len(answer.body))]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(
        self, scope: Mapping[str, Any], body: bytes, ledger: RequestLedger, receive: Receive
    ) -> RestAnswer:
        began = perf_counter()
        method = scope["method"]
        path = _target(scope)
        outside = self._outside(path)
        if outside is not None:
            return outside
        route = None
        code = GrpcCode.OK
        try:
            route = match(method, path)
            answer = await self._act(route, scope["headers"], body, ledger, receive)
        except Exception as error:  # noqa: BLE001 (the answer says it)
            code, answer = refused(error, f"{method} {path}")
        if route is not None and route.action in HANDLERS and route.model in self._catalog.names:
            self._metrics.request(route.model, route.action, "REST", code, (perf_counter() - began) * 1e6)
        return answer

    def _outside(self, path: str) -> RestAnswer | None:
        """The answer to a path that is not the API's; None for one that is."""
        if not is_uri(path):
            return BAD_REQUEST
        metrics = self._options.metrics_path
        if metrics is not None and path.partition("?")[0] == metrics:
            if path != metrics:
                text = f"Unexpected path: {path}. Should be {metrics}"
                return RestAnswer(400, text.encode(), TEXT, of_api=False)
            return RestAnswer(200, self._metrics.text(), TEXT, of_api=False)
        return None if path[:4].lower() == "/v1/" else NOT_FOUND

    async def _act(
        self, route: Route, headers: Headers, body: bytes, ledger: RequestLedger, receive: Receive
    ) -> RestAnswer:
        handler_class = HANDLERS.get(route.action)
        if handler_class is not None:
            return await self._predict(handler_class(self._catalog, route), headers, body, ledger, receive)
        if route.action == PREFLIGHT:  # any origin of the web may send it
            origins = (value for name, value in headers if name == b"origin")
            return RestAnswer(200 if _WEB_ORIGIN.search(next(origins, b"")) else 400, b"", [])
        if route.action == "status":
            answer = describe.status(self._catalog, route.model, route.version)
            return RestAnswer(200, f"{_pretty(answer)}\n".encode(), JSON)
        return RestAnswer(200, _metadata(self._catalog, route), JSON)

    async def _predict(
        self, handler: Handler, headers: Headers, body: bytes, ledger: RequestLedger, receive: Receive
    ) -> RestAnswer:
        packed = is_packed(headers)
        if packed or len(body) > _SMALL_BODY:
            run = partial(_read_and_run, handler, body, ledger, packed)
            return await self._in_pool(handler, run, ledger, receive)
        try:
            handler.read(body, budget_of())
            if handler.quick:
                answer = RestAnswer(200, handler.answer(), JSON)
                handler.close()
                return answer
        except BaseException:
            handler.close()
            raise
        return await self._in_pool(handler, partial(_run, handler), ledger, receive)

    async def _in_pool(
        self,
        handler: Handler,
        run: Callable[[CallerWaits], RestAnswer],
        ledger: RequestLedger,
        receive: Receive,
    ) -> RestAnswer:
        leaving = asyncio.ensure_future(_until_client_leaves(receive))
        running = self._pool.submit(run, lambda: not leaving.done())
        answering = asyncio.wrap_future(running)
        try:
            seconds = self._options.timeout_seconds
            await asyncio.wait((answering, leaving), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if answering.done():
                return answering.result()
            if leaving.done():
                raise caller_left()
            raise ServingError(GrpcCode.DEADLINE_EXCEEDED, "Timed out waiting for notification")
        finally:
            leaving.cancel()
            if not answering.done():
                answering.cancel()
                if running.cancel():
                    handler.close()
                else:
                    ledger.close_after(running)


async def _until_client_leaves(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _read_and_run(
    handler: Handler, body: bytes, ledger: RequestLedger, packed: bool, caller_waits: CallerWaits
) -> RestAnswer:
    CALLER_WAITS.set(caller_waits)
    with closing(handler):
        plain = unpacked(body, ledger) if packed else body
        handler.read(plain, budget_of(ledger if len(plain) >= RESERVED_FROM_BYTES else None))
        return RestAnswer(200, handler.answer(), JSON)


def _run(handler: Handler, caller_waits: CallerWaits) -> RestAnswer:
    CALLER_WAITS.set(caller_waits)
    with closing(handler):
        return RestAnswer(200, handler.answer(), JSON)


def _target(scope: Mapping[str, Any]) -> str:
    """Everything that follows the host: TF Serving's patterns are matched with the query in."""
    query: bytes = scope["query_string"]
    path: bytes = scope["raw_path"]
    return (path + b"?" + query if query else path).decode("latin-1")


def _metadata(catalog: Catalog, route: Route) -> bytes:
    with catalog.using(route.model, route.version, route.label) as servable:
        spec = _pretty(describe.spec_of(servable))
        signatures = _pretty(describe.signatures(servable))
    return f'{{\n"model_spec":{spec}\n,\n"metadata": {{"signature_def": {signatures}\n}}\n}}\n'.encode()


def _pretty(message: Any) -> str:
    fields = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return json.dumps(fields, indent=1, ensure_ascii=False)
