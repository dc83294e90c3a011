"""A request through a pipeline as a collector sees it: one trace, from the front to the last stage."""

from collections.abc import Sequence
from pathlib import Path

from support.archives import pack, without_nginx
from support.collector import CLIENT, SERVER, Collector, ReceivedSpan, collector
from support.stack import Stack
from support.waiting import wait_until

SCRIPT = """
def model_fn(model_dir):
    return None

def transform_fn(model, data, content_type, accept, context):
    if "fail" in data:
        raise ValueError("no")
    return data, content_type
"""
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
FAILED_TRACE = "1" * 32
ROOT = "POST /invocations"


def spans_of(received: Collector, trace_id: str, count: int) -> Sequence[ReceivedSpan]:
    """The spans of a trace, once there are so many."""

    def of_trace() -> list[ReceivedSpan]:
        return [span for span in received.spans if span.trace_id == trace_id]

    wait_until(lambda: len(of_trace()) >= count, 60, f"{count} spans are here", details=of_trace)
    return of_trace()


def test_a_request_is_one_trace_through_all_stages(tmp_path: Path) -> None:
    """The front's span holds one for each stage, and that the stage's own; the front's are sent at its end."""
    archives = [
        str(pack(tmp_path / f"part-{number}.tar.gz", {"code/inference.py": SCRIPT})) for number in (1, 2)
    ]
    with collector() as received:
        env = {**received.env, **without_nginx(), "SAGEMAKER_GUNICORN_WORKERS": "1"}
        stack = Stack(*archives, env=env)
        try:
            stack.wait_ready()
            answer = stack.invoke("{}", traceparent=f"00-{TRACE}-{SPAN}-01")
            failed = stack.invoke("fail", traceparent=f"00-{FAILED_TRACE}-{SPAN}-01")
            stack.stop()
        finally:
            stack.close()
        spans, failed_spans = spans_of(received, TRACE, 9), spans_of(received, FAILED_TRACE, 5)

    assert (answer.status, failed.status) == (200, 424)
    (front,) = [span for span in spans if span.parent_id == SPAN]
    assert (front.name, front.kind, front.attributes["http.response.status_code"]) == (ROOT, SERVER, 200)
    calls = {span.name: span for span in spans if span.name.startswith("stage ")}
    assert {(span.name, span.kind, span.parent_id) for span in calls.values()} == {
        ("stage 1", CLIENT, front.span_id),
        ("stage 2", CLIENT, front.span_id),
    }
    served = {span.parent_id: span for span in spans if span.name == ROOT and span is not front}
    assert set(served) == {span.span_id for span in calls.values()}
    functions = [span.parent_id for span in spans if span.name == "transform_fn"]
    assert sorted(functions) == sorted(span.span_id for span in served.values())
    (call,) = [span for span in failed_spans if span.name.startswith("stage ")]
    assert (call.failed, call.attributes["error.type"]) == (True, "StageFailed")
