"""The group ``invocations``: how requests reach the container, and in which form answers leave it."""

from http import HTTPStatus

from msgspec.structs import replace

from tfs_proxy.tools.conform.check import CheckGroup, NotRun, RuleSource, Violation
from tfs_proxy.tools.conform.judging import Judging
from tfs_proxy.tools.conform.raw_http import NoReply, RawReply
from tfs_proxy.tools.conform.requests_file import padded

GROUP = CheckGroup("invocations", RuleSource.INVOCATIONS)
ACCEPT_SECONDS = 0.25
LONGEST_BODY = 6_291_456
"""Bytes of a real-time request and of its answer: botocore's BodyBlob."""
CONNECTS, REPEATS, AT_ONCE = 10, 5, 8
PIECES = 5
CONTINUE_SECONDS = 1.0
EXCESS_SECONDS = 0.1


@GROUP.must("POST /invocations answers a good request with 2xx.")
def good_request(judging: Judging) -> str:
    return f"{expect_good(judging.post(judging.good)).seconds * 1000:.0f} ms"


@GROUP.must("A good request, and the slow one, are answered within 60 s.")
def within_60_seconds(judging: Judging) -> str:
    requests = [judging.good, *filter(None, [judging.known.slow])]
    slowest = max(expect_good(judging.post(request)).seconds for request in requests)
    return f"the slowest took {slowest:.2f} s"


@GROUP.must("A connection is accepted within 250 ms.")
def accepts_in_250_ms(judging: Judging) -> str:
    _need_own_address(judging)
    slowest = 0.0
    for _ in range(CONNECTS):
        with judging.connect() as connection:
            slowest = max(slowest, connection.connect_seconds)
    return _accepted(slowest, "")


@GROUP.must("A connection is accepted within 250 ms while every worker is busy.")
def accepts_in_250_ms_busy(judging: Judging) -> str:
    _need_own_address(judging)
    busy = judging.busy
    for seconds in busy.connects:
        if isinstance(seconds, str):
            raise _slow_accept(seconds, " while requests are worked on")
    return _accepted(max(float(seconds) for seconds in busy.connects), " while requests are worked on")


@GROUP.should("The answer has a Content-Type.", RuleSource.PIPELINES)
def content_type(judging: Judging) -> str:
    reply = expect_good(judging.post(judging.good))
    if not reply.content_type:
        raise Violation(expected="a Content-Type", got="none", mend="Set it: the next container reads it.")
    return reply.content_type


@GROUP.must("The answer has the Content-Type that the requests file expects.")
def expected_content_type(judging: Judging) -> None:
    good = judging.good
    if good.expected_content_type is None:
        raise NotRun("the requests file does not say which Content-Type is expected")
    expected = good.expected_content_type.partition(";")[0].strip().lower()
    reply = expect_good(judging.post(good))
    if reply.content_type != expected:
        raise Violation(expected=expected, got=reply.content_type or "no Content-Type")


@GROUP.should("Accept: */* is answered as no Accept is.", RuleSource.PIPELINES)
def any_accept(judging: Judging) -> None:
    plain = replace(judging.good, accept=None)
    without, anything = judging.post(plain), judging.post(plain, {"Accept": "*/*"})
    if (without.status, without.content_type) != (anything.status, anything.content_type):
        raise Violation(
            expected=f"{without.status} {without.content_type}, as without Accept",
            got=f"{anything.shown()} ({anything.content_type})",
            mend="Take Accept: */* for your default.",
        )


@GROUP.should("An Accept that nothing can meet gets the default or a 4xx, not a 5xx.")
def unknown_accept(judging: Judging) -> str:
    reply = judging.post(judging.good, {"Accept": "application/x-no-such-type"})
    return expect_no_failure(reply, "Answer 406, or your default type.")


