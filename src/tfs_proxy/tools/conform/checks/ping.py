"""The group ``ping``: the health check that SageMaker sends every five seconds."""

from http import HTTPStatus

from tfs_proxy.tools.conform.busy import TIMES
from tfs_proxy.tools.conform.check import CheckGroup, NotRun, Occasion, RuleSource, Violation
from tfs_proxy.tools.conform.judging import PING, Judging
from tfs_proxy.tools.conform.raw_http import RawReply, RawRequest
from tfs_proxy.tools.conform.target import PING_SECONDS

GROUP = CheckGroup("ping", RuleSource.PING)
MANY, AT_ONCE = 10, 20
EXTRA = {
    "X-Amzn-SageMaker-Of-Tomorrow": "1",
    "X-Forwarded-For": "10.0.0.1",
    "User-Agent": "AHC/2.0",
    "Accept": "*/*",
}


@GROUP.must("GET /ping answers 200.")
def answers_200(judging: Judging) -> None:
    judging.ping()


@GROUP.must("Every one of ten pings is answered within 2 s.")
def within_2_seconds(judging: Judging) -> str:
    slowest = max(judging.ping().seconds for _ in range(MANY))
    return f"the slowest of {MANY} took {slowest * 1000:.0f} ms"


@GROUP.should("The body of ping's answer is empty.")
def empty_body(judging: Judging) -> None:
    reply = judging.ping()
    if reply.body:
        raise Violation(expected="no body", got=reply.shown(), mend="Answer ping with the status alone.")


@GROUP.must("Ping answers 200 within 2 s while requests are worked on.")
def while_busy(judging: Judging) -> str:
    busy = judging.busy
    for reply in busy.pings:
        refuse_bad_ping(reply, "while requests are worked on")
    return f"{TIMES} pings, while {busy.in_flight} requests waited for an answer"


@GROUP.must("Twenty pings at once are all answered with 200 within 2 s.")
def concurrent(judging: Judging) -> None:
    replies = judging.all_at_once([RawRequest(path=PING)] * AT_ONCE, PING_SECONDS)
    for reply in replies:
        refuse_bad_ping(reply, f"when {AT_ONCE} come at once")


@GROUP.must("The first good request after the first 200 of ping is answered.", occasion=Occasion.FRESH)
def ready_means_ready(judging: Judging) -> str:
    if judging.start.ready_seconds is None:
        raise NotRun("ping never answered 200")
    request = judging.known.good or judging.good
    reply = judging.observed.first_reply = judging.observed.first_reply or judging.post(request)
    if not reply.is_good:
        raise Violation(
            expected="2xx for the first request after ping's 200",
            got=reply.shown(),
            mend="Let ping answer 503 until the model is loaded.",
        )
    return f"answered in {reply.seconds:.2f} s"


@GROUP.should("HEAD /ping answers 200 without a body.")
def head(judging: Judging) -> None:
    reply = judging.ask(RawRequest("HEAD", PING), PING_SECONDS)
    if reply.status != HTTPStatus.OK:
        raise Violation(expected="200 for HEAD /ping", got=reply.shown())


@GROUP.must("Headers that ping does not know are ignored.", RuleSource.INVOCATIONS)
def extra_headers(judging: Judging) -> None:
    judging.ping(EXTRA)


def refuse_bad_ping(reply: RawReply | str, when: str) -> None:
    if isinstance(reply, str) or reply.status != HTTPStatus.OK:
        raise Violation(
            expected=f"200 of ping within {PING_SECONDS:.0f} s {when}",
            got=reply if isinstance(reply, str) else reply.shown(),
            mend="Answer ping by a thread or process that no request can keep busy.",
        )
