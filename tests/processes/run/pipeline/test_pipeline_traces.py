"""A request through a pipeline as a collector sees it: each stage's spans, in the client's trace."""

from pathlib import Path

from support.archives import pack, without_nginx
from support.collector import collector
from support.stack import Stack
from support.waiting import wait_until

SCRIPT = """
def model_fn(model_dir):
    return None

def transform_fn(model, data, content_type, accept, context):
    return data, content_type
"""
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_each_stage_makes_its_span_in_the_client_s_trace(tmp_path: Path) -> None:
    """The pipeline itself makes none, and passes on the headers."""
    archives = [
        str(pack(tmp_path / f"part-{number}.tar.gz", {"code/inference.py": SCRIPT})) for number in (1, 2)
    ]
    with collector() as received:
        env = {**received.env, **without_nginx(), "SAGEMAKER_GUNICORN_WORKERS": "1"}
        stack = Stack(*archives, env=env)
        try:
            stack.wait_ready()
            answer = stack.invoke("{}", traceparent=f"00-{TRACE}-{SPAN}-01")
            wait_until(lambda: len(received.servers()) >= 2, 60, "both stages' spans are here")
            stack.stop()
        finally:
            stack.close()

    assert answer.status == 200
    assert [(span.trace_id, span.parent_id) for span in received.servers()] == [(TRACE, SPAN)] * 2
    assert {span.name for span in received.spans} == {"POST /invocations", "read", "transform_fn"}
