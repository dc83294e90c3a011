"""One request through the stages: bodies, headers, limits, and the answer when a stage fails."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.run.pipeline import stage as stage_client
from tfs_proxy.run.pipeline.chain import Chain
from tfs_proxy.run.pipeline.stage import LONGEST_MESSAGE, Stage, StageClient, message_of
from tfs_proxy.values.errors import AnswerTooLarge, NotReached, UpstreamError, UpstreamTimeout
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse

Answer = Callable[[bytes, Mapping[str, str]], HttpResponse]


class FakeConnections:
    answers: Mapping[int, Answer] = {}
    requests: list[tuple[int, bytes, Mapping[str, str]]]

    def __init__(self, _host: str, port: int, _timeouts: object, server: str) -> None:
        self._port = port
        self._server = server

    def request(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], seconds: float
    ) -> HttpResponse:
        assert (method, path) == ("POST", "/invocations")
        assert 0 < seconds <= 10
        self.requests.append((self._port, body, headers))
        return self.answers[self._port](body, headers)

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture(autouse=True)
def _no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_client, "ConnectionPool", FakeConnections)


class Stages:
    """A chain of fake stages, numbered from 1; each has its number as port."""

    def __init__(self, *answers: Answer, hop_bytes: int = 1024 * 1024) -> None:
        FakeConnections.answers = dict(enumerate(answers, start=1))
        FakeConnections.requests = []
        self._threads = ThreadPoolExecutor(1)
        stages = [
            Stage(number, f"/models/part-{number}.tar.gz", number, {}) for number in FakeConnections.answers
        ]
        self.clients = [StageClient(stage, self._threads, 10.0) for stage in stages]
        self._chain = Chain(self.clients, 10.0, hop_bytes)

    def invoke(self, body: bytes = b"body", **headers: str) -> HttpResponse:
        named = {name.replace("_", "-").lower(): value for name, value in headers.items()}
        try:
            return asyncio.run(self._chain.invoke(HttpRequest("POST", "/invocations", named, body)))
        finally:
            self._threads.shutdown()

    @property
    def requests(self) -> Sequence[tuple[int, bytes, Mapping[str, str]]]:
        """The port, body and headers of each request to a stage."""
        return FakeConnections.requests


def appends(text: bytes, content_type: str = "text/plain", status: int = 200, **headers: str) -> Answer:
    """A stage that appends ``text`` to the body."""
    named = {
        "Content-Type": content_type,
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    return lambda body, _headers: HttpResponse(status, body + text, named)


def raises(error: UpstreamError) -> Answer:
    def answer(_body: bytes, _headers: Mapping[str, str]) -> HttpResponse:
        raise error

    return answer


def test_headers_of_the_platform_reach_every_stage_and_others_none() -> None:
    """The client gets those of the last stage alone."""
    stages = Stages(
        appends(b"1", X_Amzn_SageMaker_Custom_Attributes="from 1", X_Other="no"),
        appends(b"2", X_Amzn_SageMaker_Custom_Attributes="from 2", X_Other="no"),
    )
    response = stages.invoke(X_Amzn_SageMaker_Inference_Id="7", X_Other="no", Authorization="secret")
    for _, _, headers in stages.requests:
        assert headers.keys() - {"content-type"} == {"x-amzn-sagemaker-inference-id"}
    assert response.headers == {"Content-Type": "text/plain", "X-Amzn-SageMaker-Custom-Attributes": "from 2"}


@pytest.mark.parametrize(
    ("answer", "status", "text"),
    [
        (raises(UpstreamTimeout("late")), 504, "did not answer: the time for the request is over"),
        (raises(NotReached("refused")), 503, "can't be reached: it is down, or being restarted"),
        (raises(UpstreamError("broken")), 503, "gave no answer: the connection to it broke"),
        (raises(AnswerTooLarge("over 1 MB.")), 502, "answered too much: over 1 MB."),
    ],
)
def test_a_failing_stage_is_named(answer: Answer, status: int, text: str) -> None:
    """424 as SageMaker's ModelError, with the stage's status and words; no later stage is asked."""
    stages = Stages(appends(b"1"), answer, appends(b"3"))
    response = stages.invoke()
    body = json.loads(response.body)
    assert (response.status, body["OriginalStatusCode"]) == (424, status)
    assert body["error"] == f"stage 2 (part-2.tar.gz) {text}"
    assert body["OriginalMessage"] == text.partition(": ")[2]
    assert [port for port, _, _ in stages.requests] == [1, 2]


@pytest.mark.parametrize(
    ("answer", "counts"),
    [
        (appends(b"", status=400), (1, 0, 0)),
        (raises(UpstreamTimeout("late")), (0, 1, 0)),
        (raises(UpstreamError("broken")), (0, 1, 0)),
        (raises(AnswerTooLarge("over 1 MB.")), (0, 1, 0)),
        (raises(NotReached("refused")), (0, 0, 1)),
    ],
)
def test_failures_are_counted_by_kind(answer: Answer, counts: tuple[int, int, int]) -> None:
    """Refused, unanswered and not reached; only answers have a latency."""
    stages = Stages(answer, appends(b""))
    stages.invoke()
    first = stages.clients[0]
    assert (first.counts.refused, first.counts.unanswered, first.counts.not_reached) == counts
    assert first.latencies.count == counts[0]


@given(st.binary(max_size=50))
def test_the_message_of_any_body(body: bytes) -> None:
    """No body of an error makes the error fail; JSON with an error gives its text."""
    assert isinstance(message_of(body), str)
    assert message_of(json.dumps({"error": body.hex()}).encode()) == body.hex()


def test_a_trace_reaches_every_stage_as_it_came() -> None:
    """Each stage reads it, and makes a span of its own."""
    stages = Stages(appends(b"1"), appends(b"2"))
    sent = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01", "tracestate": "a=b", "x-amzn-trace-id": "Root=1"}
    stages.invoke(b"body", **sent)

    assert [{name: headers.get(name) for name in sent} for _, _, headers in stages.requests] == [sent] * 2


def test_an_answer_without_a_type_is_bytes() -> None:
    """The next stage gets application/octet-stream."""
    stages = Stages(lambda body, _headers: HttpResponse(200, body, {}), appends(b""))
    stages.invoke()
    assert stages.requests[1][2] == {"content-type": "application/octet-stream"}


def test_words_are_of_limited_length() -> None:
    """A traceback of a megabyte reaches the log, not the client."""
    assert len(message_of(b"x" * 100_000)) == LONGEST_MESSAGE + len("...")
