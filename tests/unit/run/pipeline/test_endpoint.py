"""The one address of a pipeline: routes, readiness of the stages, and execution parameters."""

import asyncio
import json
from collections.abc import Mapping

import pytest

from tfs_proxy.observe.logs.access import RequestLog
from tfs_proxy.run.pipeline import endpoint as readiness
from tfs_proxy.run.pipeline.chain import Chain
from tfs_proxy.run.pipeline.endpoint import PipelineEndpoint
from tfs_proxy.run.pipeline.stage import Stage, StageOrder, ports_needed
from tfs_proxy.settings.parsers import AccessLog
from tfs_proxy.values.errors import SettingsError, UpstreamError, UpstreamTimeout
from tfs_proxy.wire.http_messages import HttpRequest, HttpResponse

MEGABYTE = 1024 * 1024
DURATION = "http_server_request_duration_seconds"
STAGES = [Stage(1, "/models/one.tar.gz", 1, {}), Stage(2, "s3://bucket/two/", 2, {})]
Answers = dict[tuple[int, str], HttpResponse | UpstreamError]


class EchoChain(Chain):
    """Answers with the request's body instead of asking stages."""

    def __init__(self) -> None:
        super().__init__([], 1.0, 1)

    async def invoke(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, request.body or request.headers["x-request-id"].encode())


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    by_address: Answers = {(port, "/ping"): HttpResponse(200) for port in (1, 2)}

    async def get(_host: str, port: int, path: str, _timeout_seconds: float) -> HttpResponse:
        answer = by_address.get((port, path), HttpResponse(404))
        if isinstance(answer, UpstreamError):
            raise answer
        return answer

    monkeypatch.setattr(readiness, "get_async", get)
    return by_address


def endpoint_over(chain: Chain, hop_limit: int = 6 * MEGABYTE, *, ready: bool = True) -> PipelineEndpoint:
    """An endpoint with this chain behind it."""
    endpoint = PipelineEndpoint(STAGES, chain, hop_limit, RequestLog(AccessLog(AccessLog.OFF)))
    if ready:
        endpoint.begin_serving()
    return endpoint


def respond(
    method: str, path: str, body: bytes = b"", *, ready: bool = True, hop_limit: int = 6 * MEGABYTE
) -> HttpResponse:
    endpoint = endpoint_over(EchoChain(), hop_limit, ready=ready)
    return asyncio.run(endpoint.respond(HttpRequest(method, path, {}, body)))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (HttpResponse(503, b'{"error": "loading m"}'), "loading m"),
        (HttpResponse(500), "/ping answers 500"),
        (UpstreamTimeout("late"), "no answer to /ping within 2 s"),
        (UpstreamError("refused"), "nothing listens on its port"),
    ],
)
@pytest.mark.parametrize(("method", "path"), [("GET", "/ping"), ("POST", "/invocations")])
def test_a_stage_that_is_not_ready_is_named(
    answers: Answers, answer: HttpResponse | UpstreamError, words: str, method: str, path: str
) -> None:
    """503 with the stage's own reason, for a ping as for a request."""
    answers[2, "/ping"] = answer
    response = respond(method, path, ready=False)
    assert (response.status, json.loads(response.body)["error"]) == (503, f"stage 2 (two): {words}")


@pytest.mark.parametrize(
    ("first", "second", "hop_limit", "expected"),
    [
        ({"MaxConcurrentTransforms": 8, "MaxPayloadInMB": 20}, {"MaxConcurrentTransforms": 4}, 50, (4, 6)),
        ({"MaxConcurrentTransforms": 8, "MaxPayloadInMB": 20}, {"MaxPayloadInMB": 30}, 50, (1, 20)),
        ({"MaxConcurrentTransforms": 2}, {"MaxConcurrentTransforms": 3}, 2, (2, 2)),
        ({"MaxConcurrentTransforms": "many"}, ["no object"], 0, (1, 1)),
        ({}, None, 6, (1, 6)),
    ],
)
def test_a_batch_job_gets_the_least_of_all_stages(
    answers: Answers, first: object, second: object, hop_limit: int, expected: tuple[int, int]
) -> None:
    for port, values in enumerate((first, second), start=1):
        if values is not None:
            answers[port, "/execution-parameters"] = HttpResponse(200, json.dumps(values).encode())
    parameters: Mapping[str, int] = json.loads(
        respond("GET", "/execution-parameters", hop_limit=hop_limit * MEGABYTE).body
    )
    assert (parameters["MaxConcurrentTransforms"], parameters["MaxPayloadInMB"]) == expected
    assert len(parameters) == 2


def test_a_variable_that_cannot_be_used_names_its_stage() -> None:
    order = StageOrder("a", {"SAGEMAKER_TFS_INSTANCE_COUNT": "many"})
    with pytest.raises(SettingsError, match=r"stage 2: .*SAGEMAKER_TFS_INSTANCE_COUNT"):
        ports_needed(order, 2, {})


def test_the_moment_before_the_pipeline_is_ready(answers: Answers) -> None:
    """All stages are, but the pipeline has not noticed yet: 503 says so."""
    assert b"all stages are ready" in respond("GET", "/ping", ready=False).body


def test_a_batch_job_sends_what_the_narrowest_stage_takes(answers: Answers) -> None:
    """One record a request, if the model of a stage takes no more."""
    answers[2, "/execution-parameters"] = HttpResponse(200, b'{"BatchStrategy": "SINGLE_RECORD"}')
    assert json.loads(respond("GET", "/execution-parameters").body)["BatchStrategy"] == "SINGLE_RECORD"
