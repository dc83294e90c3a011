"""The group ``errors``: answers to a client's mistake, and what the mistake leaves behind."""

import re
from http import HTTPStatus

from tfs_proxy.tools.conform.check import CheckGroup, RuleSource, Violation
from tfs_proxy.tools.conform.checks.invocations import expect_good
from tfs_proxy.tools.conform.judging import INVOCATIONS, Judging
from tfs_proxy.tools.conform.raw_http import NoReply, RawReply
from tfs_proxy.tools.conform.requests_file import KnownRequest
from tfs_proxy.wire.media_types import JSON

GROUP = CheckGroup("errors", RuleSource.INVOCATIONS)
LONGEST_MESSAGE = 2048
BAD_REQUESTS, BROKEN_CLIENTS = 20, 10
CLAIMED_BYTES = 10_000
GARBAGE = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) + b"\r\n\r\n"
"""The beginning of a TLS client's greeting, followed by every byte value."""
NOT_UNDERSTOOD = KnownRequest(JSON, b'{"instances": [[1.0, 2.0], "')
TRACEBACK = re.compile(rb"Traceback \(most recent call last\)|^\s+at [\w.$]+\([\w.]+:\d+\)", re.MULTILINE)


@GROUP.must("The bad request is answered with an error, 4xx or 5xx.")
def bad_request(judging: Judging) -> str:
    reply = judging.post(judging.bad)
    if reply.status < HTTPStatus.BAD_REQUEST:
        raise Violation(
            expected="4xx",
            got=reply.shown(),
            mend="Answer an error with its status: with 200 the client takes it for a prediction.",
        )
    return f"answered with {reply.status}"


@GROUP.should("A bad request is the client's mistake: 4xx.")
def bad_request_4xx(judging: Judging) -> str:
    reply = _error(judging)
    if reply.is_failure:
        raise Violation(
            expected="4xx",
            got=reply.shown(),
            mend="Catch what decoding raises: 5xx says that you are to blame.",
        )
    return f"answered with {reply.status}"


@GROUP.must("A body that can't be understood gets an HTTP answer, not a closed connection.")
def answered(judging: Judging) -> str:
    return f"answered with {judging.post(NOT_UNDERSTOOD).status}"


@GROUP.should("An error is not an HTML page.")
def not_html(judging: Judging) -> None:
    reply = _error(judging)
    if reply.content_type == "text/html" or reply.body.lstrip()[:9].lower() in {b"<!doctype", b"<html"}:
        raise Violation(
            expected="JSON, or text", got=reply.shown(), mend="Give errors a handler: clients log this text."
        )


@GROUP.should("An error is a JSON object.")
def json_(judging: Judging) -> None:
    reply = _error(judging)
    if not isinstance(reply.json(), dict):
        raise Violation(
            expected='a JSON object, such as {"error": "..."}', got=f"{reply.content_type}: {reply.shown()}"
        )


@GROUP.should("An error has at most 2048 characters, which is what OriginalMessage holds.")
def short(judging: Judging) -> str:
    length = len(_error(judging).body.decode(errors="replace"))
    if length > LONGEST_MESSAGE:
        raise Violation(expected=f"at most {LONGEST_MESSAGE} characters", got=f"{length} characters")
    return f"{length} characters"


@GROUP.should("An error shows no traceback.")
def no_traceback(judging: Judging) -> None:
    reply = _error(judging)
    if TRACEBACK.search(reply.body):
        raise Violation(expected="a sentence", got=reply.shown(), mend="Log the traceback instead.")


@GROUP.should("An empty body gets no 5xx.")
def empty_body(judging: Judging) -> str:
    return _no_failure(judging.post(KnownRequest(judging.good.content_type, b"")))


@GROUP.should("A Content-Type that nobody knows gets no 5xx.")
def unknown_content_type(judging: Judging) -> str:
    return _no_failure(judging.post(KnownRequest("application/x-no-such-type", b"\x00\x01")))


@GROUP.should("A path that does not exist is answered with 404.")
def unknown_path(judging: Judging) -> None:
    reply = judging.get("/no-such-path")
    if reply.status != HTTPStatus.NOT_FOUND:
        raise Violation(expected="404", got=reply.shown())


@GROUP.should("GET /invocations is refused with 4xx.")
def get_invocations(judging: Judging) -> str:
    reply = judging.get(INVOCATIONS)
    if not HTTPStatus.BAD_REQUEST <= reply.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        raise Violation(expected="405", got=reply.shown())
    return f"answered with {reply.status}"


@GROUP.should("After an error, the connection is closed or answers the next request.")
def framing(judging: Judging) -> str:
    seconds = judging.options.answer_seconds
    with judging.connect() as connection:
        connection.ask(judging.request(judging.bad), seconds)
        try:
            connection.next_request()
            reply = connection.ask(judging.request(judging.good), seconds)
        except NoReply as error:
            if "not HTTP" in str(error) or "no whole answer" in str(error):
                raise Violation(expected="an answer on the same connection", got=str(error)) from None
            return "it is closed"
    expect_good(reply)
    return "it answers the next request"


@GROUP.must("After twenty bad requests, ping and the good request are answered as before.", RuleSource.PING)
def survives_bad_requests(judging: Judging) -> None:
    _, bad = judging.good, judging.bad  # the good one is found before the bad ones are sent
    judging.all_at_once([judging.request(bad)] * (BAD_REQUESTS // 2))
    for _ in range(BAD_REQUESTS // 2):
        judging.post(bad)
    judging.still_serves()


@GROUP.must(
    "After clients that leave in the middle of a body, ping and the good request are answered as before.",
    RuleSource.PING,
)
def survives_broken_connections(judging: Judging) -> None:
    begun = _begun(judging.good)
    for _ in range(BROKEN_CLIENTS):
        with judging.connect() as connection:
            connection.send_bytes(begun)
    judging.still_serves()


@GROUP.must(
    "After bytes that are not HTTP, ping and the good request are answered as before.", RuleSource.PING
)
def survives_garbage(judging: Judging) -> None:
    _ = judging.good
    for _ in range(BROKEN_CLIENTS):
        with judging.connect() as connection:
            connection.send_bytes(GARBAGE)
    judging.still_serves()


@GROUP.should("A client that stalls in its body does not keep ping from an answer.", RuleSource.PING)
def slow_client(judging: Judging) -> None:
    with judging.connect() as connection:
        connection.send_bytes(_begun(judging.good))
        judging.ping()


def _begun(good: KnownRequest) -> bytes:
    return (
        f"POST {INVOCATIONS} HTTP/1.1\r\nHost: model\r\nContent-Type: {good.content_type}\r\n"
        f"Content-Length: {CLAIMED_BYTES}\r\n\r\n"
    ).encode() + b"{"


def _error(judging: Judging) -> RawReply:
    """The answer to the bad request, kept for all checks of the start."""
    key = "bad request"
    if key not in judging.observed.replies:
        judging.observed.replies[key] = judging.post(judging.bad)
    return judging.observed.replies[key]


def _no_failure(reply: RawReply) -> str:
    if reply.is_failure:
        raise Violation(
            expected="4xx, or 2xx", got=reply.shown(), mend="It is the client's mistake: answer 400 or 415."
        )
    return f"answered with {reply.status}"
