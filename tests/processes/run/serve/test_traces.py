"""Traces as a collector sees them: a real stack sends its spans over OTLP to a real receiver."""

import concurrent.futures
import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support.archives import NEEDS_NGINX, pack, stand_in_words, without_nginx
from support.collector import CLIENT, Collector, ReceivedSpan, collector
from support.running import Answer
from support.stack import Stack, serving

SCRIPT = """
import json
import requests
from opentelemetry import trace

def input_handler(data, context):
    with trace.get_tracer("mine").start_as_current_span("my own"):
        text = data.read().decode()
    if text == "raise":
        raise ValueError("a secret")
    if text == "ask":
        requests.post(context.rest_uri, data="{}")
    return text

def output_handler(response, context):
    return response.content, "application/json"
"""
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
ROOT = "POST /invocations"
RATIO = "parentbased_traceidratio"
ROW = '{"instances": [1]}'


@pytest.fixture(scope="module")
def received() -> Iterator[Collector]:
    """A collector for the module's stacks."""
    with collector() as running:
        yield running


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, received: Collector) -> Iterator[Stack]:
    """A script in front of the stand-in, traced whole."""
    folder = tmp_path_factory.mktemp("traces")
    env = {**received.env, "SAGEMAKER_GUNICORN_WORKERS": "1"}
    with serving(*stand_in_words(folder, SCRIPT), env=env) as running:
        yield running


def new_trace() -> str:
    """A trace's id that no other test has."""
    return uuid.uuid4().hex


def sent_on(answer_body: bytes) -> list[str]:
    """The parts of the traceparent that the stand-in got."""
    return str(json.loads(answer_body)["predictions"][0]["traceparent"]).split("-")


def test_a_request_is_a_span_with_its_stages_within(stack: Stack, received: Collector) -> None:
    """Names and attributes are those of the semantic conventions; a script's own spans lie in its half's.

    The model server is told of the call's span, so that one which makes spans continues the trace.
    """
    trace_id = new_trace()
    answer = stack.invoke('{"instances": [1]}', traceparent=f"00-{trace_id}-{SPAN}-01")
    spans = received.trace(trace_id, 6)

    root = spans[ROOT]
    assert set(spans) == {ROOT, "read", "input_handler", "my own", "model_server", "output_handler"}
    assert root.parent_id == SPAN
    assert spans["my own"].parent_id == spans["input_handler"].span_id
    assert {
        spans[name].parent_id for name in ("read", "input_handler", "model_server", "output_handler")
    } == {root.span_id}
    assert root.attributes["http.route"] == "/invocations"
    assert root.attributes["http.response.status_code"] == 200
    assert root.attributes["tfs_proxy.request_id"] == answer.headers["x-request-id"]
    assert root.resource["service.name"] == "tfs-proxy"
    assert sent_on(answer.body)[1:] == [trace_id, spans["model_server"].span_id, "01"]
    assert spans["model_server"].kind == CLIENT


@pytest.mark.parametrize("hostile", ["<script>", f"{PARENT}-x", "00-" + "0" * 32 + f"-{SPAN}-01", "x" * 4000])
def test_a_malformed_traceparent_is_replaced_and_not_echoed(
    stack: Stack, received: Collector, hostile: str
) -> None:
    """A new trace begins, which the model server is told of."""
    answer = stack.invoke("{}", traceparent=hostile)
    _, trace_id, _, flags = sent_on(answer.body)

    assert flags[-1] in "13579bdf"
    assert received.trace(trace_id)[ROOT].parent_id == ""
    assert hostile not in f"{answer.headers}{answer.body.decode()}"


def test_a_parent_that_is_not_sampled_is_followed(stack: Stack, received: Collector) -> None:
    """No spans, and the model server is told of none."""
    trace_id = new_trace()
    answer = stack.invoke("{}", traceparent=f"00-{trace_id}-{SPAN}-00")
    marker = sent_on(stack.invoke("{}").body)[1]
    received.trace(marker)

    assert sent_on(answer.body)[1] == trace_id
    assert sent_on(answer.body)[3] == "00"
    assert not [span for span in received.spans if span.trace_id == trace_id]


def test_a_script_s_own_call_of_the_model_server_carries_the_trace(stack: Stack, received: Collector) -> None:
    """It goes over the worker's connections."""
    trace_id = new_trace()
    answer = stack.invoke("ask", traceparent=f"00-{trace_id}-{SPAN}-01")

    assert sent_on(answer.body)[1] == trace_id


