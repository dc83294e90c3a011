"""The one address of a pipeline: the way of a request through fake stages, readiness, and parameters of a job."""

import asyncio
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.run.heartbeats import Heartbeats
from tfs_proxy.run.model_states import ModelStates
from tfs_proxy.run.pipeline import endpoint as pages
from tfs_proxy.run.pipeline import passage
from tfs_proxy.run.pipeline.endpoint import LONGEST_MESSAGE, BodyMemory, PipelineEndpoint, message_of
from tfs_proxy.run.pipeline.stage import Stage, StageOrder, planned
from tfs_proxy.run.readiness import Readiness, StackState
from tfs_proxy.values.errors import (
    AnswerTooLarge,
    NotReached,
    Overloaded,
    SettingsError,
    UpstreamError,
    UpstreamTimeout,
)
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse

NO_HEADERS: Mapping[str, str] = {}
Answer = Callable[[bytes, Mapping[str, str]], HttpResponse]


class Stages:
    """Two stages, whose numbers are their ports, before their endpoint; `pages` are their GETs by path."""

    def __init__(self) -> None:
        self.answers: dict[int, Answer] = {1: appends(b"1"), 2: appends(b"2")}
        self.pages: dict[tuple[int, str], HttpResponse | UpstreamError] = {
            (port, "/ping"): HttpResponse(200) for port in (1, 2)
        }
        self.requests: list[tuple[int, Mapping[str, str]]] = []
        self._threads = ThreadPoolExecutor(1)
        archives = ("/models/one.tar.gz", "s3://bucket/two/")
        self.all = [Stage(port, each, port, {}, self._threads) for port, each in enumerate(archives, start=1)]

    def ask(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] = NO_HEADERS,
        *,
        state: StackState = StackState.READY,
    ) -> HttpResponse:
        readiness = Readiness(Heartbeats(), ModelStates())
        readiness.state = state
        endpoint = PipelineEndpoint(self.all, readiness, 60.0, tuple)
        return asyncio.run(endpoint.respond(HttpRequest(method, path, headers, b"body")))

    def invoke(self, headers: Mapping[str, str] = NO_HEADERS) -> HttpResponse:
        return self.ask("POST", "/invocations", headers)


def appends(text: bytes, status: int = 200) -> Answer:
    """A stage that appends ``text`` to the body."""
    return lambda body, _: HttpResponse(status, body + text, {"Content-Type": "text/plain"})


def raises(error: UpstreamError) -> Answer:
    def answer(_body: bytes, _headers: Mapping[str, str]) -> HttpResponse:
        raise error

    return answer


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Stages:
    class Connections:
        def __init__(self, _host: str, port: int, _timeouts: object, server: str) -> None:
            self._port = port

        def request(
            self,
            method: str,
            path: str,
            body: bytes,
            headers: Mapping[str, str],
            seconds: float,
            _look: Callable[[], None],
        ) -> HttpResponse:
            assert (method, path) == ("POST", "/invocations")
            assert 0 < seconds <= 60
            made.requests.append((self._port, headers))
            return made.answers[self._port](body, headers)

    async def get(_host: str, port: int, path: str, _timeout_seconds: float) -> HttpResponse:
        answer = made.pages.get((port, path), HttpResponse(404))
        if isinstance(answer, UpstreamError):
            raise answer
        return answer

    monkeypatch.setattr(passage, "ConnectionPool", Connections)
    monkeypatch.setattr(pages, "get_async", get)
    made = Stages()
    return made


@pytest.mark.parametrize(
    ("answer", "status", "text", "counts"),
    [
        (appends(b"", status=400), 400, "answered 400: body", (1, 0, 0)),
        (
            raises(UpstreamTimeout("late")),
            504,
            "did not answer: the time for the request is over",
            (0, 1, 0),
        ),
        (
            raises(NotReached("refused")),
            503,
            "can't be reached: it is down, or being restarted",
            (0, 0, 1),
        ),
        (raises(UpstreamError("broken")), 503, "gave no answer: the connection to it broke", (0, 1, 0)),
        (raises(AnswerTooLarge("over 1 MB.")), 502, "answered too much: over 1 MB.", (0, 1, 0)),
    ],
)
def test_a_failing_stage_is_named_and_counted(
    stages: Stages, answer: Answer, status: int, text: str, counts: tuple[int, int, int]
) -> None:
    """424 as SageMaker's ModelError, with the stage's status and words; only answers have a latency."""
    stages.answers[1] = answer
    response = stages.invoke()
    body = json.loads(response.body)
    assert (response.status, body["OriginalStatusCode"]) == (424, status)
    assert body["error"] == f"stage 1 (one.tar.gz) {text}"
    assert body["OriginalMessage"] == text.partition(": ")[2]
    assert [port for port, _ in stages.requests] == [1]
    first = stages.all[0]
    assert (first.refused, first.unanswered, first.not_reached) == counts
    assert first.latencies.count == counts[0]


