"""The group ``streaming``: answers that come in parts. Its WebSockets are in `websockets`."""

import time

from tfs_proxy.tools.conform.check import CheckGroup, NotRun, RuleSource, Violation
from tfs_proxy.tools.conform.checks.invocations import expect_good
from tfs_proxy.tools.conform.checks.ping import refuse_bad_ping
from tfs_proxy.tools.conform.judging import PING, Judging
from tfs_proxy.tools.conform.raw_http import NoReply, RawReply, RawRequest, ask_once
from tfs_proxy.tools.conform.requests_file import KnownRequest
from tfs_proxy.tools.conform.target import PING_SECONDS

GROUP = CheckGroup("streaming", RuleSource.STREAMING)
STREAM_SECONDS = 8 * 60.0
SEVERAL = 4
LEAST_SPREAD_SECONDS = 0.001
LEAVING = 3


@GROUP.must("The answer is in chunked transfer encoding.")
def chunked(judging: Judging) -> None:
    reply = _streamed(judging)
    if not reply.is_chunked:
        raise Violation(
            expected="Transfer-Encoding: chunked",
            got=f"Content-Length: {reply.header('Content-Length')}",
            mend="Answer with a generator or a streaming response.",
        )


@GROUP.must("Its parts arrive as they are made, not all at the end.")
def in_parts(judging: Judging) -> str:
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
def ends(judging: Judging) -> None:
    reply = _streamed(judging)
    if not reply.is_chunked and reply.header("Content-Length") is None:
        raise Violation(expected="an end that can be seen", got="a connection that is closed")


@GROUP.must("The stream ends within 8 minutes.")
def within_8_minutes(judging: Judging) -> str:
    return f"{_streamed(judging).seconds:.2f} s"


@GROUP.must("Ping answers within 2 s while the stream is open.", RuleSource.PING)
def ping_meanwhile(judging: Judging) -> None:
    with judging.connect() as connection:
        connection.send(judging.request(_streaming(judging)), STREAM_SECONDS)
        ping = RawRequest(path=PING)
        try:
            refuse_bad_ping(ask_once(judging.address, ping, PING_SECONDS), "while a stream is open")
        except NoReply as error:
            refuse_bad_ping(str(error), "while a stream is open")
        connection.read(time.monotonic())


@GROUP.must("A client that leaves in the middle does no harm.")
def client_leaves(judging: Judging) -> None:
    request = judging.request(_streaming(judging))
    for _ in range(LEAVING):
        with judging.connect() as connection:
            connection.send(request, STREAM_SECONDS)
            connection.wait_for_bytes(judging.options.answer_seconds)
    judging.ping()
    expect_good(judging.ask(request, STREAM_SECONDS))


@GROUP.should("The stream has a Content-Type.")
def content_type(judging: Judging) -> str:
    reply = _streamed(judging)
    if not reply.content_type:
        raise Violation(expected="a Content-Type", got="none")
    return reply.content_type


@GROUP.should("Four streams at once all end.")
def several(judging: Judging) -> None:
    requests = [judging.request(_streaming(judging))] * SEVERAL
    for reply in judging.all_at_once(requests, STREAM_SECONDS):
        if isinstance(reply, str):
            raise Violation(expected=f"{SEVERAL} whole streams at once", got=reply)
        expect_good(reply)


def _streaming(judging: Judging) -> KnownRequest:
    if judging.known.streaming is None:
        raise NotRun("the requests file names no streaming request")
    return judging.known.streaming


def _streamed(judging: Judging) -> RawReply:
    key = "stream"
    if key not in judging.observed.replies:
        request = judging.request(_streaming(judging))
        judging.observed.replies[key] = expect_good(judging.ask(request, STREAM_SECONDS))
    return judging.observed.replies[key]
