"""The group ``streaming``: answers that come in parts, and WebSockets if the container takes them."""

import time

from tfs_proxy.conform.capability import Capability
from tfs_proxy.conform.check import CheckGroup, NotRun, RuleSource, Violation
from tfs_proxy.conform.checks.invocations import expect_good
from tfs_proxy.conform.checks.ping import refuse_bad_ping
from tfs_proxy.conform.judging import PING, Judging
from tfs_proxy.conform.raw_http import NoReply, RawReply, RawRequest, ask_once
from tfs_proxy.conform.requests_file import KnownRequest
from tfs_proxy.conform.starts import PING_SECONDS
from tfs_proxy.conform.websocket import answers_ping, open_websocket

GROUP = CheckGroup("streaming", RuleSource.STREAMING)
STREAM_SECONDS = 8 * 60.0
SEVERAL = 4
LEAST_SPREAD_SECONDS = 0.001
LEAVING = 3


@GROUP.must("The answer is in chunked transfer encoding.")
def chunked(judging: Judging) -> str | None:
    reply = _streamed(judging)
    if not reply.is_chunked:
        raise Violation(
            expected="Transfer-Encoding: chunked",
            got=f"Content-Length: {reply.header('Content-Length')}",
            mend="Answer with a generator or a streaming response.",
        )
    return None


@GROUP.must("Its parts arrive as they are made, not all at the end.")
def in_parts(judging: Judging) -> str | None:
    arrivals = _streamed(judging).arrivals
    spread = arrivals[-1] - arrivals[0] if arrivals else 0.0
    if spread < LEAST_SPREAD_SECONDS:
        raise Violation(
            expected="parts that arrive one after the other",
            got=f"all {len(arrivals)} at once",
            mend="Flush after each part; nginx collects them unless proxy_buffering is off.",
        )
    return f"{len(arrivals)} parts in {spread:.2f} s"


@GROUP.must("The answer ends with its last chunk.")
def ends(judging: Judging) -> str | None:
    reply = _streamed(judging)
    if not reply.is_chunked and reply.header("Content-Length") is None:
        raise Violation(expected="an end that can be seen", got="a connection that is closed")
    return None


@GROUP.must("The stream ends within 8 minutes.")
def within_8_minutes(judging: Judging) -> str | None:
    return f"{_streamed(judging).seconds:.2f} s"


@GROUP.must("Ping answers within 2 s while the stream is open.", RuleSource.PING)
def ping_meanwhile(judging: Judging) -> str | None:
    with judging.connect() as connection:
        connection.send(judging.request(_streaming(judging)), STREAM_SECONDS)
        ping = RawRequest(path=PING)
        try:
            refuse_bad_ping(ask_once(judging.address, ping, PING_SECONDS), "while a stream is open")
        except NoReply as error:
            refuse_bad_ping(str(error), "while a stream is open")
        connection.read(time.monotonic())
    return None


@GROUP.must("A client that leaves in the middle does no harm.")
def client_leaves(judging: Judging) -> str | None:
    request = judging.request(_streaming(judging))
    for _ in range(LEAVING):
        with judging.connect() as connection:
            connection.send(request, STREAM_SECONDS)
            connection.wait_for_bytes(judging.options.answer_seconds)
    judging.ping()
    expect_good(judging.ask(request, STREAM_SECONDS))
    return None


@GROUP.should("The stream has a Content-Type.")
def content_type(judging: Judging) -> str | None:
    reply = _streamed(judging)
    if not reply.content_type:
        raise Violation(expected="a Content-Type", got="none")
    return reply.content_type


@GROUP.should("Four streams at once all end.")
def several(judging: Judging) -> str | None:
    requests = [judging.request(_streaming(judging))] * SEVERAL
    for reply in judging.all_at_once(requests, STREAM_SECONDS):
        if isinstance(reply, str):
            raise Violation(expected=f"{SEVERAL} whole streams at once", got=reply)
        expect_good(reply)
    return None


@GROUP.should("The path of bidirectional streams takes a WebSocket.")
def websocket(judging: Judging) -> str | None:
    with judging.connect() as connection:
        open_websocket(connection, _websocket_path(judging), judging.options.answer_seconds)
    return None


@GROUP.should("A WebSocket ping is answered with a pong.")
def websocket_ping(judging: Judging) -> str | None:
    with judging.connect() as connection:
        open_websocket(connection, _websocket_path(judging), judging.options.answer_seconds)
        if not answers_ping(connection, judging.options.answer_seconds):
            raise Violation(
                expected="a pong", got="none", mend="SageMaker closes the stream after five unanswered pings."
            )
    return None


def _streaming(judging: Judging) -> KnownRequest:
    if judging.known.streaming is None:
        raise NotRun("the requests file names no streaming request")
    return judging.known.streaming


def _streamed(judging: Judging) -> RawReply:
    """The whole answer to the streaming request, which the first check fetches."""
    key = "stream"
    if key not in judging.observed.replies:
        request = judging.request(_streaming(judging))
        judging.observed.replies[key] = expect_good(judging.ask(request, STREAM_SECONDS))
    return judging.observed.replies[key]


def _websocket_path(judging: Judging) -> str:
    if Capability.WEBSOCKET not in judging.capabilities:
        raise NotRun(
            f"it does not say that it takes WebSockets: --websocket, or {Capability.WEBSOCKET.label}"
        )
    return judging.known.websocket_path