def test_what_fails_is_marked_without_its_text(stack: Stack, received: Collector) -> None:
    """The half's span and the request's; a text may hold what a client sent."""
    trace_id = new_trace()
    answer = stack.invoke("raise", traceparent=f"00-{trace_id}-{SPAN}-01")
    spans = received.trace(trace_id, 4)

    assert answer.status == 500
    assert (spans[ROOT].failed, spans[ROOT].attributes["error.type"]) == (True, "500")
    assert (spans["input_handler"].failed, spans["input_handler"].attributes["error.type"]) == (
        True,
        "ValueError",
    )
    assert "a secret" not in str([spans[ROOT], spans["input_handler"]])


def test_probes_are_not_traced(stack: Stack, received: Collector) -> None:
    """They come every few seconds."""
    stack.ask("GET", "/ping")
    stack.ask("GET", "/metrics")
    received.trace(sent_on(stack.invoke("{}").body)[1])

    assert not [span for span in received.spans if "ping" in span.name or "metrics" in span.name]


@pytest.mark.parametrize("worker_class", ["gthread", "sync", "gevent"])
def test_every_class_of_workers_makes_spans(tmp_path: Path, received: Collector, worker_class: str) -> None:
    """The whole of them, one within the other; the last requests' are sent at the end, or would be lost."""
    at_the_end = {"SAGEMAKER_GUNICORN_WORKER_CLASS": worker_class, "OTEL_BSP_SCHEDULE_DELAY": "3600000"}
    env = {**received.env, **without_nginx(), **at_the_end}
    trace_id = worker_class.encode().hex().ljust(32, "0")
    with serving(*stand_in_words(tmp_path, SCRIPT), env=env) as stack:
        for _ in range(2):
            stack.invoke("{}", traceparent=f"00-{trace_id}-{SPAN}-01")
        stack.stop()
        spans = received.trace(trace_id, 12)

    assert spans["model_server"].parent_id == spans[ROOT].span_id


def test_a_streamed_answer_is_one_span(tmp_path: Path, received: Collector) -> None:
    """It ends with the last piece, and pieces have none of their own."""
    script = "def handler(data, context):\n    for number in range(20):\n        yield f'{number},'\n"
    trace_id = new_trace()
    with serving(*stand_in_words(tmp_path, script), env=received.env) as stack:
        answer = stack.invoke("{}", traceparent=f"00-{trace_id}-{SPAN}-01")
        received.trace(trace_id, 3)

    assert answer.body.count(b",") == 20
    assert len([span for span in received.spans if span.trace_id == trace_id]) <= 5


def sampled_share(stack: Stack, received: Collector, count: int, headers: Mapping[str, str]) -> int:
    """How many of ``count`` requests have spans, once the stack has sent them all."""
    before = len(received.servers())
    with concurrent.futures.ThreadPoolExecutor(4) as clients:
        answers = list(clients.map(lambda _: stack.invoke(ROW, **headers).status, range(count)))
    assert answers == [200] * count
    stack.stop()
    return len(received.servers()) - before


@NEEDS_NGINX
@pytest.mark.parametrize("script", [None, SCRIPT], ids=["fast path", "script"])
def test_the_share_is_taken_once(tmp_path: Path, script: str | None) -> None:
    """By nginx for requests with a script and without: a share of a share would be a sixteenth.

    A client can't put itself into it.
    """
    with collector() as received:
        env = {**received.env, "OTEL_TRACES_SAMPLER": RATIO, "OTEL_TRACES_SAMPLER_ARG": "0.25"}
        with serving(*stand_in_words(tmp_path, script), env=env) as stack:
            count = sampled_share(stack, received, 400, {"X_Tfs_Proxy_Sampled": "1"})

    assert 50 <= count <= 150  # 100, and more than five standard deviations


@pytest.fixture(scope="module")
def unsampled_stack(tmp_path_factory: pytest.TempPathFactory, received: Collector) -> Iterator[Stack]:
    """A model without a script behind nginx, which samples what has a sampled parent."""
    folder = tmp_path_factory.mktemp("unsampled")
    env = {**received.env, "OTEL_TRACES_SAMPLER": "parentbased_always_off"}
    with serving(*stand_in_words(folder), env=env) as running:
        yield running


