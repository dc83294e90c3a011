"""A client's connection that answers most predictions without the steps of the general `http_protocol`.

PERF: a request behind a head that the parser has read before is answered within the call that brings its last
bytes: no parser, no task, no messages between server and application, and a large body is copied once.
Whatever else comes goes the general way: bodies that take their time, too, and the rest of an answer that
has to be waited for.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Any

from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from tfs_proxy.embedded.core.process_ledger import RequestLedger
from tfs_proxy.embedded.rest.answers import JSON, RestAnswer
from tfs_proxy.embedded.rest.app import RestApp, UnfinishedAnswer
from tfs_proxy.embedded.rest.http_protocol import RestConnection
from tfs_proxy.embedded.rest.known_heads import KnownHeads, KnownPost
from tfs_proxy.embedded.rest.request_body import AT_ONCE_SECONDS, room_for
from tfs_proxy.memory import MEGABYTE
from tfs_proxy.wire.server.bounds import OpenConnections

_MOST_MISSING_BYTES = 32 * MEGABYTE

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


class ArrivingBody(Struct):
    """A known request, the parts of it that have come, and what is reserved for it until ``timer`` rings."""

    request: KnownPost
    parts: list[bytes]
    missing_bytes: int
    ledger: RequestLedger
    timer: asyncio.TimerHandle

    def whole(self) -> bytes:
        """The body of a request that is whole."""
        self.parts[0] = self.parts[0][self.request.body_start :]
        return b"".join(self.parts)


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
        self._arriving: ArrivingBody | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing of a request but a part of its head has come."""
        return self._arriving is None and super().is_idle

    def data_received(self, data: bytes) -> None:
        """Answer a known request once it is whole; let the parser read anything else."""
        self._unknown = None
        if self._arriving is not None:
            self._go_on_with(self._arriving, data)
        elif not (self._may_know() and self._begin_with(data)):
            super().data_received(data)

    def _may_know(self) -> bool:
        """Whether what comes now begins a request, and may be answered at once."""
        is_free = self._is_between_requests and self.is_idle
        return is_free and not (self._is_refused or self.flow.write_paused)

    def _begin_with(self, data: bytes) -> bool:
        """Answer a request, or wait for the rest of its body; whether it is a known one."""
        request = self._heads.find(data)
        if request is None:
            self._unknown = data
            return False
        missing_bytes = request.body_end - len(data)
        if not missing_bytes:
            self._answer(request.target, data[request.body_start :], self._rest_app.ledger())
            return True
        room = room_for(request.body_end - request.body_start)
        ledger = self._rest_app.ledger()
        if not 0 < missing_bytes <= _MOST_MISSING_BYTES or (room and not ledger.try_ahead(room)):
            return False
        self._unset_keepalive_if_required()
        timer = self.loop.call_later(AT_ONCE_SECONDS, self._let_parser_read)
        self._arriving = ArrivingBody(request, [data], missing_bytes, ledger, timer)
        return True

    def _go_on_with(self, body: ArrivingBody, data: bytes) -> None:
        body.parts.append(data)
        body.missing_bytes -= len(data)
        if body.missing_bytes < 0:
            self._let_parser_read()
        elif not body.missing_bytes:
            self._arriving = None
            body.timer.cancel()
            self._answer(body.request.target, body.whole(), body.ledger)

    def _let_parser_read(self) -> None:
        """Give up to wait for a body here: the general way has all the rules for slow ones."""
        body, self._arriving = self._arriving, None
        if body is not None:
            body.timer.cancel()
            body.ledger.close()
            super().data_received(b"".join(body.parts))

    def eof_received(self) -> bool:  # type: ignore[override]
        """Whether to stay open until all whole requests are answered."""
        self._let_parser_read()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        body, self._arriving = self._arriving, None
        if body is not None:
            body.timer.cancel()
            body.ledger.close()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Take no more requests than this one, if there is one."""
        self._let_parser_read()
        super().shutdown()

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

    def _answer(self, target: bytes, body: bytes, ledger: RequestLedger) -> None:
        answer = self._rest_app.begin(target, body, ledger)
        if isinstance(answer, RestAnswer):
            ledger.close()
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
