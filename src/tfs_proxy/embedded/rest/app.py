"""TF Serving's REST API as a bare ASGI application: HTTP in front of the catalog and inference.

A prediction runs on the event loop's own thread while it is measured to be quick (`Runner.quick`)
and its body is small; otherwise on a bounded pool, so that everything else answers meanwhile.
"""

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

from google.protobuf import json_format

from tfs_proxy.embedded.core import describe
from tfs_proxy.embedded.core.call_threads import WouldWait
from tfs_proxy.embedded.core.catalog import Catalog
from tfs_proxy.embedded.core.metrics import Metrics
from tfs_proxy.embedded.core.process_ledger import ProcessLedger, RequestLedger, budget_of
from tfs_proxy.embedded.errors import ServingError, invalid, of_memory
from tfs_proxy.embedded.rest import request_body
from tfs_proxy.embedded.rest import routes as rest_routes
from tfs_proxy.embedded.rest.handlers import HANDLERS, Handler
from tfs_proxy.embedded.rest.request_body import Headers, Receive, TooSlow
from tfs_proxy.embedded.rest.routes import Route
from tfs_proxy.errors import Overloaded, PayloadTooLarge
from tfs_proxy.memory import RESERVED_FROM_BYTES
from tfs_proxy.serving_json.answer_text import error as error_body
from tfs_proxy.wire.error_body import TOO_LATE
from tfs_proxy.wire.grpc_codes import HTTP_STATUS, GrpcCode

log = logging.getLogger(__name__)

Send = Callable[[dict[str, Any]], Awaitable[None]]

_JSON: Headers = [(b"content-type", b"application/json")]
_TEXT: Headers = [(b"content-type", b"text/plain")]
_RETRY = (b"retry-after", b"1")
_CLOSE = (b"connection", b"close")
_HTML: Headers = [(b"content-type", b"text/html")]
_CORS: Headers = [
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"POST, GET"),
    (b"access-control-allow-headers", b"Content-Type"),
]
_WEB_ORIGIN = re.compile(rb"https?://")
_MAX_ROUTES = 4096
_LONGEST_KEPT = 512
_SMALL_BODY = 65536


class RestAnswer(NamedTuple):
    """A whole HTTP answer; one that is not ``of_api`` says nothing of other origins."""

    status: int
    body: bytes
    headers: Headers
    of_api: bool = True


class _Pending(NamedTuple):
    """What is left to do for an answer, if that would hold up everything else."""

    handler: Handler
    run: Callable[[], RestAnswer]


def _page(status: int, reason: str) -> RestAnswer:
    """What TF Serving's HTTP server answers with if no handler is responsible."""
    body = (
        f"<HTML><HEAD>\n<TITLE>{status} {reason}</TITLE>\n</HEAD><BODY>\n<H1>{reason}</H1>\n</BODY></HTML>\n"
    )
    return RestAnswer(status, body.encode(), _HTML, of_api=False)


_NOT_FOUND = _page(404, "Not Found")
_BAD_REQUEST = _page(400, "Bad Request")


def _memory_refusal(error: PayloadTooLarge | Overloaded) -> RestAnswer:
    if isinstance(error, PayloadTooLarge):
        return RestAnswer(413, error_body(str(error)), _JSON)
    return RestAnswer(503, error_body(str(error)), [*_JSON, _RETRY])


def _refusal(error: ServingError) -> RestAnswer:
    return RestAnswer(HTTP_STATUS[error.code], error_body(error.text), _JSON)


@dataclass(frozen=True, slots=True)
class RestOptions:
    """How the REST side behaves.

    ``metrics_path`` is None if metrics are not exported, ``timeout_seconds`` is None if requests may take
    as long as they like.
    """

    timeout_seconds: float | None = 30.0
    cors: bool = False
    metrics_path: str | None = None


