"""The group ``headers``: headers that SageMaker passes on, and unknown ones."""

import json
import re
from collections.abc import Mapping
from http import HTTPStatus

from msgspec.structs import replace

from tfs_proxy.tools.conform.check import CheckGroup, Level, NotRun, RuleSource, Trial, Violation
from tfs_proxy.tools.conform.checks.invocations import expect_good, expect_no_failure
from tfs_proxy.tools.conform.judging import INVOCATIONS, Judging
from tfs_proxy.tools.conform.raw_http import RawReply, RawRequest
from tfs_proxy.wire.header_names import (
    CLOSED_SESSION_ID,
    CUSTOM_ATTRIBUTES,
    INFERENCE_ID,
    NEW_SESSION,
    NEW_SESSION_ID,
    SAGEMAKER_PREFIX,
    SESSION_ID,
    TARGET_MODEL,
    X_RAY,
)
from tfs_proxy.wire.media_types import JSON

GROUP = CheckGroup("headers", RuleSource.HEADERS)
LONGEST_ATTRIBUTES = 1024
ATTRIBUTES = "traceparent=00-1, key = \"a;b\" {'c'} ~!@#$%^&*()"
LONGEST = {
    TARGET_MODEL: "m" * 1017 + ".tar.gz",
    SAGEMAKER_PREFIX + "Target-Variant": "v" * 63,
    SAGEMAKER_PREFIX + "Target-Container-Hostname": "h" * 63,
    INFERENCE_ID: "i" * 64,
    SAGEMAKER_PREFIX + "Enable-Explanations": "`true`" + " " * 57 + "!",
    SAGEMAKER_PREFIX + "Inference-Component": "c" * 63,
    SAGEMAKER_PREFIX + "Prefix-Aware-Id": "p" * 64,
}
"""Headers of InvokeEndpoint with values of their greatest lengths; they are the platform's business."""
NEW_SESSION_FORM = re.compile(
    r"([a-zA-Z0-9](?:-*[a-zA-Z0-9])*); Expires=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII
)
"""The form that SageMaker takes from a container: docs/reference/sagemaker.md, Headers."""
NO_SESSIONS = "it opens no sessions"
NO_SUCH_SESSION = "0" * 32
UNKNOWN = {SAGEMAKER_PREFIX + "Of-Tomorrow": "1", "X-Unknown": "x" * 200, X_RAY: "Root=1-0-0", "Via": "1.1 a"}


@GROUP.must("Content-Type and Content-Length are all that a request needs.", RuleSource.INVOCATIONS)
def minimal(judging: Judging) -> None:
    good = judging.good
    if good.accept:
        raise NotRun("the good request of the requests file wants an Accept")
    expect_good(judging.ask(RawRequest("POST", INVOCATIONS, {"Content-Type": good.content_type}, good.body)))


@GROUP.must("Unknown headers are ignored.", RuleSource.INVOCATIONS)
def unknown(judging: Judging) -> None:
    _expect_ignored(judging, UNKNOWN)


@GROUP.must("Custom-Attributes of 1024 characters are accepted.")
def custom_attributes(judging: Judging) -> None:
    value = (ATTRIBUTES + "a" * LONGEST_ATTRIBUTES)[:LONGEST_ATTRIBUTES]
    _expect_ignored(judging, {CUSTOM_ATTRIBUTES: value})


@GROUP.should("Custom-Attributes come back verbatim in the answer.")
def custom_attributes_echoed(judging: Judging) -> None:
    reply = expect_good(judging.post(judging.good, {CUSTOM_ATTRIBUTES: ATTRIBUTES}))
    value = reply.header(CUSTOM_ATTRIBUTES)
    if value != ATTRIBUTES:
        raise Violation(
            expected=f"{CUSTOM_ATTRIBUTES}: {ATTRIBUTES}",
            got="none" if value is None else value,
            mend="Copy the header to the answer: the client gets what the container sets, and nothing else.",
        )


@GROUP.must("Custom-Attributes in an answer have at most 1024 visible ASCII characters.")
def custom_attributes_legal(judging: Judging) -> None:
    value = judging.post(judging.good, {CUSTOM_ATTRIBUTES: ATTRIBUTES}).header(CUSTOM_ATTRIBUTES)
    if value is None:
        raise NotRun("the answer has none")
    if len(value) > LONGEST_ATTRIBUTES or not (value.isascii() and value.isprintable()):
        raise Violation(
            expected=f"at most {LONGEST_ATTRIBUTES} visible ASCII characters",
            got=f"{len(value)} characters: {value[:80]!r}",
        )


@GROUP.must("All of them together, each at its longest, are accepted.")
def all_at_once(judging: Judging) -> None:
    _expect_ignored(judging, {**LONGEST, CUSTOM_ATTRIBUTES: "a" * LONGEST_ATTRIBUTES})


