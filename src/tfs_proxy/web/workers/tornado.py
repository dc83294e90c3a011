"""The ``tornado`` worker class: imported only if it is configured, since tornado is optional."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gunicorn.workers.gtornado import TornadoWorker as GunicornTornadoWorker
from tornado.httputil import (  # type: ignore[import-not-found]
    HTTPHeaders,
    HTTPServerRequest,
    ResponseStartLine,
)
from tornado.wsgi import WSGIContainer  # type: ignore[import-not-found]

from tfs_proxy.observe.request_record import chosen_id
from tfs_proxy.script.deadline import ScriptCall
from tfs_proxy.web.workers.base import ContainerWorker
from tfs_proxy.web.workers.late_calls import SOCKET
from tfs_proxy.web.workers.refusals import Refusal
from tfs_proxy.wire.header_names import REQUEST_ID


class Pending:
    """A request that may be answered before its thread comes back: stands in for the connection."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.given_up: asyncio.Future[tuple[Refusal, str]] = self._loop.create_future()

    def give_up(self, refusal: Refusal, request_id: str) -> None:
        """Answer so; from any thread."""
        self._loop.call_soon_threadsafe(self._set, refusal, request_id)

    def _set(self, refusal: Refusal, request_id: str) -> None:
        if not self.given_up.done():
            self.given_up.set_result((refusal, request_id))


class AnsweringContainer(WSGIContainer):  # type: ignore[misc]  # without tornado it has no types
    """Calls the application on threads, and answers for those that don't come back."""

    def environ(self, request: HTTPServerRequest) -> dict[str, Any]:
        """As in the base, with what stands for the connection."""
        return {**super().environ(request), SOCKET: request.pending}

    async def handle_request(self, request: HTTPServerRequest) -> None:
        """As in the base, unless the request is given up before; tornado sends nothing until it is whole."""
        request.pending = Pending()
        given_up = request.pending.given_up
        answering = asyncio.ensure_future(super().handle_request(request))
        await asyncio.wait({answering, given_up}, return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            answering.result()
            return
        answering.cancel()
        _refuse(request, *given_up.result())


def _refuse(request: HTTPServerRequest, refusal: Refusal, request_id: str) -> None:
    body = refusal.body
    fields = {"Content-Type": "application/json", "Content-Length": str(len(body)), REQUEST_ID: request_id}
    headers = HTTPHeaders(fields)
    start = ResponseStartLine("HTTP/1.1", refusal.status, refusal.phrase)
    connection = request.connection
    if connection is not None:  # it is, until the answer is complete
        connection.write_headers(start, headers, chunk=body)
        connection.finish()


class TornadoWorker(ContainerWorker, GunicornTornadoWorker):  # type: ignore[misc]
    """Tornado's HTTP server in front, threads behind it.

    Without threads one slow request would hold up the event loop, and heartbeats with it. Tornado
    parses HTTP by itself: what it refuses is a 400 without a body.
    """

    def load_wsgi(self) -> None:
        """Load the application and put it on threads."""
        super().load_wsgi()
        self.wsgi = AnsweringContainer(self.wsgi, ThreadPoolExecutor(self.cfg.threads))

    def abandon(self, call: ScriptCall) -> None:
        """Have the event loop answer: no other thread may write to its connections."""
        record = self.boundary.record_on(call.connection)
        request_id = record.request_id if record else chosen_id(None, None)
        call.connection.give_up(Refusal(504, str(self.watch.timeout())), request_id)
        self.boundary.give_up(call.connection, str(self.watch.timeout()))