@given(st.binary(max_size=50))
def test_the_message_of_any_body(body: bytes) -> None:
    """None makes the error fail; JSON with an error gives its text; of a megabyte the client gets the beginning."""
    assert len(message_of(b"x" * 100_000)) == LONGEST_MESSAGE + len("...")
    assert isinstance(message_of(body), str)
    assert message_of(json.dumps({"error": body.hex()}).encode()) == body.hex()


def test_an_answer_without_a_type_is_bytes(stages: Stages) -> None:
    """The next stage gets application/octet-stream, and the encoding of the first one's body no more."""
    stages.answers[1] = lambda body, _headers: HttpResponse(200, body, {})
    stages.invoke({"content-type": "text/csv", "content-encoding": "gzip"})
    first, second = (headers for _, headers in stages.requests)
    assert (first["content-type"], first["content-encoding"]) == ("text/csv", "gzip")
    assert second == {"Content-Type": "application/octet-stream"}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (HttpResponse(503, b'{"error": "loading m"}'), "loading m"),
        (HttpResponse(500), "/ping answers 500"),
        (UpstreamTimeout("late"), "no answer to /ping within 1.5 s"),
        (UpstreamError("refused"), "nothing listens on its port"),
    ],
)
@pytest.mark.parametrize(("method", "path"), [("GET", "/ping"), ("POST", "/invocations")])
def test_a_stage_that_is_not_ready_is_named(
    stages: Stages, answer: HttpResponse | UpstreamError, words: str, method: str, path: str
) -> None:
    """503 with the stage's own reason, for a ping as for a request."""
    stages.pages[2, "/ping"] = answer
    response = stages.ask(method, path, state=StackState.STARTING)
    assert (response.status, json.loads(response.body)["error"]) == (503, f"stage 2 (two): {words}")


@pytest.mark.parametrize(("state", "status"), [(StackState.STARTING, 503), (StackState.STOPPING, 200)])
def test_a_row_that_starts_or_stops_says_so(stages: Stages, state: StackState, status: int) -> None:
    """One that stops still answers requests, which clients sent before they could know."""
    ping = stages.ask("GET", "/ping", state=state)
    assert (ping.status, json.loads(ping.body)["error"]) == (503, state.of_run)
    assert stages.ask("POST", "/invocations", state=state).status == status


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"MaxConcurrentTransforms": 8, "MaxPayloadInMB": 20}, {"MaxConcurrentTransforms": 4}, (4, 5)),
        ({"MaxConcurrentTransforms": 8, "MaxPayloadInMB": 3}, {"MaxPayloadInMB": 30}, (1, 3)),
        ({"MaxConcurrentTransforms": 2}, {"MaxConcurrentTransforms": 3}, (2, 5)),
        ({"MaxConcurrentTransforms": "many"}, ["no object"], (1, 5)),
        ({}, None, (1, 5)),
        ({}, {"BatchStrategy": "SINGLE_RECORD"}, (1, 5, "SINGLE_RECORD")),
    ],
)
def test_a_batch_job_gets_the_least_of_all_stages(
    stages: Stages, first: object, second: object, expected: tuple[object, ...]
) -> None:
    for port, values in enumerate((first, second), start=1):
        if values is not None:
            stages.pages[port, "/execution-parameters"] = HttpResponse(200, json.dumps(values).encode())
    parameters = json.loads(stages.ask("GET", "/execution-parameters").body)
    names = ("MaxConcurrentTransforms", "MaxPayloadInMB", "BatchStrategy")
    assert parameters == dict(zip(names, expected, strict=False))


def test_large_bodies_wait_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that fit go on together once memory is free; one that waits too long is refused."""
    monkeypatch.setattr(pages, "WAIT_SECONDS", 0.05)

    async def hold(memory: BodyMemory, seconds: float) -> None:
        async with memory.held(3):
            await asyncio.sleep(seconds)

    async def answered(*seconds: float) -> list[bool]:
        memory = BodyMemory(limit_bytes=13)
        holds = [asyncio.create_task(hold(memory, each)) for each in seconds]
        await asyncio.wait(holds)
        return [not isinstance(each.exception(), Overloaded) for each in holds]

    assert asyncio.run(answered(0.01, 0.01, 0.0, 0.0)) == [True] * 4
    assert asyncio.run(answered(0.5, 0.5, 0.0)) == [True, True, False]


def test_a_variable_that_cannot_be_used_names_its_stage() -> None:
    orders = [StageOrder("a", {}), StageOrder("b", {"SAGEMAKER_TFS_INSTANCE_COUNT": "many"})]
    with (
        ExitStack() as held,
        ThreadPoolExecutor(1) as threads,
        pytest.raises(SettingsError, match=r"stage 2: .*SAGEMAKER_TFS_INSTANCE_COUNT"),
    ):
        planned(orders, {}, threads, held)
