"""A client's connection that answers most predictions without the steps of the general `http_protocol`.

PERF: a request that comes whole, behind a head that the parser has read before, is answered within the call
that brings its bytes: no parser, no task, no messages between server and application. Whatever else comes
goes the general way, and so does the rest of an answer that has to be waited for.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from tfs_proxy.embedded.rest.answers import JSON, RestAnswer
from tfs_proxy.embedded.rest.app import RestApp, UnfinishedAnswer
from tfs_proxy.embedded.rest.http_protocol import RestConnection
from tfs_proxy.embedded.rest.known_heads import KnownHeads, KnownPost
from tfs_proxy.wire.server.bounds import OpenConnections

Defaults = list[tuple[bytes, bytes]]
"""The headers of every answer of a server: the date, of which uvicorn makes a new list each second."""


class AnswerHeads:
    """The heads of the answers of one server on connections that stay open."""

    def __init__(self, app: RestApp) -> None:
        self._app = app
        self._defaults: Defaults | None = None
        self._before_length = b""

    def of(self, answer: RestAnswer, defaults: Defaults) -> bytes:
        """An answer's head."""
        # PERF: all but the length is the same for every prediction of a second.
        if answer.headers is not JSON or answer.status != HTTPStatus.OK:
            return self._written(answer, defaults)
        if self._defaults is not defaults:
            self._defaults = defaults
            self._before_length = self._written(answer._replace(body=b""), defaults).removesuffix(
                b"0\r\n\r\n"
            )
        return b"%b%d\r\n\r\n" % (self._before_length, len(answer.body))

    def _written(self, answer: RestAnswer, defaults: Defaults) -> bytes:
        headers = (*defaults, *self._app.headers_of(answer))
        lines = [name + b": " + value + b"\r\n" for name, value in headers]
        return b"".join((STATUS_LINE[answer.status], *lines, b"\r\n"))


class QuickConnection(RestConnection):
    """One client's connection to a `RestApp`; heads of requests and answers are those of all connections."""

    def __init__(
        self,
        *arguments: Any,
        rest_app: RestApp,
        heads: KnownHeads,
        answer_heads: AnswerHeads,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._rest_app = rest_app
        self._heads = heads
        self._answer_heads = answer_heads
        self._is_between_requests = True
        self._unknown: bytes | None = None

    def data_received(self, data: bytes) -> None:
        """Answer a known request that is whole; let the parser read anything else."""
        self._unknown = None
        if self._is_between_requests and self.is_idle and not (self._is_refused or self.flow.write_paused):
            request = self._heads.find(data)
            if request is None:
                self._unknown = data
            elif request.body_end == len(data):
                self._answer(request, data)
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        """Begin to read a request in parts."""
        self._is_between_requests = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Take a head, and know it from now on if it is one of the plain kind."""
        super().on_headers_complete()
        data, self._unknown = self._unknown, None
        if data is None or self.parser.should_upgrade():
            return
        if self.scope["method"] == "POST" and self.cycle.keep_alive:
            query = self.scope["query_string"]
            target = self.scope["raw_path"] + (b"?" + query if query else b"")
            self._heads.learn(data, target, self.headers)

    def on_message_complete(self) -> None:
        """End a request."""
        self._is_between_requests = True
        super().on_message_complete()

    def _answer(self, request: KnownPost, data: bytes) -> None:
        answer = self._rest_app.begin(request.target, data[request.body_start :])
        if isinstance(answer, RestAnswer):
            self._write(self._answer_heads.of(answer, self.server_state.default_headers), answer.body)
            self.on_response_complete()
        else:
            self._unset_keepalive_if_required()
            self._finish(answer)

    def _finish(self, unfinished: UnfinishedAnswer) -> None:
        """Go on in a task, as with a request that the parser has read."""
        self.cycle = RequestResponseCycle(
            scope={"type": "http", "method": "POST", "http_version": "1.1"},  # type: ignore[typeddict-item]
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=False,
            keep_alive=True,
            on_response=self.on_response_complete,
        )
        self.cycle.more_body = False
        self._start_asgi_task(self.cycle, partial(self._rest_app.finish, unfinished))


def quick_connections(app: RestApp) -> Callable[..., asyncio.Protocol]:
    """What makes the connections of one server."""
    return partial(
        QuickConnection,
        rest_app=app,
        heads=KnownHeads(),
        answer_heads=AnswerHeads(app),
        open_connections=OpenConnections(),
    )