@NEEDS_NGINX
@pytest.mark.parametrize("path", ["/invocations", "/v1/models/m:predict"])
def test_a_sampled_parent_leaves_nginx_s_fast_path(
    unsampled_stack: Stack, received: Collector, path: str
) -> None:
    """The answer is the same either way, and what is not sampled goes past Python."""
    headers = {"Content-Type": "application/json"}
    trace_id = new_trace()

    def ask(more: Mapping[str, str]) -> Answer:
        return unsampled_stack.ask("POST", path, ROW, {**headers, **more})

    plain = ask({})
    hostile = ask({"traceparent": "<script>"})
    unsampled = ask({"traceparent": f"00-{trace_id}-{SPAN}-00"})
    traced = ask({"traceparent": f"00-{trace_id}-{SPAN}-01"})
    spans = received.trace(trace_id, 3)

    (kept,) = json.loads(traced.body)["predictions"]
    assert kept.pop("traceparent").split("-")[2] == spans["model_server"].span_id
    assert [kept] == json.loads(plain.body)["predictions"] == json.loads(hostile.body)["predictions"]
    assert sent_on(unsampled.body) == ["00", trace_id, SPAN, "00"]
    assert {**traced.headers, "x-request-id": "", "content-length": ""}.keys() >= plain.headers.keys()
    assert [span.trace_id for span in received.servers()].count(trace_id) == 1


def test_a_collector_that_is_away_is_warned_of_once(tmp_path: Path) -> None:
    """By each worker. Requests do not wait for it, and neither does the end."""
    with collector() as gone:
        env = {**gone.env, "SAGEMAKER_GUNICORN_WORKERS": "2"}
    env = {**env, "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    with serving(*stand_in_words(tmp_path, SCRIPT), env=env) as stack:
        statuses = {stack.invoke("{}").status for _ in range(50)}
        stack.wait_for_log("traces can't be sent")
        stack.invoke("{}")
        stack.stop()

    assert statuses == {200}
    assert 1 <= stack.log.count("traces can't be sent") <= 2
    assert "Transient error" not in stack.log
    assert "Traceback" not in stack.log


def test_without_opentelemetry_the_start_says_so(tmp_path: Path) -> None:
    """And serves all the same."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'opentelemetry':\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
    )
    env = {"PYTHONPATH": str(tmp_path), "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
    with serving(*stand_in_words(tmp_path), env=env) as stack:
        stack.wait_for_log(
            "ENDPOINT is set, and no traces are sent: OpenTelemetry is not installed. Install it with "
        )
        assert stack.invoke("{}").status == 200


SAYS = "import sys\ndef handler(data, context):\n    return str('opentelemetry' in sys.modules)\n"


@pytest.mark.parametrize("endpoint", [None, "http://127.0.0.1:1"])
def test_variables_that_opentelemetry_refuses_do_not_end_the_start(
    tmp_path: Path, endpoint: str | None
) -> None:
    """With an endpoint the log says it; without one nothing looks at them, nor imports OpenTelemetry.

    It would cost memory and a part of a second in each worker.
    """
    env = {"OTEL_BSP_MAX_QUEUE_SIZE": "-1", **({"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint} if endpoint else {})}
    with serving(*stand_in_words(tmp_path, SAYS), env=env) as stack:
        imported = stack.invoke("{}", traceparent=PARENT).body

    assert (imported == b"False") == (endpoint is None)
    assert ("OpenTelemetry can't be configured" in stack.log) == (endpoint is not None)


ASKING = """
async def handler(data, context):
    first = await context.predict_async([1.0, 2.0])
    second = context.predict([3.0])
    return str(first["y"].tolist() + second["y"].tolist())
"""


@pytest.mark.tensorflow
def test_a_script_s_predictions_are_spans_within_its_own(
    tmp_path: Path, saved_models: Path, received: Collector
) -> None:
    """On the event loop, too."""
    archive = pack(
        tmp_path / "model.tar.gz",
        {"code/inference.py": ASKING},
        {"half_plus_two": saved_models / "half_plus_two"},
    )
    trace_id = new_trace()
    with serving(str(archive), "--model-server", "embedded", env=received.env) as stack:
        answer = stack.invoke("{}", traceparent=f"00-{trace_id}-{SPAN}-01")
        received.trace(trace_id, 5)

    assert answer.body == b"[2.5, 3.0, 3.5]"
    spans: list[ReceivedSpan] = [span for span in received.spans if span.trace_id == trace_id]
    (handler,) = [span for span in spans if span.name == "handler"]
    assert [span.parent_id for span in spans if span.name == "model_server"] == [handler.span_id] * 2