class RestApp:
    """The ASGI application."""

    def __init__(
        self,
        catalog: Catalog,
        pool: Executor,
        metrics: Metrics,
        ledger: ProcessLedger,
        options: RestOptions,
    ) -> None:
        self._catalog = catalog
        self._pool = pool
        self._metrics = metrics
        self._ledger = ledger
        self._options = options
        self._routes: dict[tuple[str, bytes], Route] = {}

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        ledger = RequestLedger(self._ledger)
        try:
            body = await request_body.read(receive, scope["headers"], ledger)
            if body is None:
                return
            answer = await self._answer(scope["method"], _target(scope), scope["headers"], body, ledger)
        except (PayloadTooLarge, Overloaded) as error:
            answer = _memory_refusal(error)
        except TooSlow:
            answer = RestAnswer(408, error_body(TOO_LATE), [*_JSON, _CLOSE])
        finally:
            ledger.close()
        length = (b"content-length", b"%d" % len(answer.body))
        cors = _CORS if self._options.cors and answer.of_api else ()
        headers = [*answer.headers, *cors, length]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(
        self, method: str, raw_path: bytes, headers: Headers, body: bytes, ledger: RequestLedger
    ) -> RestAnswer:
        """PERF: the one coroutine between a body and its answer; a quick request never waits in it."""
        began = perf_counter()
        route, code = None, GrpcCode.OK
        try:
            route = self._routes.get((method, raw_path))
            if route is None:
                path = raw_path.decode("latin-1")
                outside = self._outside(path)
                if outside is not None:
                    return outside
                route = rest_routes.match(method, path)
                self._keep(method, raw_path, route)
            answer = self._act(route, headers, body, ledger)
            if not isinstance(answer, RestAnswer):
                answer = await self._in_pool(answer, ledger)
        except (PayloadTooLarge, Overloaded) as error:
            code, answer = of_memory(error).code, _memory_refusal(error)
        except ServingError as error:
            code, answer = error.code, _refusal(error)
        except RecursionError:
            code = GrpcCode.INVALID_ARGUMENT
            answer = _refusal(invalid("JSON Parse error: The document is nested too deeply"))
        except Exception:
            log.exception("%s %r failed", method, raw_path)
            code = GrpcCode.INTERNAL
            answer = _refusal(ServingError(code, "Internal error: see the model server's log"))
        if route is not None and route.action in HANDLERS and route.model in self._catalog.names:
            self._metrics.request(route.model, route.action, "REST", code, (perf_counter() - began) * 1e6)
        return answer

    def _outside(self, path: str) -> RestAnswer | None:
        """The answer to a path that is not the API's; None for one that is."""
        if not rest_routes.is_uri(path):
            return _BAD_REQUEST
        metrics = self._options.metrics_path
        if metrics is not None and path.partition("?")[0] == metrics:
            if path != metrics:
                text = f"Unexpected path: {path}. Should be {metrics}"
                return RestAnswer(400, text.encode(), _TEXT, of_api=False)
            return RestAnswer(200, self._metrics.text(), _TEXT, of_api=False)
        return None if rest_routes.is_api(path) else _NOT_FOUND

    def _keep(self, method: str, raw_path: bytes, route: Route) -> None:
        """PERF: matching takes as long as a quick prediction. Clients that make paths up fill no memory."""
        if len(raw_path) > _LONGEST_KEPT:
            return
        if len(self._routes) >= _MAX_ROUTES:
            self._routes.clear()
        self._routes[method, raw_path] = route

    def _act(
        self, route: Route, headers: Headers, body: bytes, ledger: RequestLedger
    ) -> RestAnswer | _Pending:
        """The answer, or what is left to do for it."""
        handler_class = HANDLERS.get(route.action)
        if handler_class is not None:
            return _predict(handler_class(self._catalog, route), headers, body, ledger)
        if route.action == rest_routes.PREFLIGHT:
            return _preflight(headers)
        if route.action == "status":
            return RestAnswer(200, _status(self._catalog, route), _JSON)
        return RestAnswer(200, _metadata(self._catalog, route), _JSON)

    async def _in_pool(self, pending: _Pending, ledger: RequestLedger) -> RestAnswer:
        running = self._pool.submit(pending.run)
        try:
            async with asyncio.timeout(self._options.timeout_seconds):
                return await asyncio.wrap_future(running)
        except TimeoutError as error:
            if running.cancel():
                pending.handler.close()
            else:
                ledger.close_after(running)
            raise ServingError(GrpcCode.DEADLINE_EXCEEDED, "Timed out waiting for notification") from error


def _predict(handler: Handler, headers: Headers, body: bytes, ledger: RequestLedger) -> RestAnswer | _Pending:
    """The answer, if reading and running take next to no time."""
    packed = request_body.is_packed(headers)
    if packed or len(body) > _SMALL_BODY:
        return _Pending(handler, lambda: _read_and_run(handler, body, ledger, packed=packed))
    try:
        handler.read(body, budget_of())
        if handler.quick:
            answer = RestAnswer(200, handler.answer(), _JSON)
            handler.close()
            return answer
    except WouldWait:
        pass
    except BaseException:
        handler.close()
        raise
    return _Pending(handler, lambda: _run(handler))


def _read_and_run(handler: Handler, body: bytes, ledger: RequestLedger, *, packed: bool) -> RestAnswer:
    with closing(handler):
        plain = request_body.unpacked(body, ledger) if packed else body
        handler.read(plain, budget_of(ledger if len(plain) >= RESERVED_FROM_BYTES else None))
        return RestAnswer(200, handler.answer(), _JSON)


def _run(handler: Handler) -> RestAnswer:
    with closing(handler):
        return RestAnswer(200, handler.answer(), _JSON)


def _target(scope: Mapping[str, Any]) -> bytes:
    """All that follows the host: TF Serving's patterns are matched with the query in."""
    query: bytes = scope["query_string"]
    path: bytes = scope["raw_path"]
    return path + b"?" + query if query else path


def _preflight(headers: Headers) -> RestAnswer:
    """What a browser asks in front of a request: fine for any origin of the web."""
    origins = (value for name, value in headers if name == b"origin")
    return RestAnswer(200 if _WEB_ORIGIN.search(next(origins, b"")) else 400, b"", [])


def _status(catalog: Catalog, route: Route) -> bytes:
    answer = describe.status(catalog, route.model, route.version)
    return _pretty(answer).encode() + b"\n"


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