@GROUP.must("A body that arrives in pieces is read whole.")
def body_in_pieces(judging: Judging) -> None:
    request = judging.request(judging.good)
    size = max(1, len(request.body) // PIECES)
    expect_good(judging.ask(replace(request, piece_bytes=size, pause_seconds=0.05)))


@GROUP.must("A body of 6 MB (6,291,456 bytes) is taken.")
def body_of_6_mb(judging: Judging) -> str:
    return expect_taken(judging, LONGEST_BODY)


@GROUP.should("A body in chunked transfer encoding is read.", RuleSource.BATCH)
def chunked_body(judging: Judging) -> None:
    expect_chunks_read(judging)


@GROUP.should("A request with Expect: 100-continue is answered without a wait.")
def expect_100(judging: Judging) -> None:
    request = judging.request(judging.good, {"Expect": "100-continue"})
    reply = expect_good(judging.ask(replace(request, waits_for_continue=CONTINUE_SECONDS)))
    if not reply.continued:
        raise Violation(
            expected="100 Continue, or the answer, before the body is sent",
            got=f"nothing for {CONTINUE_SECONDS:.0f} s; the body was sent all the same: {reply.status}",
        )


@GROUP.should("Several requests are answered on one connection.")
def keep_alive(judging: Judging) -> None:
    request = judging.request(judging.good)
    with judging.connect() as connection:
        for number in range(REPEATS):
            try:
                if number:
                    connection.next_request()
                expect_good(connection.ask(request, judging.options.answer_seconds))
            except NoReply as error:
                raise Violation(
                    expected=f"{REPEATS} answers on one connection",
                    got=f"{number}, then: {error}",
                    mend="Speak HTTP/1.1 and keep the connection: a new one for each request costs time.",
                ) from None


@GROUP.must("Eight good requests at once are all answered with 2xx.")
def concurrent(judging: Judging) -> str:
    return expect_all_good(judging, AT_ONCE)


@GROUP.should("The same request gets the same status and Content-Type again.")
def same_answer(judging: Judging) -> None:
    replies = [judging.post(judging.good) for _ in range(REPEATS)]
    kinds = {(reply.status, reply.content_type) for reply in replies}
    if len(kinds) > 1:
        raise Violation(expected="one status and Content-Type", got=f"{sorted(kinds)}")


@GROUP.must("The answer has a length or chunks, as HTTP/1.1 has it, and ends there.")
def framed(judging: Judging) -> str | None:
    with judging.connect() as connection:
        reply = expect_good(connection.ask(judging.request(judging.good), judging.options.answer_seconds))
        excess = connection.excess(EXCESS_SECONDS)
    if excess:
        raise Violation(
            expected="nothing after the end of the answer",
            got=f"{len(excess)} more bytes: {excess[:80].decode(errors='replace')}",
            mend="Let Content-Length be the length of the body in bytes, not in characters.",
        )
    if reply.is_chunked:
        return "in chunks"
    if reply.header("Content-Length") is None and (reply.header("Connection") or "").lower() != "close":
        raise Violation(
            expected="Content-Length, or Transfer-Encoding: chunked",
            got="neither: nothing tells a whole answer from one that broke off",
        )
    return None


@GROUP.should("The answer to the good request has at most 6 MB.")
def answer_of_at_most_6_mb(judging: Judging) -> str:
    length = expect_good(judging.post(judging.good)).length
    if length > LONGEST_BODY:
        raise Violation(expected=f"at most {LONGEST_BODY} bytes", got=f"{length} bytes")
    return f"{length} bytes"


def expect_good(reply: RawReply) -> RawReply:
    if not reply.is_good:
        raise Violation(expected="2xx for a good request", got=reply.shown())
    return reply


def expect_no_failure(reply: RawReply, mend: str) -> str:
    """Raises Violation if it is 5xx."""
    if reply.is_failure:
        raise Violation(expected="2xx or 4xx", got=reply.shown(), mend=mend)
    return f"answered with {reply.status}"


def expect_all_good(judging: Judging, count: int) -> str:
    """Raises Violation unless ``count`` simultaneous good requests are answered with 2xx."""
    replies = judging.all_at_once([judging.request(judging.good)] * count)
    wrong = [reply for reply in replies if isinstance(reply, str) or not reply.is_good]
    if wrong:
        got = wrong[0] if isinstance(wrong[0], str) else wrong[0].shown()
        raise Violation(
            expected=f"2xx for {count} requests at once", got=f"{len(wrong)} others, such as: {got}"
        )
    return f"{count} at once"


def expect_taken(judging: Judging, length: int) -> str:
    """Sends the good request with a body of ``length`` bytes; raises Violation if that is too much for it.

    A repeated body may be slow to answer or be a mistake, so only 413 counts.
    """
    request = judging.request(judging.good)
    body, is_same = padded(judging.good, length)
    try:
        reply = judging.ask(replace(request, body=body))
    except NoReply as error:
        if is_same:
            raise
        raise NotRun(f"the good request, repeated up to {length} bytes, gets no answer: {error}") from None
    if reply.status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or (is_same and not reply.is_good):
        raise Violation(
            expected=f"an answer to a body of {length} bytes",
            got=reply.shown(),
            mend="Raise the limit of bodies: nginx has client_max_body_size, Flask MAX_CONTENT_LENGTH.",
        )
    return f"{reply.status} in {reply.seconds:.1f} s"


def expect_chunks_read(judging: Judging) -> None:
    """Sends the good request in chunks; raises Violation if the answer is another than with a length."""
    request = judging.request(judging.good)
    reply = judging.ask(replace(request, chunk_bytes=max(1, len(request.body) // PIECES)))
    if not reply.is_good:
        raise Violation(
            expected="2xx for a body in chunks, as for one with Content-Length",
            got=reply.shown(),
            mend="Read the body to its end, not to Content-Length.",
        )


def _need_own_address(judging: Judging) -> None:
    _ = judging.start
    if not judging.container.accepts_itself:
        raise NotRun(
            "Docker's proxy accepts connections here, and the container's own address is not reached: "
            "judge it on a Linux machine with Docker, or with --docker-option=--network=host"
        )


def _accepted(seconds: float, when: str) -> str:
    if seconds > ACCEPT_SECONDS:
        raise _slow_accept(f"{seconds * 1000:.0f} ms", when)
    return f"the slowest took {seconds * 1000:.1f} ms"


def _slow_accept(got: str, when: str) -> Violation:
    return Violation(
        expected=f"a connection within 250 ms{when}",
        got=got,
        mend="Give listen() a backlog of at least 128, and accept connections before workers are free.",
    )