@GROUP.should("Session-Id: NEW_SESSION is answered, or refused with 4xx.")
def new_session(judging: Judging) -> str:
    return expect_no_failure(_session(judging), "Ignore the header if there are no sessions.")


@GROUP.must("New-Session-Id in an answer is `ID; Expires=YYYY-MM-DDTHH:MM:SSZ`.")
def new_session_form(judging: Judging) -> str:
    value = _session(judging).header(NEW_SESSION_ID)
    if value is None:
        raise NotRun(NO_SESSIONS)
    if not NEW_SESSION_FORM.fullmatch(value):
        raise Violation(
            expected="ID; Expires=YYYY-MM-DDTHH:MM:SSZ",
            got=value,
            mend="An id has letters, digits and hyphens.",
        )
    return value


@GROUP.must("A request of an open session is answered.")
def session_goes_on(judging: Judging) -> None:
    expect_good(judging.post(judging.good, {SESSION_ID: _opened(judging)}))


@GROUP.should('The body `{"requestType": "CLOSE"}` closes a session, which Closed-Session-Id names.')
def session_closes(judging: Judging) -> None:
    session = _opened(judging)
    reply = expect_good(_session(judging, session, "CLOSE"))
    closed = reply.header(CLOSED_SESSION_ID)
    if closed != session:
        raise Violation(expected=f"{CLOSED_SESSION_ID}: {session}", got="none" if closed is None else closed)


@GROUP.should("A session that was closed is refused with 4xx.")
def closed_session(judging: Judging) -> None:
    session = _opened(judging)
    if _session(judging, session, "CLOSE").header(CLOSED_SESSION_ID) is None:
        raise NotRun("it closes no session")
    _expect_refused(judging, session)


@GROUP.should("A session that was never opened is refused with 4xx.")
def unknown_session(judging: Judging) -> None:
    _opened(judging)
    _expect_refused(judging, NO_SUCH_SESSION)


@GROUP.should("Any Host header is answered.", RuleSource.INVOCATIONS)
def any_host(judging: Judging) -> None:
    _expect_ignored(judging, {"Host": "169.254.255.131:8080"})


@GROUP.should("Names of headers are read in any case.", RuleSource.INVOCATIONS)
def any_case(judging: Judging) -> None:
    good = judging.good
    for headers in (
        {name.lower(): value for name, value in good.headers.items()},
        {name.upper(): value for name, value in good.headers.items()},
    ):
        expect_good(judging.ask(RawRequest("POST", INVOCATIONS, headers, good.body)))


@GROUP.should("A request without Content-Type gets 2xx or 4xx, not 5xx.", RuleSource.INVOCATIONS)
def no_content_type(judging: Judging) -> str:
    reply = judging.ask(RawRequest("POST", INVOCATIONS, {}, judging.good.body))
    return expect_no_failure(reply, "Take a default type, or answer 415.")


def _session(judging: Judging, named: str = NEW_SESSION, act: str = NEW_SESSION) -> RawReply:
    """The answer to a request that opens or closes a session by its body."""
    body = json.dumps({"requestType": act}).encode()
    return judging.post(replace(judging.good, content_type=JSON, body=body), {SESSION_ID: named})


def _opened(judging: Judging) -> str:
    """The id of a new session. Raises NotRun if there are no sessions."""
    opened = NEW_SESSION_FORM.fullmatch(_session(judging).header(NEW_SESSION_ID) or "")
    if opened is None:
        raise NotRun(NO_SESSIONS)
    return opened[1]


def _expect_refused(judging: Judging, session: str) -> None:
    reply = judging.post(judging.good, {SESSION_ID: session})
    if not HTTPStatus.BAD_REQUEST <= reply.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        raise Violation(
            expected=f"4xx for {SESSION_ID}: {session}",
            got=reply.shown(),
            mend="Answer 400: the client would go on as if its state were there.",
        )


def _expect_ignored(judging: Judging, headers: Mapping[str, str]) -> None:
    reply = judging.post(judging.good, headers)
    if not reply.is_good:
        shown = ", ".join(f"{name}: {value[:40]}" for name, value in headers.items())
        raise Violation(
            expected="2xx, as without the header", got=reply.shown(), mend=f"Take or ignore {shown}."
        )


def _one_header(name: str, value: str) -> Trial:
    def trial(judging: Judging) -> None:
        _expect_ignored(judging, {name: value})

    return trial


for _name, _value in LONGEST.items():
    GROUP.add(
        _name.removeprefix(SAGEMAKER_PREFIX).lower(),
        Level.MUST,
        f"{_name} does no harm.",
        _one_header(_name, _value),
    )
