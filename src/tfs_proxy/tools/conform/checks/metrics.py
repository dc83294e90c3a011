"""The group ``metrics``: what SageMaker's collector scrapes; all advice, since a container may have none."""

from collections.abc import Mapping
from http import HTTPStatus

from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as prometheus_text

from tfs_proxy.tools.conform.busy import METRICS_SECONDS
from tfs_proxy.tools.conform.check import CheckGroup, NotRun, RuleSource, Violation
from tfs_proxy.tools.conform.checks.invocations import expect_good
from tfs_proxy.tools.conform.judging import Judging
from tfs_proxy.tools.conform.raw_http import RawReply, RawRequest
from tfs_proxy.wire.header_names import CUSTOM_ATTRIBUTES, INFERENCE_ID
from tfs_proxy.wire.media_types import OPEN_METRICS, TEXT

GROUP = CheckGroup("metrics", RuleSource.METRICS)
SCRAPE = {"Accept": "text/plain;version=0.0.4"}
DIFFERENT = 50
Samples = Mapping[str, float]


@GROUP.should("GET /metrics answers 200.")
def answers(judging: Judging) -> str:
    reply = _scraped(judging)
    if reply.status != HTTPStatus.OK:
        raise Violation(
            expected="200",
            got=reply.shown(),
            mend="SageMaker scrapes /metrics of new endpoints: answer it, or nothing is published.",
        )
    return f"{len(reply.body)} bytes"


@GROUP.should("The answer is in Prometheus's text format or in OpenMetrics.")
def format_(judging: Judging) -> str:
    return f"{len(_samples(judging, _scraped(judging)))} samples"


@GROUP.should("Its Content-Type says which.")
def content_type(judging: Judging) -> str | None:
    reply = _answered(judging, _scraped(judging))
    if reply.content_type not in {TEXT, OPEN_METRICS}:
        raise Violation(expected=f"{TEXT} or {OPEN_METRICS}", got=reply.content_type or "none")
    return reply.header("Content-Type")


@GROUP.should("A sample changes with a request.")
def counts(judging: Judging) -> str:
    good = judging.good
    before = _samples(judging, _scraped(judging))
    for _ in range(3):
        expect_good(judging.post(good))
    after = _samples(judging, _scraped(judging))
    changed = [
        key for key in after if after[key] != before.get(key) and not key.startswith(("process_", "python_"))
    ]
    if not changed:
        raise Violation(
            expected="a sample that counts requests", got="none that changes after three requests"
        )
    return f"such as {min(changed)[:80]}"


@GROUP.should("It answers within 10 s while requests are worked on.")
def while_busy(judging: Judging) -> str:
    _answered(judging, _scraped(judging))
    reply = judging.busy.metrics
    if isinstance(reply, str) or reply.status != HTTPStatus.OK:
        raise Violation(
            expected=f"200 within {METRICS_SECONDS:.0f} s",
            got=reply if isinstance(reply, str) else reply.shown(),
        )
    return f"{reply.seconds:.2f} s"


@GROUP.should("Fifty different paths and ids do not make as many series.")
def bounded(judging: Judging) -> str:
    good = judging.good
    before = len(_samples(judging, _scraped(judging)))
    for number in range(DIFFERENT):
        judging.get(f"/no-such-path-{number}")
        judging.post(good, {INFERENCE_ID: f"id-{number}", CUSTOM_ATTRIBUTES: f"a={number}"})
    added = len(_samples(judging, _scraped(judging))) - before
    if added >= DIFFERENT:
        raise Violation(
            expected="labels with a bounded set of values",
            got=f"{added} more series after {DIFFERENT} different paths and ids",
            mend="Never use a client's text as a label.",
        )
    return f"{added} more series"


def _scraped(judging: Judging) -> RawReply:
    return judging.ask(RawRequest(path=judging.known.metrics_path, headers=SCRAPE), METRICS_SECONDS)


def _answered(judging: Judging, reply: RawReply) -> RawReply:
    if reply.status != HTTPStatus.OK:
        raise NotRun(f"GET {judging.known.metrics_path} is answered with {reply.status}")
    return reply


def _samples(judging: Judging, reply: RawReply) -> Samples:
    """Values by name and labels. Raises Violation if the text can't be read, NotRun if there is none."""
    text = _answered(judging, reply).body.decode(errors="replace")
    read = open_metrics if reply.content_type == OPEN_METRICS else prometheus_text
    try:
        return {
            f"{sample.name}{sorted(sample.labels.items())}": sample.value
            for family in read(text)
            for sample in family.samples
        }
    except Exception as error:  # noqa: BLE001 - the parser raises whatever it stumbles over
        raise Violation(expected="Prometheus's text format", got=f"{reply.shown(80)} ({error})") from None
