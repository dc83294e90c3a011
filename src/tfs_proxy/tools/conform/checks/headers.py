"""The group ``headers``: headers that SageMaker passes on, and unknown ones."""

import re
from collections.abc import Mapping

from msgspec.structs import replace

from tfs_proxy.tools.conform.check import CheckGroup, Level, NotRun, RuleSource, Trial, Violation
from tfs_proxy.tools.conform.checks.invocations import expect_good, expect_no_failure
from tfs_proxy.tools.conform.judging import INVOCATIONS, Judging
from tfs_proxy.tools.conform.raw_http import RawReply, RawRequest
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES, INFERENCE_ID, SAGEMAKER_PREFIX, TARGET_MODEL, X_RAY
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
SESSION = SAGEMAKER_PREFIX + "Session-Id"
NEW_SESSION = SAGEMAKER_PREFIX + "New-Session-Id"
NEW_SESSION_FORM = re.compile(r"\S+; ?Expires=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
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
    return expect_no_failure(_new_session(judging), "Ignore the header if there are no sessions.")


@GROUP.must("New-Session-Id in an answer is `ID; Expires=YYYY-MM-DDTHH:MM:SSZ`.")
def new_session_form(judging: Judging) -> str:
    value = _new_session(judging).header(NEW_SESSION)
    if value is None:
        raise NotRun("the answer has none")
    if not NEW_SESSION_FORM.fullmatch(value):
        raise Violation(expected="ID; Expires=YYYY-MM-DDTHH:MM:SSZ", got=value)
    return value


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


def _new_session(judging: Judging) -> RawReply:
    body = b'{"requestType": "NEW_SESSION"}'
    request = replace(judging.good, content_type=JSON, body=body)
    return judging.post(request, {SESSION: "NEW_SESSION"})


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
