"""The one address of a pipeline: routes, readiness of the stages, and execution parameters."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfs_proxy.observe.logs.access import RequestLog
from tfs_proxy.run.pipeline import endpoint as readiness
from tfs_proxy.run.pipeline.chain import Chain
from tfs_proxy.run.pipeline.endpoint import PipelineEndpoint
from tfs_proxy.run.pipeline.run import PipelineRequest, plan
from tfs_proxy.run.pipeline.stage import Stage, StageOrder, ports_needed, process, stage
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


def test_stages_and_answer_have_the_id_that_the_pipeline_chooses(answers: Answers) -> None:
    answer = respond("POST", "/invocations")
    assert answer.body.decode() == answer.headers["X-Request-Id"]
    assert len(answer.body) == 32


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


def test_every_stage_that_is_not_ready_is_named(answers: Answers) -> None:
    answers[1, "/ping"] = HttpResponse(500)
    answers[2, "/ping"] = UpstreamError("refused")
    text = json.loads(respond("GET", "/ping").body)["error"]
    assert text == "stage 1 (one.tar.gz): /ping answers 500; stage 2 (two): nothing listens on its port"


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


class BrokenChain(Chain):
    """Has a fault of its own."""

    def __init__(self) -> None:
        super().__init__([], 1.0, 1)

    async def invoke(self, request: HttpRequest) -> HttpResponse:
        raise ValueError("a fault")


def test_requests_that_get_no_answer_here_count_too(
    answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = endpoint_over(BrokenChain())

    async def no_text(_stage: Stage) -> str:
        return ""

    monkeypatch.setattr("tfs_proxy.run.pipeline.metrics._text", no_text)
    request = HttpRequest("POST", "/invocations", {"x-request-id": "order-17"})
    refused = endpoint.refused(request, HttpResponse.error(413, "too large"))
    with pytest.raises(ValueError, match="a fault"):
        asyncio.run(endpoint.respond(request))
    metrics = asyncio.run(endpoint.respond(HttpRequest("GET", "/metrics"))).body.decode()

    assert refused.headers["X-Request-Id"] == "order-17"
    counted = [line for line in metrics.splitlines() if line.startswith(f"{DURATION}_count")]
    assert [
        (f'code="{status}"' in line, line[-4:]) for status, line in zip((413, 500), counted, strict=True)
    ] == [(True, " 1.0")] * 2


def test_a_variable_that_cannot_be_used_names_its_stage() -> None:
    order = StageOrder("a", {"SAGEMAKER_TFS_INSTANCE_COUNT": "many"})
    with pytest.raises(SettingsError, match=r"stage 2: .*SAGEMAKER_TFS_INSTANCE_COUNT"):
        ports_needed(order, 2, {})


def test_a_stage_has_its_own_variables_and_ports() -> None:
    order = StageOrder("/models/a.tar.gz", {"OWN": "1", "BOTH": "own", "SAGEMAKER_BIND_TO_PORT": "1"})
    one = stage(3, order, range(9000, 9011), {"COMMON": "2", "BOTH": "common"})
    assert (one.number, one.port, one.name) == (3, 9000, "stage 3 (a.tar.gz)")
    assert one.environ["SAGEMAKER_BIND_TO_PORT"] == "9000"
    assert one.environ["SAGEMAKER_SAFE_PORT_RANGE"] == "9001-9010"
    assert (one.environ["OWN"], one.environ["COMMON"], one.environ["BOTH"]) == ("1", "2", "own")


def test_a_stage_is_a_serving_stack() -> None:
    spec = process(stage(1, StageOrder("a b.tar.gz", {}), range(9000, 9011), {}), "embedded")
    assert spec.argv[3:] == ("serve", "a b.tar.gz", "--host", "127.0.0.1", "--model-server", "embedded")
    assert spec.name == "stage 1 (a b.tar.gz)"


def test_no_two_stages_share_a_port() -> None:
    orders = [StageOrder(f"{number}", {}) for number in range(15)]
    with ExitStack() as held:
        stages = plan(PipelineRequest(orders, "auto", {}), held)
    ports: list[int] = []
    for one in stages:
        low, high = map(int, one.environ["SAGEMAKER_SAFE_PORT_RANGE"].split("-"))
        ports += [one.port, *range(low, high + 1)]
    assert len(ports) == len(set(ports))
    assert [one.number for one in stages] == list(range(1, 16))


def test_the_moment_before_the_pipeline_is_ready(answers: Answers) -> None:
    """All stages are, but the pipeline has not noticed yet: 503 says so."""
    assert b"all stages are ready" in respond("GET", "/ping", ready=False).body


def test_a_batch_job_sends_what_the_narrowest_stage_takes(answers: Answers) -> None:
    """One record a request, if the model of a stage takes no more."""
    answers[2, "/execution-parameters"] = HttpResponse(200, b'{"BatchStrategy": "SINGLE_RECORD"}')
    assert json.loads(respond("GET", "/execution-parameters").body)["BatchStrategy"] == "SINGLE_RECORD"


@given(st.integers(1, 30))
def test_ports_for_every_model_server(instances: int) -> None:
    """One to listen on, two for each model server, and never fewer than eleven."""
    order = StageOrder("a", {"SAGEMAKER_TFS_INSTANCE_COUNT": str(instances)})
    assert ports_needed(order, 1, {}) == 1 + max(10, 2 * instances)
